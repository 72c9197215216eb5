"""SwiGLU, forward and backward.

Formula, in fp32 for bf16 and fp16 and in fp64 for fp32, rounded once on store (nearest
even)::

    z = exp(-|gate|)
    s = 1 / (1 + z) if gate >= 0 else z / (1 + z)
    y = gate * s * up
    dgate = dy * up * s * (1 + gate * (1 - s))
    dup = dy * gate * s

silu(gate) = gate * s is *not* rounded to the element type before the product
with ``up``. 1 - s is the other of the two fractions, never a difference.

Axes: ``num_tokens`` (dynamic) and ``intermediate_size`` (structural; N in the kernel).
Tensors: gate, up, y, dy, dgate, dup, each [num_tokens, intermediate_size], contiguous;
gate, up and dy are read, y, dgate and dup written.
Limits: none; offsets are 64-bit.
Source: N. Shazeer, "GLU Variants Improve Transformer", arXiv:2002.05202, as used by
Llama and Qwen models.
Determinism: element-wise, so every knob is safe.
"""

from __future__ import annotations

from rltune.core.operator import KernelSpec, OperatorSpec, Scalar, Tensor
from rltune_kernels.swiglu.candidates import baseline, candidates, constexprs, grid

_AXES = ("num_tokens", "intermediate_size")
_NUM_TOKENS = Scalar(name="num_tokens", dtype="i64", source="num_tokens")

FORWARD = KernelSpec(
    operator="swiglu",
    name="forward",
    phase="forward",
    jit="rltune_kernels.swiglu.kernel:_swiglu_fwd_kernel",
    binder="rltune_kernels.swiglu.op:launch_forward",
    structural_axes=("intermediate_size",),
    dynamic_axis="num_tokens",
    arguments=(
        Tensor(name="gate_ptr", axes=_AXES),
        Tensor(name="up_ptr", axes=_AXES),
        Tensor(name="y_ptr", axes=_AXES, role="out"),
        _NUM_TOKENS,
    ),
    grid=grid,
    constexprs=constexprs,
    baseline=baseline,
    candidates=candidates,
)

BACKWARD = KernelSpec(
    operator="swiglu",
    name="backward",
    phase="backward",
    jit="rltune_kernels.swiglu.kernel:_swiglu_bwd_kernel",
    binder="rltune_kernels.swiglu.op:launch_backward",
    structural_axes=("intermediate_size",),
    dynamic_axis="num_tokens",
    arguments=(
        Tensor(name="dy_ptr", axes=_AXES),
        Tensor(name="gate_ptr", axes=_AXES),
        Tensor(name="up_ptr", axes=_AXES),
        Tensor(name="dgate_ptr", axes=_AXES, role="out"),
        Tensor(name="dup_ptr", axes=_AXES, role="out"),
        _NUM_TOKENS,
    ),
    grid=grid,
    constexprs=constexprs,
    baseline=baseline,
    candidates=candidates,
)

SPEC = OperatorSpec(
    name="swiglu",
    summary="y = silu(gate) * up",
    kernels=(FORWARD, BACKWARD),
    reference="rltune_kernels.swiglu.reference",
    tolerance_ulp={"bf16": 1, "fp16": 1, "fp32": 1},
)
