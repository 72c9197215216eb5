"""GRPO's loss over tokens, forward and backward.

Formula, in fp64, of every token whose mask holds, with p its log-probability::

    ratio = exp(p - old)
    surrogate = -min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A)
    d = ref - p,   kl = exp(d) - d - 1                          k3; 0 without ref
    policy_loss, kl = average of surrogate, average of kl
    loss = policy_loss + beta * kl                              policy_loss if beta is 0

with the average over tokens one of::

    0 token_mean       sum of all tokens / number of all tokens
    1 sequence_mean    mean, over sequences that have a token, of their means over tokens
    2 constant         sum of all tokens / (num_sequences * max_length)

Gradient of the loss in p, times upstream and the token's weight in the average::

    -(ratio * A if ratio * A <= clip(ratio) * A else 0) - beta * (exp(d) - 1)

which is torch's, on ties and at the bounds too. A masked token is not read: whatever its
log-probabilities and advantage hold, it has no part and its gradient is +0.0. Without any
token the results are +0.0. An advantage of 0 gives a surrogate of 0 whatever the ratio. NaN in
a token that counts reaches the loss. For abs(d) below 1/4, kl is its series, which cancels
nothing. The rules, and what trainers call them, are in docs/adr/0016-grpo-rules.md.

Axes: ``num_sequences`` (dynamic); ``length_bucket`` (structural), a size class that chooses a
launch and no byte: the next power of two, from 128 to 65536, of ``sequence_length``, which is
passed at run time, as are ``aggregation``, ``max_length``, ``has_ref`` and the strides
``advantage_row`` and ``advantage_token``: 1 and 0 for an advantage a sequence,
sequence_length and 1 for one a token. ``has_ref`` is 0 without ref, and in ``backward`` also for
a beta of 0.
Tensors: logprob, dlogprob [num_sequences, sequence_length] of the element type; old and ref
fp32, mask u8 of the same shape; advantages [num_advantages] fp32; partial [num_sequences, 3]
fp64: sums of surrogate and kl and number of tokens; totals [3] fp64: policy_loss, kl and
1 / divisor; loss, policy_loss, kl and dloss [] fp32; all contiguous. ``forward`` writes
partial, ``fold`` totals and the three results, ``backward`` dlogprob.
Limits: sequences below 2**31 and up to 2**23 tokens long; offsets are 64-bit. ratio's bounds
and beta are fp32. A gradient in bf16 or fp16 is rounded to fp32 first.
Source: Z. Shao et al., "DeepSeekMath", arXiv:2402.03300; token mean and two clips from Q. Yu
et al., "DAPO", arXiv:2503.14476; the constant from Z. Liu et al., "Understanding R1-Zero-Like
Training", arXiv:2503.20783; k3 from J. Schulman, http://joschu.net/blog/kl-approx.html.
Determinism: no atomics. Lane l of 128 adds tokens l, l + 128, … of a sequence and the lanes are
folded by halves; ``fold`` adds sequences likewise. So a sequence's sums depend on no other
sequence and on no padding to its right. UNROLL, BLOCK_T and warps are safe.
Errors are counted in the last place of the mean of magnitudes, as a sum may cancel.
"""

from __future__ import annotations

from rltune.core.operator import KernelSpec, OperatorSpec, Scalar, Tensor
from rltune_kernels.grpo_loss.candidates import (
    fold_candidates,
    fold_grid,
    lane_baseline,
    lane_constexprs,
    lane_control,
    sequence_candidates,
    sequence_grid,
    token_axes,
    token_baseline,
    token_candidates,
    token_constexprs,
    token_grid,
)

AGGREGATIONS = ("token_mean", "sequence_mean", "constant")
"""Names of the averages; a launch takes the index."""

DEFAULT_CLIP = 0.2
"""How far a ratio may leave 1 on either side if the caller says nothing."""

MAX_LENGTH = 2**23
"""Longest sequence: programs along the second axis of a grid number at most 65535."""

