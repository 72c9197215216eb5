"""RMSNorm, forward and backward (dx, dw).

Formula, in fp32 for bf16 and fp16 and in fp64 for fp32, each output rounded once on
store (nearest even)::

    rstd = 1 / sqrt(sum(x * x) / N + eps)           one number a row, kept as it is
    y = x * rstd * weight
    m = sum(dy * weight * x * rstd) / N
    dx = rstd * (dy * weight - x * rstd * m)
    dw = sum over rows of dy * x * rstd

Axes: ``num_tokens`` (dynamic), ``hidden_size`` (structural; N in the kernel), and
``num_blocks`` = ceil(num_tokens / 64), the fold blocks of dw.
Tensors: x, y, dy, dx [num_tokens, hidden_size]; weight, dw [hidden_size], of x's element
type; rstd [num_tokens] and partial [num_blocks, hidden_size] in the type of the
arithmetic; all contiguous.
``forward`` writes y and rstd, ``dx`` writes dx, ``dw_partial`` partial, ``dw_fold`` dw.
Limits: a program holds whole rows, so hidden_size up to 65536; offsets are 64-bit.
Source: B. Zhang and R. Sennrich, "Root Mean Square Layer Normalization",
arXiv:1910.07467.
Determinism: no atomics. The sum over a row follows the row class, which is part of
the definition (see ``candidates``); ROWS, STEPS and STAGES are safe, and warps within
the class. dw adds row l, l + 8, … of each block of 64 rows in lane l of 8, folds the
lanes by halves, then adds the blocks likewise in 32 lanes: every knob there is safe.
"""

from __future__ import annotations

from rltune.core.operator import KernelSpec, OperatorSpec, Scalar, Tensor
from rltune_kernels.rms_norm.candidates import (
    fold_baseline,
    fold_candidates,
    fold_constexprs,
    fold_grid,
    num_blocks,
    partial_baseline,
    partial_candidates,
    partial_constexprs,
    partial_grid,
    row_baseline,
    row_candidates,
    row_constexprs,
    row_control,
    row_grid,
)

MAX_HIDDEN_SIZE = 65536
"""Widest row that a program holds in registers."""

DEFAULT_EPS = 1e-6
"""What is added to the mean of squares if the caller says nothing."""

_TILE = ("num_tokens", "hidden_size")
_NUM_TOKENS = Scalar(name="num_tokens", dtype="i64", source="num_tokens")

FORWARD = KernelSpec(
    operator="rms_norm",
    name="forward",
    phase="forward",
    jit="rltune_kernels.rms_norm.kernel:_rms_norm_fwd_kernel",
    binder="rltune_kernels.rms_norm.op:launch_forward",
    structural_axes=("hidden_size",),
    dynamic_axis="num_tokens",
    arguments=(
        Tensor(name="x_ptr", axes=_TILE),
        Tensor(name="weight_ptr", axes=("hidden_size",)),
        Tensor(name="y_ptr", axes=_TILE, role="out"),
        Tensor(name="rstd_ptr", axes=("num_tokens",), dtype="acc", role="out"),
        _NUM_TOKENS,
        Scalar(name="eps", dtype="fp32", default=DEFAULT_EPS),
    ),
    grid=row_grid,
    constexprs=row_constexprs,
    baseline=row_baseline,
    candidates=row_candidates,
    control=row_control,
)

DX = KernelSpec(
    operator="rms_norm",
    name="dx",
    phase="backward",
    jit="rltune_kernels.rms_norm.kernel:_rms_norm_dx_kernel",
    binder="rltune_kernels.rms_norm.op:launch_dx",
    prepare="rltune_kernels.rms_norm.reference:prepare_backward",
    structural_axes=("hidden_size",),
    dynamic_axis="num_tokens",
    arguments=(
        Tensor(name="dy_ptr", axes=_TILE),
        Tensor(name="x_ptr", axes=_TILE),
        Tensor(name="weight_ptr", axes=("hidden_size",)),
        Tensor(name="rstd_ptr", axes=("num_tokens",), dtype="acc", values="derived"),
        Tensor(name="dx_ptr", axes=_TILE, role="out"),
        _NUM_TOKENS,
    ),
    grid=row_grid,
    constexprs=row_constexprs,
    baseline=row_baseline,
    candidates=row_candidates,
    control=row_control,
)

DW_PARTIAL = KernelSpec(
    operator="rms_norm",
    name="dw_partial",
    phase="backward",
    jit="rltune_kernels.rms_norm.kernel:_rms_norm_dw_partial_kernel",
    binder="rltune_kernels.rms_norm.op:launch_dw_partial",
    prepare="rltune_kernels.rms_norm.reference:prepare_backward",
    structural_axes=("hidden_size",),
    dynamic_axis="num_tokens",
    arguments=(
        Tensor(name="dy_ptr", axes=_TILE),
        Tensor(name="x_ptr", axes=_TILE),
        Tensor(name="rstd_ptr", axes=("num_tokens",), dtype="acc", values="derived"),
        Tensor(name="partial_ptr", axes=("num_blocks", "hidden_size"), dtype="acc", role="out"),
        _NUM_TOKENS,
    ),
    grid=partial_grid,
    constexprs=partial_constexprs,
    baseline=partial_baseline,
    candidates=partial_candidates,
    derived_axes=num_blocks,
)

DW_FOLD = KernelSpec(
    operator="rms_norm",
    name="dw_fold",
    phase="backward",
    jit="rltune_kernels.rms_norm.kernel:_rms_norm_dw_fold_kernel",
    binder="rltune_kernels.rms_norm.op:launch_dw_fold",
    structural_axes=("hidden_size",),
    dynamic_axis="num_tokens",
    arguments=(
        Tensor(name="partial_ptr", axes=("num_blocks", "hidden_size"), dtype="acc"),
        Tensor(name="dw_ptr", axes=("hidden_size",), role="out"),
        Scalar(name="num_blocks", dtype="i64", source="num_blocks"),
    ),
    grid=fold_grid,
    constexprs=fold_constexprs,
    baseline=fold_baseline,
    candidates=fold_candidates,
    derived_axes=num_blocks,
)

SPEC = OperatorSpec(
    name="rms_norm",
    summary="y = x / sqrt(mean(x * x) + eps) * weight",
    kernels=(FORWARD, DX, DW_PARTIAL, DW_FOLD),
    reference="rltune_kernels.rms_norm.reference",
    tolerance_ulp={"bf16": 1, "fp16": 1, "fp32": 1},
)
