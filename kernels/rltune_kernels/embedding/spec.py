"""Embedding lookup, forward and backward.

Formula::

    y[t] = weight[ids[t]]                     a copy of bytes, NaN payloads included
    dweight[v] = dy[t0] + dy[t1] + …          t0 < t1 < … all t with ids[t] == v

The backward sum is a left fold from +0.0, in fp32 for bf16 and fp16 and in fp64 for
fp32, rounded once on store (nearest even). An id outside 0 … vocab_size - 1, such as the
-1 of padding, gives a row of zeros and no gradient; it never reaches an address.

Axes: ``num_tokens`` (dynamic), ``vocab_size`` and ``hidden_size`` (structural; V and N
in the kernel).
Tensors: ids [num_tokens] i64; weight, dweight [vocab_size, hidden_size]; y, dy
[num_tokens, hidden_size]; all contiguous. ``backward`` reads sorted_ids, order (the
stable permutation that sorts ids) and segment_ends (one past the last position of
each position's id), each [num_tokens] i64, and updates dweight, which starts as
zeros, in the rows whose id occurs.
Limits: offsets are 64-bit; num_tokens below 2**31 in ``backward``.
Source: ``torch.nn.functional.embedding``; the backward by sorted segments is that of
https://github.com/RL-Align/RL-Kernel/pull/349.
Determinism: no atomics; one program folds one column tile of one id, so every knob
is safe.
"""

from __future__ import annotations

from rltune.core.operator import KernelSpec, OperatorSpec, Scalar, Tensor
from rltune_kernels.embedding.candidates import (
    copy_baseline,
    copy_candidates,
    copy_constexprs,
    copy_grid,
    fold_baseline,
    fold_candidates,
    fold_constexprs,
    fold_grid,
)

_WEIGHT = ("vocab_size", "hidden_size")
_TILE = ("num_tokens", "hidden_size")
_NUM_TOKENS = Scalar(name="num_tokens", dtype="i64", source="num_tokens")

FORWARD = KernelSpec(
    operator="embedding",
    name="forward",
    phase="forward",
    jit="rltune_kernels.embedding.kernel:_embedding_fwd_kernel",
    binder="rltune_kernels.embedding.op:launch_forward",
    prepare="rltune_kernels.embedding.reference:prepare_forward",
    structural_axes=("vocab_size", "hidden_size"),
    dynamic_axis="num_tokens",
    arguments=(
        Tensor(name="ids_ptr", axes=("num_tokens",), dtype="i64", values="derived"),
        Tensor(name="weight_ptr", axes=_WEIGHT),
        Tensor(name="y_ptr", axes=_TILE, role="out"),
        _NUM_TOKENS,
    ),
    grid=copy_grid,
    constexprs=copy_constexprs,
    baseline=copy_baseline,
    candidates=copy_candidates,
)

BACKWARD = KernelSpec(
    operator="embedding",
    name="backward",
    phase="backward",
    jit="rltune_kernels.embedding.kernel:_embedding_bwd_kernel",
    binder="rltune_kernels.embedding.op:launch_backward",
    prepare="rltune_kernels.embedding.reference:prepare_backward",
    structural_axes=("vocab_size", "hidden_size"),
    dynamic_axis="num_tokens",
    arguments=(
        Tensor(name="sorted_ids_ptr", axes=("num_tokens",), dtype="i64", values="derived"),
        Tensor(name="order_ptr", axes=("num_tokens",), dtype="i64", values="derived"),
        Tensor(name="segment_ends_ptr", axes=("num_tokens",), dtype="i64", values="derived"),
        Tensor(name="dy_ptr", axes=_TILE),
        Tensor(name="dweight_ptr", axes=_WEIGHT, role="in_out", values="zero"),
        _NUM_TOKENS,
    ),
    grid=fold_grid,
    constexprs=fold_constexprs,
    baseline=fold_baseline,
    candidates=fold_candidates,
)

SPEC = OperatorSpec(
    name="embedding",
    summary="y[t] = weight[ids[t]], zeros for an id outside the vocabulary",
    kernels=(FORWARD, BACKWARD),
    reference="rltune_kernels.embedding.reference",
    tolerance_ulp={"bf16": 1, "fp16": 1, "fp32": 1},
)
