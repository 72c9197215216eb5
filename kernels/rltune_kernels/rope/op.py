"""RoPE on tensors: checks, layout, autograd, registration."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from rltune.core.operator import KernelSpec
from rltune.runtime.launcher import launch
from rltune_kernels._host import (
    check_device,
    check_elements,
    check_matches,
    dense,
    dtype_name,
    flat_integers,
    needs_grad,
    needs_registered_op,
    new_like,
    refused,
)
from rltune_kernels.rope.spec import BACKWARD, FORWARD, MAX_HEAD_DIM

_AXES = "[..., seq, heads, head_dim]"
_CACHE_AXES = "[max_positions, rotary_dim / 2]"
_MAX_ROWS = 2**31 - 1  # programs along one axis of a grid

Pair = tuple[torch.Tensor, torch.Tensor]
Launch = Callable[[Pair, torch.Tensor, torch.Tensor, torch.Tensor, Pair], None]


def rope(
    q: torch.Tensor,
    k: torch.Tensor,
    positions: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
) -> Pair:
    """Rotate element i and element i + rotary_dim / 2 of each head by cos and sin of its token.

    ``rotary_dim`` is twice the columns of the caches; elements from there on are copied.
    With one rounding. A position outside 0 … max_positions - 1 gives zeros in the rotated
    elements. Queries and keys take one launch.

    Args:
        q: [..., seq, heads, head_dim] in bf16, fp16 or fp32; any strides. A layout with
            heads before seq is passed as ``q.transpose(-3, -2)``.
        k: as ``q``, with its own number of heads; 0 heads rotate ``q`` alone.
        positions: [seq], or the shape of ``q`` up to seq such as [batch, seq]; int64, or
            int32 at the price of a conversion; any values, as packed sequences have them.
        cos: [max_positions, rotary_dim / 2] in fp32; any strides.
        sin: as ``cos``.

    Returns:
        (q_out, k_out): new contiguous tensors of the shapes and element type of q and k.

    Raises:
        OperatorArgumentError: an argument is not as described, or a cache asks for a
            gradient, which there is for q and k alone.
    """
    _check_heads(q, k)
    _check_caches(q, cos, sin)
    _check_positions(q, positions)
    if needs_registered_op(q, k, positions, cos, sin):
        result: Pair = _rope_op(q, k, positions, cos, sin)
    elif needs_grad(q, k):
        result = _RoPE.apply(q, k, positions, cos, sin)  # type: ignore[no-untyped-call]
    else:
        result = _rotate(launch_forward, (q, k), positions, cos, sin)
    return result


def launch_forward(
    pair: Pair, positions: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, out: Pair
) -> None:
    """One launch of ``forward``: q and k, q_out and k_out [num_tokens, heads, head_dim]."""
    _launch(FORWARD, pair, positions, cos, sin, out)


def launch_backward(
    pair: Pair, positions: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, out: Pair
) -> None:
    """One launch of ``backward``: upstream gradients of q_out and k_out, then dq and dk."""
    _launch(BACKWARD, pair, positions, cos, sin, out)


def _launch(
    kernel: KernelSpec,
    pair: Pair,
    positions: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    out: Pair,
) -> None:
    (num_tokens, num_heads, head_dim), (_, num_key_heads, _) = pair[0].shape, pair[1].shape
    max_positions, num_pairs = cos.shape
    axes = {
        "num_tokens": num_tokens,
        "num_heads": num_heads,
        "num_key_heads": num_key_heads,
        "head_dim": head_dim,
        "rotary_dim": 2 * num_pairs,
        "num_positions": positions.shape[0],
        "max_positions": max_positions,
    }
    counts = num_tokens, positions.shape[0], max_positions
    launch(kernel, axes, dtype_name(pair[0]), (*pair, positions, cos, sin, *out, *counts))


def _check_heads(q: torch.Tensor, k: torch.Tensor) -> None:
    check_elements("rope", "q", q, _AXES)
    if q.dim() < 3:
        raise refused("rope", "q", f"shape {_AXES}", tuple(q.shape))
    if not q.shape[-2]:
        raise refused("rope", "q", "at least one head", tuple(q.shape))
    head_dim = q.shape[-1]
    if head_dim > MAX_HEAD_DIM:
        raise refused("rope", "q", f"head_dim up to {MAX_HEAD_DIM}", head_dim)
    check_elements("rope", "k", k, _AXES)
    heads = k.shape[-2] if k.dim() == q.dim() else "heads"
    shape = (*q.shape[:-2], heads, head_dim)
    check_matches("rope", "k", k, shape=shape, axes=_AXES, like=q)
    rows = (q.numel() + k.numel()) // max(head_dim, 1)
    if rows > _MAX_ROWS:
        raise refused("rope", "q", f"at most {_MAX_ROWS} heads of all tokens, k's too", rows)


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
    """[..., H, D] as a dense [num_tokens, H, D]; H may be 0."""
    x = dense(x)
    return x if x.dim() == 3 else x.view(math.prod(x.shape[:-2]), *x.shape[-2:])


def _rotate(
    launch_once: Launch, pair: Pair, positions: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> Pair:
    q, k = pair
    out = new_like(q), new_like(k)
    if q.numel():
        places = flat_integers(positions)
        heads, out_heads = (_heads(q), _heads(k)), (_heads(out[0]), _heads(out[1]))
        launch_once(heads, places, dense(cos), dense(sin), out_heads)
    return out


class _RoPE(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        positions: torch.Tensor,
        cos: torch.Tensor,
        sin: torch.Tensor,
    ) -> Pair:
        ctx.save_for_backward(positions, cos, sin)
        return _rotate(launch_forward, (q, k), positions, cos, sin)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, dq_out: torch.Tensor, dk_out: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, None, None, None]:
        pair = dq_out, dk_out
        return *_rotate(launch_backward, pair, *ctx.saved_tensors), None, None, None


@torch.library.custom_op("rltune::rope", mutates_args=())
def _rope_op(
    q: torch.Tensor,
    k: torch.Tensor,
    positions: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    return _rotate(launch_forward, (q, k), positions, cos, sin)


@torch.library.custom_op("rltune::rope_backward", mutates_args=())
def _rope_backward_op(
    dq_out: torch.Tensor,
    dk_out: torch.Tensor,
    positions: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    return _rotate(launch_backward, (dq_out, dk_out), positions, cos, sin)


@_rope_op.register_fake
def _rope_fake(q: torch.Tensor, k: torch.Tensor, *_caches: torch.Tensor) -> Pair:
    return new_like(q), new_like(k)


@_rope_backward_op.register_fake
def _rope_backward_fake(q: torch.Tensor, k: torch.Tensor, *_caches: torch.Tensor) -> Pair:
    return new_like(q), new_like(k)


def _setup_context(ctx: Any, inputs: tuple[torch.Tensor, ...], output: Pair) -> None:  # noqa: ARG001 - torch's signature
    ctx.save_for_backward(*inputs[2:])


def _backward_registered(
    ctx: Any, dq_out: torch.Tensor, dk_out: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, None, None, None]:
    return *_rope_backward_op(dq_out, dk_out, *ctx.saved_tensors), None, None, None


_rope_op.register_autograd(_backward_registered, setup_context=_setup_context)
