"""Embedding lookup on tensors: checks, layout, autograd, registration."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from rltune.runtime.launcher import launch
from rltune_kernels._host import (
    check_device,
    check_elements,
    dense,
    dtype_name,
    flat_integers,
    needs_grad,
    needs_registered_op,
    refused,
    rows,
)
from rltune_kernels.embedding.spec import BACKWARD, FORWARD

_MAX_TOKENS = 2**31 - 1  # programs along one axis of a grid


def embedding(ids: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Rows of ``weight`` by token id; zeros for an id outside 0 … vocab_size - 1.

    Args:
        ids: [...] in int64 or int32; any strides.
        weight: [vocab_size, hidden_size] in bf16, fp16 or fp32; any strides.

    Returns:
        A contiguous tensor [..., hidden_size] of ``weight``'s element type.

    Raises:
        OperatorArgumentError: an argument is not such a tensor.
    """
    check_elements("embedding", "weight", weight, "[vocab_size, hidden_size]")
    if weight.dim() != 2:
        shape = tuple(weight.shape)
        raise refused("embedding", "weight", "shape [vocab_size, hidden_size]", shape)
    if not isinstance(ids, torch.Tensor):
        raise refused("embedding", "ids", "a tensor [...] of token ids", type(ids).__name__)
    if ids.dtype not in (torch.int64, torch.int32):
        raise refused("embedding", "ids", "element type torch.int64, torch.int32", ids.dtype)
    if ids.numel() > _MAX_TOKENS:
        raise refused("embedding", "ids", f"at most {_MAX_TOKENS} tokens", ids.numel())
    check_device("embedding", "ids", ids, weight)
    if needs_registered_op(ids, weight):
        result: torch.Tensor = _embedding_op(ids, weight)
    elif needs_grad(weight):
        result = _Embedding.apply(ids, weight)  # type: ignore[no-untyped-call]
    else:
        result = _forward(ids, weight)
    return result


def launch_forward(ids: torch.Tensor, weight: torch.Tensor, y: torch.Tensor) -> None:
    """One launch of ``forward``: ids [num_tokens] i64, y [num_tokens, hidden_size]."""
    num_tokens = ids.shape[0]
    vocab_size, hidden_size = weight.shape
    axes = {"num_tokens": num_tokens, "vocab_size": vocab_size, "hidden_size": hidden_size}
    launch(FORWARD, axes, dtype_name(weight), (ids, weight, y, num_tokens))


def launch_backward(
    sorted_ids: torch.Tensor,
    order: torch.Tensor,
    segment_ends: torch.Tensor,
    dy: torch.Tensor,
    dweight: torch.Tensor,
) -> None:
    """One launch of ``backward``: three [num_tokens] i64, dy, and dweight of zeros."""
    num_tokens = sorted_ids.shape[0]
    vocab_size, hidden_size = dweight.shape
    axes = {"num_tokens": num_tokens, "vocab_size": vocab_size, "hidden_size": hidden_size}
    arguments = (sorted_ids, order, segment_ends, dy, dweight, num_tokens)
    launch(BACKWARD, axes, dtype_name(dweight), arguments)


def _forward(ids: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    shape = (*ids.shape, weight.shape[1])
    if not (ids.numel() and weight.numel()):
        return torch.zeros(shape, dtype=weight.dtype, device=weight.device)
    y = weight.new_empty(shape)
    launch_forward(flat_integers(ids), dense(weight), rows(y))
    return y


def _backward(dy: torch.Tensor, ids: torch.Tensor, vocab_size: int) -> torch.Tensor:
    dweight = torch.zeros((vocab_size, dy.shape[-1]), dtype=dy.dtype, device=dy.device)
    if not (dy.numel() and vocab_size):
        return dweight
    sorted_ids, order = torch.sort(flat_integers(ids), stable=True)
    segment_ends = torch.searchsorted(sorted_ids, sorted_ids, right=True)
    launch_backward(sorted_ids, order, segment_ends, rows(dy), dweight)
    return dweight


class _Embedding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, ids: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(ids)
        ctx.vocab_size = weight.shape[0]
        return _forward(ids, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[None, torch.Tensor]:
        (ids,) = ctx.saved_tensors
        return None, _backward(dy, ids, ctx.vocab_size)


@torch.library.custom_op("rltune::embedding", mutates_args=())
def _embedding_op(ids: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return _forward(ids, weight)


@torch.library.custom_op("rltune::embedding_backward", mutates_args=())
def _embedding_backward_op(dy: torch.Tensor, ids: torch.Tensor, vocab_size: int) -> torch.Tensor:
    return _backward(dy, ids, vocab_size)


@_embedding_op.register_fake
def _embedding_fake(ids: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return weight.new_empty((*ids.shape, weight.shape[1]))


@_embedding_backward_op.register_fake
def _embedding_backward_fake(dy: torch.Tensor, _ids: torch.Tensor, vocab_size: int) -> torch.Tensor:
    return dy.new_empty((vocab_size, dy.shape[-1]))


def _setup_context(
    ctx: Any,
    inputs: tuple[torch.Tensor, torch.Tensor],
    output: torch.Tensor,  # noqa: ARG001 - torch's signature
) -> None:
    ids, weight = inputs
    ctx.save_for_backward(ids)
    ctx.vocab_size = weight.shape[0]


def _backward_registered(ctx: Any, dy: torch.Tensor) -> tuple[None, torch.Tensor]:
    (ids,) = ctx.saved_tensors
    return None, _embedding_backward_op(dy, ids, ctx.vocab_size)


_embedding_op.register_autograd(_backward_registered, setup_context=_setup_context)
