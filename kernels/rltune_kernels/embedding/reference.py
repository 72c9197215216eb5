"""Plain PyTorch oracle of the embedding, and token ids that try its edges."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from rltune.core.operator import Axes

_EDGE_PERIOD = 7
"""About one id in this many is an edge case or a frequent token."""


def forward(ids: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Y [num_tokens, hidden_size], the very elements of ``weight``."""
    inside = (ids >= 0) & (ids < weight.shape[0])
    y = weight[torch.where(inside, ids, 0)]
    y[~inside] = 0
    return y


def backward(ids: torch.Tensor, dy: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """Dweight [vocab_size, hidden_size] in fp64, unrounded."""
    inside = (ids >= 0) & (ids < vocab_size)
    dweight = dy.new_zeros((vocab_size, dy.shape[1]), dtype=torch.float64)
    return dweight.index_add_(0, ids[inside], dy[inside].double())


def _fill_ids(ids: torch.Tensor, vocab_size: int, seed: int) -> None:
    generator = torch.Generator(ids.device).manual_seed(seed)
    shape = tuple(ids.shape)
    ids.random_(0, vocab_size, generator=generator)
    edges = (-1, vocab_size, 0, vocab_size - 1, 0, -(2**63), 2**63 - 1)
    place = torch.randint(
        0, _EDGE_PERIOD * len(edges), shape, generator=generator, device=ids.device
    )
    for index, edge in enumerate(edges):
        ids.masked_fill_(place == index, edge)


def prepare_forward(tensors: Mapping[str, torch.Tensor], axes: Axes, seed: int) -> None:
    """Fill ``ids_ptr`` with ids in and outside the vocabulary, some of them often."""
    _fill_ids(tensors["ids_ptr"], axes["vocab_size"], seed)


def prepare_backward(tensors: Mapping[str, torch.Tensor], axes: Axes, seed: int) -> None:
    """Fill the three index inputs with what the host derives from such ids."""
    ids = torch.empty_like(tensors["order_ptr"])
    _fill_ids(ids, axes["vocab_size"], seed)
    sorted_ids, order = torch.sort(ids, stable=True)
    tensors["sorted_ids_ptr"].copy_(sorted_ids)
    tensors["order_ptr"].copy_(order)
    tensors["segment_ends_ptr"].copy_(torch.searchsorted(sorted_ids, sorted_ids, right=True))
