"""RoPE (rotary position embedding), forward and backward.

Formula, for pair i of 0 … rotary_dim / 2 - 1 of each head x of q and of k at position p,
in fp32 for bf16 and fp16 and in fp64 for fp32, each output rounded once on store (nearest
even)::

    x1, x2 = x[i], x[i + rotary_dim / 2]              halves, the layout of GPT-NeoX
    c, s = cos[p, i], sin[p, i]
    y[i] = fma(x1, c, -(x2 * s))                      the product with c is the fused one,
    y[i + rotary_dim / 2] = fma(x2, c, x1 * s)        that with s is rounded first

Elements from rotary_dim on are copied bit by bit, NaN payloads included. The backward
is the same kernel with -s for s: dq, dk = rope(dq_out, dk_out, cos, -sin). Caches of
rotations give a rotation back; any others are taken as they are.

A position outside 0 … max_positions - 1, such as the -1 of padding, gives +0.0 in the
rotated elements, forward and backward, whatever x holds; it never reaches an address.
Positions are data: sequences may be packed, and positions start again, anywhere.

Axes: ``num_tokens`` (dynamic), ``num_heads``, ``num_key_heads``, ``head_dim`` and
``rotary_dim`` (structural; H_Q, H_K, D and 2 * PAIRS in the kernel); ``num_pairs`` =
rotary_dim / 2; ``num_positions``, a divisor of num_tokens, and ``max_positions``, the rows
of the caches, are passed at run time and free in every call. Token t has
positions[t % num_positions].
Tensors: q, q_out [num_tokens, num_heads, head_dim]; k, k_out [num_tokens, num_key_heads,
head_dim]; positions [num_positions] i64; cos, sin [max_positions, num_pairs] fp32; all
contiguous. ``forward`` reads q and k and writes q_out and k_out; ``backward`` takes the
upstream gradients as q and k and writes dq and dk to q_out and k_out. Never in place.
Limits: rotary_dim even, from 2 to head_dim; a program holds whole heads, so head_dim up
to 4096; heads of all tokens below 2**31; offsets are 64-bit.
Source: J. Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding",
arXiv:2104.09864; halves as in https://github.com/EleutherAI/gpt-neox.
Determinism: every pair is computed alone, so every knob is safe.
Errors are counted in the last place of abs(x1 * c) + abs(x2 * s), as the two may cancel.
"""

from __future__ import annotations

from dataclasses import replace

from rltune.core.operator import KernelSpec, OperatorSpec, Scalar, Tensor
from rltune_kernels.rope.candidates import (
    backward_constexprs,
    baseline,
    cache_axes,
    candidates,
    forward_constexprs,
    grid,
)

MAX_HEAD_DIM = 4096
"""Widest head that a program holds in registers."""

_STRUCTURAL = ("num_heads", "num_key_heads", "head_dim", "rotary_dim")
_QUERY = ("num_tokens", "num_heads", "head_dim")
_KEY = ("num_tokens", "num_key_heads", "head_dim")
_CACHE = ("max_positions", "num_pairs")
_ARGUMENTS = (
    Tensor(name="q_ptr", axes=_QUERY),
    Tensor(name="k_ptr", axes=_KEY),
    Tensor(name="positions_ptr", axes=("num_positions",), dtype="i64", values="derived"),
    Tensor(name="cos_ptr", axes=_CACHE, dtype="fp32", values="derived"),
    Tensor(name="sin_ptr", axes=_CACHE, dtype="fp32", values="derived"),
    Tensor(name="q_out_ptr", axes=_QUERY, role="out"),
    Tensor(name="k_out_ptr", axes=_KEY, role="out"),
    Scalar(name="num_tokens", dtype="i64", source="num_tokens"),
    Scalar(name="num_positions", dtype="i64", source="num_positions"),
    Scalar(name="max_positions", dtype="i64", source="max_positions"),
)

FORWARD = KernelSpec(
    operator="rope",
    name="forward",
    phase="forward",
    jit="rltune_kernels.rope.kernel:_rope_kernel",
    binder="rltune_kernels.rope.op:launch_forward",
    prepare="rltune_kernels.rope.reference:prepare",
    structural_axes=_STRUCTURAL,
    dynamic_axis="num_tokens",
    arguments=_ARGUMENTS,
    grid=grid,
    constexprs=forward_constexprs,
    baseline=baseline,
    candidates=candidates,
    derived_axes=cache_axes,
)

BACKWARD = replace(
    FORWARD,
    name="backward",
    phase="backward",
    binder="rltune_kernels.rope.op:launch_backward",
    constexprs=backward_constexprs,
)

SPEC = OperatorSpec(
    name="rope",
    summary="y1 = x1 * cos - x2 * sin, y2 = x2 * cos + x1 * sin over halves of q's and k's heads",
    kernels=(FORWARD, BACKWARD),
    reference="rltune_kernels.rope.reference",
    tolerance_ulp={"bf16": 1, "fp16": 1, "fp32": 1},
)
