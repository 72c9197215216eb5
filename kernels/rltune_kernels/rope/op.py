"""RoPE on tensors: checks, layout, autograd, registration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from rltune.runtime.launcher import launch
from rltune_kernels._host import (
    check_device,
    check_elements,
    check_matches,
    dense,
    dtype_name,
    needs_grad,
    needs_registered_op,
    new_like,
    refused,
)
from rltune_kernels.rope.spec import BACKWARD, FORWARD, MAX_HEAD_DIM

_X_AXES = "[..., seq, heads, head_dim]"
_CACHE_AXES = "[max_positions, rotary_dim / 2]"
_MAX_ROWS = 2**31 - 1  # programs along one axis of a grid

Launch = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], None]


def rope(
    x: torch.Tensor, positions: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Rotate element i and element i + rotary_dim / 2 of each head by cos and sin of its token.

    ``rotary_dim`` is twice the columns of the caches; elements from there on are copied.
    In fp32 with one rounding. A position outside 0 … max_positions - 1 gives zeros in
    the rotated elements.

    Args:
        x: [..., seq, heads, head_dim] in bf16, fp16 or fp32; any strides. A layout with
            heads before seq is passed as ``x.transpose(-3, -2)``.
        positions: [seq], or the shape of ``x`` up to seq such as [batch, seq]; int64 or
            int32; any values, as packed sequences have them.
        cos: [max_positions, rotary_dim / 2] in fp32; any strides.
        sin: as ``cos``.

    Returns:
        A new contiguous tensor of the shape and element type of ``x``.

    Raises:
        OperatorArgumentError: an argument is not as described, or a cache asks for a
            gradient, which there is for ``x`` alone.
    """
    _check_x(x)
    _check_caches(x, cos, sin)
    _check_positions(x, positions)
    if needs_registered_op(x, positions, cos, sin):
        result: torch.Tensor = _rope_op(x, positions, cos, sin)
    elif needs_grad(x):
        result = _RoPE.apply(x, positions, cos, sin)  # type: ignore[no-untyped-call]
    else:
        result = _rotate(launch_forward, x, positions, cos, sin)
    return result


def launch_forward(
    x: torch.Tensor,
    positions: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    y: torch.Tensor,
) -> None:
    """One launch of ``forward``: x, y [num_tokens, num_heads, head_dim], positions i64."""
    axes = _axes(x, cos)
    arguments = (x, positions, cos, sin, y, axes["num_tokens"], axes["max_positions"])
    launch(FORWARD, axes, dtype_name(x), arguments)


def launch_backward(
    dy: torch.Tensor,
    positions: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    dx: torch.Tensor,
) -> None:
    """One launch of ``backward``: dy, dx [num_tokens, num_heads, head_dim], positions i64."""
    axes = _axes(dy, cos)
    arguments = (dy, positions, cos, sin, dx, axes["num_tokens"], axes["max_positions"])
    launch(BACKWARD, axes, dtype_name(dy), arguments)


def _axes(x: torch.Tensor, cos: torch.Tensor) -> dict[str, int]:
    num_tokens, num_heads, head_dim = x.shape
    max_positions, num_pairs = cos.shape
    return {
        "num_tokens": num_tokens,
        "num_heads": num_heads,
        "head_dim": head_dim,
        "rotary_dim": 2 * num_pairs,
        "max_positions": max_positions,
    }


def _check_x(x: torch.Tensor) -> None:
    check_elements("rope", "x", x, _X_AXES)
    if x.dim() < 3:
        raise refused("rope", "x", f"shape {_X_AXES}", tuple(x.shape))
    head_dim = x.shape[-1]
    if head_dim > MAX_HEAD_DIM:
        raise refused("rope", "x", f"head_dim up to {MAX_HEAD_DIM}", head_dim)
    rows = x.numel() // max(head_dim, 1)
    if rows > _MAX_ROWS:
        raise refused("rope", "x", f"at most {_MAX_ROWS} heads of all tokens", rows)


