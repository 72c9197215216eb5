"""Plain PyTorch oracle of logprob, in fp64, and the inputs that its kernels derive."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from rltune.core.operator import Axes

_IGNORE_INDEX = -100
_EDGE_PERIOD = 5
"""About one id in this many is an edge case."""


def forward(
    logits: torch.Tensor,
    ids: torch.Tensor,
    *,
    ignore_index: int = _IGNORE_INDEX,
    temperature: float = 1.0,
) -> torch.Tensor:
    """Logprob [num_tokens] in fp64, unrounded; logits [num_tokens, vocab_size]."""
    ignored = ids == ignore_index
    inside = (ids >= 0) & (ids < logits.shape[-1])
    logits = logits.double().masked_fill(ignored[:, None], 0.0) / temperature
    chosen = torch.log_softmax(logits, dim=-1).gather(-1, torch.where(inside, ids, 0)[:, None])
    return torch.where(inside, chosen[:, 0], torch.nan).masked_fill(ignored, 0.0)


def backward(
    dlogprob: torch.Tensor,
    logits: torch.Tensor,
    ids: torch.Tensor,
    *,
    ignore_index: int = _IGNORE_INDEX,
    temperature: float = 1.0,
) -> torch.Tensor:
    """Dlogits [num_tokens, vocab_size] in fp64, unrounded; ids name a column or are ignored."""
    ignored = ids == ignore_index
    logits = logits.double().masked_fill(ignored[:, None], 0.0)
    shares = torch.softmax(logits / temperature, dim=-1)
    ones = torch.zeros_like(shares).scatter_(-1, torch.where(ignored, 0, ids)[:, None], 1.0)
    slope = dlogprob.double().masked_fill(ignored, 0.0) / temperature
    return slope[:, None] * (ones - shares)


def fill_ids(ids: torch.Tensor, vocab_size: int, seed: int) -> None:
    """Ids in the vocabulary with its ends often, ignored ones, and some that name no column."""
    generator = torch.Generator(ids.device).manual_seed(seed)
    ids.random_(0, vocab_size, generator=generator)
    edges = (_IGNORE_INDEX, vocab_size - 1, 0, _IGNORE_INDEX, vocab_size, -1)
    places = _EDGE_PERIOD * len(edges)
    place = torch.randint(0, places, tuple(ids.shape), generator=generator, device=ids.device)
    for index, edge in enumerate(edges):
        ids.masked_fill_(place == index, edge)


def prepare_ids(tensors: Mapping[str, torch.Tensor], axes: Axes, seed: int) -> None:
    """Fill ``ids_ptr``."""
    fill_ids(tensors["ids_ptr"], axes["vocab_size"], seed)


def prepare_parts(tensors: Mapping[str, torch.Tensor], axes: Axes, seed: int) -> None:
    """Fill ``ids_ptr``, and ``parts_ptr`` with parts as shards give them, empty ones included."""
    prepare_ids(tensors, axes, seed)
    parts = tensors["parts_ptr"]  # [num_shards, 3, num_tokens]
    generator = torch.Generator(parts.device).manual_seed(seed)
    shape = tuple(parts[:, 0].shape)
    largest = torch.randn(shape, generator=generator, device=parts.device) * 8
    parts[:, 0] = largest
    parts[:, 1] = 1 + 1e3 * torch.rand(shape, generator=generator, device=parts.device)
    parts[:, 2] = largest - torch.rand(shape, generator=generator, device=parts.device)
    if parts.shape[0] > 1:
        parts[-1, 0, ::11] = torch.finfo(torch.float32).min
        parts[-1, 1, ::11] = 0.0
        parts[-1, 2, ::11] = torch.finfo(torch.float32).min


def prepare_backward(tensors: Mapping[str, torch.Tensor], axes: Axes, seed: int) -> None:
    """Fill ``ids_ptr``, and ``row_max_ptr`` and ``row_sum_ptr`` with what a forward saves."""
    prepare_ids(tensors, axes, seed)
    save_rows(tensors["logits_ptr"], tensors["row_max_ptr"], tensors["row_sum_ptr"])
    ids = tensors["ids_ptr"]
    outside = ((ids < 0) | (ids >= axes["vocab_size"])) & (ids != _IGNORE_INDEX)
    tensors["row_sum_ptr"].masked_fill_(outside, torch.nan)


def save_rows(logits: torch.Tensor, row_max: torch.Tensor, row_sum: torch.Tensor) -> None:
    """Fill row_max and row_sum [num_tokens] of logits [num_tokens, N], a few rows at a time."""
    for start in range(0, logits.shape[0], 256):
        rows = logits[start : start + 256].float()
        largest = rows.max(dim=-1).values
        row_max[start : start + 256] = largest
        row_sum[start : start + 256] = torch.exp(rows - largest[:, None]).sum(dim=-1)
