"""Policy ratio and k3 KL of selected tokens from logits, forward and backward.

Formula, with logprob that of ``logprob`` for the policy's and ref that for the reference
model's logits, T the temperature::

    ratio[t] = exp(logprob[t] - old_logprob[t])
    d[t] = ref[t] - logprob[t]
    kl[t] = exp(d[t]) - 1 - d[t]                          the k3 estimator, at least 0
    slope[t] = (dratio[t] * ratio[t] + dkl[t] * (1 - exp(d[t]))) / T
    dlogits[t, v] = slope[t] * ((v == ids[t]) - softmax(logits[t] / T)[v])

Rows are added up in fp32 as in ``logprob``, with the same bytes; what follows is fp64, each
output rounded once. The logprob of the ratio is rounded to fp32 first, so a policy's ratio to
the ``logprob`` of its own logits is exactly 1. kl is a series in d where exp(d) - 1 - d would
cancel. Equal infinities differ by 0, an infinite d gives kl infinity, and a gradient of 0 from
upstream meets no infinity.

A token whose mask is 0 has ratio 1, kl 0 and gradient 0, and neither its rows nor its id nor its
old logprob are read. An id outside the vocabulary gives NaN. Columns from ``vocab_size`` to
``padded_vocab_size`` are padding: not read, gradient 0. The reference model gets no gradient.

Axes: ``num_tokens`` (dynamic); ``vocab_size`` and ``padded_vocab_size`` (structural; V and P).
Tensors: logits, ref_logits, dlogits [num_tokens, padded_vocab_size]; ids [num_tokens] i64; mask
[num_tokens] u8; old_logprob, ratio, kl, kl_slope (1 - exp(d)), row_max, row_sum, dratio, dkl
[num_tokens] fp32; all contiguous.
Limits: num_tokens below 2**31; offsets are 64-bit.
Source: J. Schulman, "Approximating KL Divergence" (2020), http://joschu.net/blog/kl-approx.html,
estimator k3; rows as in ``logprob``.
Determinism: as ``logprob``. LANES is part of the definition; warps, stages and BLOCK_V are safe.
"""

from __future__ import annotations

from rltune.core.operator import KernelSpec, OperatorSpec, Scalar, Tensor
from rltune_kernels.ratio_kl.candidates import (
    lane_baseline,
    lane_candidates,
    lane_constexprs,
    lane_control,
    lane_grid,
    slope_baseline,
    slope_candidates,
    slope_constexprs,
    slope_grid,
)

_TILE = ("num_tokens", "padded_vocab_size")
_ROW = ("num_tokens",)
_VOCABULARY = ("vocab_size", "padded_vocab_size")
_IDS = Tensor(name="ids_ptr", axes=_ROW, dtype="i64", values="derived")
_MASK = Tensor(name="mask_ptr", axes=_ROW, dtype="u8", values="derived")
_INVERSE_TEMPERATURE = Scalar(name="inverse_temperature", dtype="fp32", default=1.0)


def _derived(name: str) -> Tensor:
    return Tensor(name=name, axes=_ROW, dtype="fp32", values="derived")


FORWARD = KernelSpec(
    operator="ratio_kl",
    name="forward",
    phase="forward",
    jit="rltune_kernels.ratio_kl.kernel:_ratio_kl_fwd_kernel",
    binder="rltune_kernels.ratio_kl.op:launch_forward",
    prepare="rltune_kernels.ratio_kl.reference:prepare_forward",
    structural_axes=_VOCABULARY,
    dynamic_axis="num_tokens",
    arguments=(
        Tensor(name="logits_ptr", axes=_TILE),
        Tensor(name="ref_logits_ptr", axes=_TILE),
        _IDS,
        _MASK,
        _derived("old_logprob_ptr"),
        *(
            Tensor(name=name, axes=_ROW, dtype="fp32", role="out")
            for name in ("ratio_ptr", "kl_ptr", "kl_slope_ptr", "row_max_ptr", "row_sum_ptr")
        ),
        _INVERSE_TEMPERATURE,
    ),
    grid=lane_grid,
    constexprs=lane_constexprs,
    baseline=lane_baseline,
    candidates=lane_candidates,
    control=lane_control,
)

BACKWARD = KernelSpec(
    operator="ratio_kl",
    name="backward",
    phase="backward",
    jit="rltune_kernels.ratio_kl.kernel:_ratio_kl_bwd_kernel",
    binder="rltune_kernels.ratio_kl.op:launch_backward",
    prepare="rltune_kernels.ratio_kl.reference:prepare_backward",
    structural_axes=_VOCABULARY,
    dynamic_axis="num_tokens",
    arguments=(
        Tensor(name="dratio_ptr", axes=_ROW, dtype="fp32"),
        Tensor(name="dkl_ptr", axes=_ROW, dtype="fp32"),
        Tensor(name="logits_ptr", axes=_TILE),
        _IDS,
        _MASK,
        *(_derived(name) for name in ("ratio_ptr", "kl_slope_ptr", "row_max_ptr", "row_sum_ptr")),
        Tensor(name="dlogits_ptr", axes=_TILE, role="out"),
        _INVERSE_TEMPERATURE,
    ),
    grid=slope_grid,
    constexprs=slope_constexprs,
    baseline=slope_baseline,
    candidates=slope_candidates,
)

SPEC = OperatorSpec(
    name="ratio_kl",
    summary="ratio = exp(logprob - old), kl = exp(ref - logprob) - 1 - (ref - logprob)",
    kernels=(FORWARD, BACKWARD),
    reference="rltune_kernels.ratio_kl.reference",
    tolerance_ulp={"bf16": 4, "fp16": 4, "fp32": 4},
)