def _check_caches(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    check_elements("rope", "cos", cos, _CACHE_AXES)
    if cos.dtype != torch.float32:
        raise refused("rope", "cos", "element type torch.float32", cos.dtype)
    if cos.dim() != 2:
        raise refused("rope", "cos", f"shape {_CACHE_AXES}", tuple(cos.shape))
    check_device("rope", "cos", cos, x)
    head_dim, rotary_dim = x.shape[-1], 2 * cos.shape[1]
    if not 2 <= rotary_dim <= head_dim:
        expected = f"{_CACHE_AXES} with rotary_dim from 2 to head_dim {head_dim}"
        raise refused("rope", "cos", expected, f"rotary_dim {rotary_dim}")
    check_matches("rope", "sin", sin, shape=tuple(cos.shape), axes=_CACHE_AXES, like=cos)
    for name, cache in (("cos", cos), ("sin", sin)):
        if needs_grad(cache):
            raise refused("rope", name, "a cache without requires_grad", "one that requires grad")


def _check_positions(x: torch.Tensor, positions: torch.Tensor) -> None:
    if not isinstance(positions, torch.Tensor):
        raise refused("rope", "positions", "a tensor [seq]", type(positions).__name__)
    if positions.dtype not in (torch.int64, torch.int32):
        expected = "element type torch.int64, torch.int32"
        raise refused("rope", "positions", expected, positions.dtype)
    every, one = tuple(x.shape[:-2]), tuple(x.shape[-3:-2])
    if tuple(positions.shape) not in (every, one):
        expected = f"shape [seq] of {one}" + (f" or {every}" if every != one else "")
        raise refused("rope", "positions", expected, tuple(positions.shape))
    check_device("rope", "positions", positions, x)


def _heads(x: torch.Tensor) -> torch.Tensor:
    """[..., H, D] as a dense [num_tokens, H, D]; must not be empty."""
    return dense(x).view(-1, *x.shape[-2:])


def _rotate(
    launch_once: Launch,
    x: torch.Tensor,
    positions: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
) -> torch.Tensor:
    y = new_like(x)
    if x.numel():
        of_tokens = positions.to(torch.int64).expand(x.shape[:-2]).reshape(-1)
        launch_once(_heads(x), dense(of_tokens), dense(cos), dense(sin), _heads(y))
    return y


class _RoPE(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, positions: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
    ) -> torch.Tensor:
        ctx.save_for_backward(positions, cos, sin)
        return _rotate(launch_forward, x, positions, cos, sin)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return _rotate(launch_backward, dy, *ctx.saved_tensors), None, None, None


@torch.library.custom_op("rltune::rope", mutates_args=())
def _rope_op(
    x: torch.Tensor, positions: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    return _rotate(launch_forward, x, positions, cos, sin)


@torch.library.custom_op("rltune::rope_backward", mutates_args=())
def _rope_backward_op(
    dy: torch.Tensor, positions: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    return _rotate(launch_backward, dy, positions, cos, sin)


@_rope_op.register_fake
def _rope_fake(
    x: torch.Tensor, _positions: torch.Tensor, _cos: torch.Tensor, _sin: torch.Tensor
) -> torch.Tensor:
    return new_like(x)


@_rope_backward_op.register_fake
def _rope_backward_fake(
    dy: torch.Tensor, _positions: torch.Tensor, _cos: torch.Tensor, _sin: torch.Tensor
) -> torch.Tensor:
    return new_like(dy)


def _setup_context(
    ctx: Any,
    inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
    output: torch.Tensor,  # noqa: ARG001 - torch's signature
) -> None:
    ctx.save_for_backward(*inputs[1:])


def _backward_registered(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
    return _rope_backward_op(dy, *ctx.saved_tensors), None, None, None


_rope_op.register_autograd(_backward_registered, setup_context=_setup_context)
