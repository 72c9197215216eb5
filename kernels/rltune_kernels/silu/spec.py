"""SiLU, forward and backward.

Formula, in fp32 for bf16 and fp16 and in fp64 for fp32, rounded once on store (nearest
even)::

    z = exp(-|x|)
    s = 1 / (1 + z) if x >= 0 else z / (1 + z)
    y = x * s
    dx = dy * s * (1 + x * (1 - s))

where 1 - s is the other of the two fractions, never a difference. fp32 arithmetic takes
the hardware's approximate exponential and division, far below the last place of bf16
and fp16; results lie within half an ulp of the exact ones, and a little.

Axes: ``num_tokens`` (dynamic) and ``intermediate_size`` (structural; N in the kernel).
Tensors: x, y, dy, dx, each [num_tokens, intermediate_size], contiguous; x and dy are
read, y and dx written.
Limits: none; offsets are 64-bit. silu(-inf) is NaN, as in PyTorch.
Source: the definition of ``torch.nn.functional.silu``.
Determinism: element-wise, so every knob is safe.
"""

from __future__ import annotations

from rltune.core.operator import KernelSpec, OperatorSpec, Scalar, Tensor
from rltune_kernels.silu.candidates import baseline, candidates, constexprs, grid

_AXES = ("num_tokens", "intermediate_size")
_NUM_TOKENS = Scalar(name="num_tokens", dtype="i64", source="num_tokens")

FORWARD = KernelSpec(
    operator="silu",
    name="forward",
    phase="forward",
    jit="rltune_kernels.silu.kernel:_silu_fwd_kernel",
    binder="rltune_kernels.silu.op:launch_forward",
    structural_axes=("intermediate_size",),
    dynamic_axis="num_tokens",
    arguments=(
        Tensor(name="x_ptr", axes=_AXES),
        Tensor(name="y_ptr", axes=_AXES, role="out"),
        _NUM_TOKENS,
    ),
    grid=grid,
    constexprs=constexprs,
    baseline=baseline,
    candidates=candidates,
)

BACKWARD = KernelSpec(
    operator="silu",
    name="backward",
    phase="backward",
    jit="rltune_kernels.silu.kernel:_silu_bwd_kernel",
    binder="rltune_kernels.silu.op:launch_backward",
    structural_axes=("intermediate_size",),
    dynamic_axis="num_tokens",
    arguments=(
        Tensor(name="dy_ptr", axes=_AXES),
        Tensor(name="x_ptr", axes=_AXES),
        Tensor(name="dx_ptr", axes=_AXES, role="out"),
        _NUM_TOKENS,
    ),
    grid=grid,
    constexprs=constexprs,
    baseline=baseline,
    candidates=candidates,
)

SPEC = OperatorSpec(
    name="silu",
    summary="y = x * sigmoid(x)",
    kernels=(FORWARD, BACKWARD),
    reference="rltune_kernels.silu.reference",
    tolerance_ulp={"bf16": 1, "fp16": 1, "fp32": 1},
)
