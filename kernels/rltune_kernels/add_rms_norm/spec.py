"""RMSNorm with a fused residual add, forward and backward.

Formula, each output rounded once on store (nearest even), all else as in
``rms_norm``::

    residual_out = x + residual                      rounded to the element type
    rstd = 1 / sqrt(sum(residual_out ** 2) / N + eps)
    y = residual_out * rstd * weight
    dx = dresidual = fma(rstd, g, dresidual_out)     g: dx / rstd of rms_norm at residual_out

The norm is taken of the rounded sum, so y and residual_out have the bytes of
``rms_norm(x + residual)``. dw is ``rms_norm``'s, by the same two kernels.

Axes: ``num_tokens`` (dynamic), ``hidden_size`` (structural; N in the kernel).
Tensors: x, residual, y, residual_out, dy, dresidual_out, dx [num_tokens, hidden_size];
weight [hidden_size]; rstd [num_tokens] in the type of the arithmetic; all contiguous.
``forward`` writes y, residual_out and rstd, ``dx`` writes dx. Never in place.
Limits: as ``rms_norm``: hidden_size up to 65536; offsets are 64-bit.
Source: the pre-norm residual stream of Llama and Qwen models.
Determinism: as ``rms_norm``: the sum over a row follows the row class.
"""

from __future__ import annotations

from rltune.core.operator import KernelSpec, OperatorSpec, Scalar, Tensor
from rltune_kernels.add_rms_norm.candidates import (
    row_baseline,
    row_candidates,
    row_constexprs,
    row_control,
    row_grid,
)
from rltune_kernels.rms_norm.spec import DEFAULT_EPS

_TILE = ("num_tokens", "hidden_size")
_NUM_TOKENS = Scalar(name="num_tokens", dtype="i64", source="num_tokens")

FORWARD = KernelSpec(
    operator="add_rms_norm",
    name="forward",
    phase="forward",
    jit="rltune_kernels.add_rms_norm.kernel:_add_rms_norm_fwd_kernel",
    binder="rltune_kernels.add_rms_norm.op:launch_forward",
    structural_axes=("hidden_size",),
    dynamic_axis="num_tokens",
    arguments=(
        Tensor(name="x_ptr", axes=_TILE),
        Tensor(name="residual_ptr", axes=_TILE),
        Tensor(name="weight_ptr", axes=("hidden_size",)),
        Tensor(name="y_ptr", axes=_TILE, role="out"),
        Tensor(name="residual_out_ptr", axes=_TILE, role="out"),
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
    operator="add_rms_norm",
    name="dx",
    phase="backward",
    jit="rltune_kernels.add_rms_norm.kernel:_add_rms_norm_dx_kernel",
    binder="rltune_kernels.add_rms_norm.op:launch_dx",
    prepare="rltune_kernels.add_rms_norm.reference:prepare_backward",
    structural_axes=("hidden_size",),
    dynamic_axis="num_tokens",
    arguments=(
        Tensor(name="dy_ptr", axes=_TILE),
        Tensor(name="dresidual_out_ptr", axes=_TILE),
        Tensor(name="residual_out_ptr", axes=_TILE),
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

SPEC = OperatorSpec(
    name="add_rms_norm",
    summary="r = x + residual, y = r / sqrt(mean(r * r) + eps) * weight",
    kernels=(FORWARD, DX),
    reference="rltune_kernels.add_rms_norm.reference",
    tolerance_ulp={"bf16": 1, "fp16": 1, "fp32": 1},
)