_TOKENS = ("num_sequences", "sequence_length")
_INPUTS = (
    Tensor(name="logprob_ptr", axes=_TOKENS),
    Tensor(name="old_ptr", axes=_TOKENS, dtype="fp32"),
    Tensor(name="ref_ptr", axes=_TOKENS, dtype="fp32"),
    Tensor(name="advantages_ptr", axes=("num_advantages",), dtype="fp32"),
    Tensor(name="mask_ptr", axes=_TOKENS, dtype="u8", values="derived"),
)
_PARTIAL = ("num_sequences", 3)
_LAYOUT = tuple(
    Scalar(name=name, dtype="i64", source=name)
    for name in ("sequence_length", "advantage_row", "advantage_token", "has_ref")
)
_AGGREGATION = Scalar(name="aggregation", dtype="i64", source="aggregation")
_BOUNDS = (
    Scalar(name="ratio_low", dtype="fp32", default=0.75),
    Scalar(name="ratio_high", dtype="fp32", default=1.25),
)
_BETA = Scalar(name="beta", dtype="fp32", default=0.0625)

FORWARD = KernelSpec(
    operator="grpo_loss",
    name="forward",
    phase="forward",
    jit="rltune_kernels.grpo_loss.kernel:_grpo_loss_fwd_kernel",
    binder="rltune_kernels.grpo_loss.op:launch_forward",
    prepare="rltune_kernels.grpo_loss.reference:prepare_forward",
    structural_axes=("length_bucket",),
    dynamic_axis="num_sequences",
    arguments=(
        *_INPUTS,
        Tensor(name="partial_ptr", axes=_PARTIAL, dtype="fp64", role="out"),
        *_LAYOUT,
        *_BOUNDS,
    ),
    grid=sequence_grid,
    constexprs=lane_constexprs,
    baseline=lane_baseline,
    candidates=sequence_candidates,
    control=lane_control,
    derived_axes=token_axes,
)

FOLD = KernelSpec(
    operator="grpo_loss",
    name="fold",
    phase="forward",
    jit="rltune_kernels.grpo_loss.kernel:_grpo_loss_fold_kernel",
    binder="rltune_kernels.grpo_loss.op:launch_fold",
    prepare="rltune_kernels.grpo_loss.reference:prepare_fold",
    structural_axes=("length_bucket",),
    dynamic_axis="num_sequences",
    arguments=(
        Tensor(name="partial_ptr", axes=_PARTIAL, dtype="fp64"),
        Tensor(name="totals_ptr", axes=(3,), dtype="fp64", role="out"),
        Tensor(name="loss_ptr", axes=(), dtype="fp32", role="out"),
        Tensor(name="policy_loss_ptr", axes=(), dtype="fp32", role="out"),
        Tensor(name="kl_ptr", axes=(), dtype="fp32", role="out"),
        Scalar(name="num_sequences", dtype="i64", source="num_sequences"),
        _AGGREGATION,
        Scalar(name="max_length", dtype="i64", source="max_length"),
        _BETA,
    ),
    grid=fold_grid,
    constexprs=lane_constexprs,
    baseline=lane_baseline,
    candidates=fold_candidates,
    control=lane_control,
    derived_axes=token_axes,
)

BACKWARD = KernelSpec(
    operator="grpo_loss",
    name="backward",
    phase="backward",
    jit="rltune_kernels.grpo_loss.kernel:_grpo_loss_bwd_kernel",
    binder="rltune_kernels.grpo_loss.op:launch_backward",
    prepare="rltune_kernels.grpo_loss.reference:prepare_backward",
    structural_axes=("length_bucket",),
    dynamic_axis="num_sequences",
    arguments=(
        *_INPUTS,
        Tensor(name="partial_ptr", axes=_PARTIAL, dtype="fp64", values="derived"),
        Tensor(name="totals_ptr", axes=(3,), dtype="fp64", values="derived"),
        Tensor(name="dloss_ptr", axes=(), dtype="fp32", values="derived"),
        Tensor(name="dlogprob_ptr", axes=_TOKENS, role="out"),
        *_LAYOUT,
        _AGGREGATION,
        *_BOUNDS,
        _BETA,
    ),
    grid=token_grid,
    constexprs=token_constexprs,
    baseline=token_baseline,
    candidates=token_candidates,
    derived_axes=token_axes,
)

SPEC = OperatorSpec(
    name="grpo_loss",
    summary="average of -min(ratio * A, clip(ratio) * A) + beta * kl over the tokens of a mask",
    kernels=(FORWARD, FOLD, BACKWARD),
    reference="rltune_kernels.grpo_loss.reference",
    tolerance_ulp={"bf16": 1, "fp16": 1, "fp32": 1},
)
