"""Triton kernels of ``grpo_loss``: sums of each sequence, their fold, and the gradient."""
# ruff: noqa: PLR0917 - a kernel takes what it takes, by position

import triton
import triton.language as tl

from rltune_kernels._double import fold_lanes, load_double, store_double


@triton.jit
def _policy_parts(
    logprob_ptr,
    old_ptr,
    advantages_ptr,
    o_flat,
    o_advantage,
    m_valid,
    ratio_low,
    ratio_high,
):
    """Log-probability, ratio * advantage, the same clipped, and whether the first counts.

    Tokens that do not count have log-probability, ratio and advantage of a zero.
    """
    b_logprob = load_double(logprob_ptr, o_flat, m_valid)
    b_ratio = tl.exp(b_logprob - load_double(old_ptr, o_flat, m_valid))
    b_advantage = load_double(advantages_ptr, o_advantage, m_valid)
    b_clipped = tl.where(b_ratio < ratio_low, ratio_low, b_ratio)
    b_clipped = tl.where(b_ratio > ratio_high, ratio_high, b_clipped)
    # an infinite ratio times no advantage is no loss
    b_plain = tl.where(b_advantage == 0.0, 0.0, b_ratio * b_advantage)
    b_clipped = b_clipped * b_advantage
    return b_logprob, b_plain, b_clipped, (b_plain > b_clipped) == 0


@triton.jit
def _divergence_parts(b_gap):
    """(exp(d) - d - 1, exp(d) - 1) of a gap d: the k3 divergence, and minus its slope."""
    b_series = b_gap * (1.0 / 3628800.0) + (1.0 / 362880.0)
    b_series = tl.fma(b_series, b_gap, 1.0 / 40320.0)
    b_series = tl.fma(b_series, b_gap, 1.0 / 5040.0)
    b_series = tl.fma(b_series, b_gap, 1.0 / 720.0)
    b_series = tl.fma(b_series, b_gap, 1.0 / 120.0)
    b_series = tl.fma(b_series, b_gap, 1.0 / 24.0)
    b_series = tl.fma(b_series, b_gap, 1.0 / 6.0)
    b_series = tl.fma(b_series, b_gap, 0.5)
    b_series = b_series * (b_gap * b_gap)
    b_exp = tl.exp(b_gap)
    # the exponential alone, where the rest is no last place of it and may be infinite
    b_large = tl.where(b_gap > 700.0, b_exp, b_exp - b_gap - 1.0)
    m_small = tl.abs(b_gap) < 0.25  # the series is exact to 2**-42 there, and cancels nothing
    b_divergence = tl.where(m_small, b_series, b_large)
    return b_divergence, tl.where(m_small, b_series + b_gap, b_exp - 1.0)


@triton.jit(
    do_not_specialize=[
        "sequence_length",
        "advantage_row",
        "advantage_token",
        "has_ref",
        "ratio_low",
        "ratio_high",
    ]
)
def _grpo_loss_fwd_kernel(
    logprob_ptr,
    old_ptr,
    ref_ptr,
    advantages_ptr,
    mask_ptr,
    partial_ptr,
    sequence_length: tl.int64,
    advantage_row: tl.int64,
    advantage_token: tl.int64,
    has_ref: tl.int64,
    ratio_low: tl.float32,
    ratio_high: tl.float32,
    LANES: tl.constexpr,
    HALVINGS: tl.constexpr,
    UNROLL: tl.constexpr,
):
    i_sequence = tl.program_id(0).to(tl.int64)
    o_lane = tl.arange(0, LANES)  # [LANES]
    b_policy = tl.zeros([LANES], dtype=tl.float64)
    b_kl = tl.zeros([LANES], dtype=tl.float64)
    b_count = tl.zeros([LANES], dtype=tl.float64)
    for i_first in tl.range(0, sequence_length, LANES * UNROLL):
        for i_ahead in tl.static_range(UNROLL):
            # a token past the end adds a zero, which changes no sum that started at +0.0
            o_token = i_first + i_ahead * LANES + o_lane
            m_token = o_token < sequence_length
            o_flat = i_sequence * sequence_length + o_token
            m_valid = m_token & (tl.load(mask_ptr + o_flat, mask=m_token, other=0) != 0)
            o_advantage = i_sequence * advantage_row + o_token * advantage_token
            b_logprob, b_plain, b_clipped, m_plain = _policy_parts(
                logprob_ptr,
                old_ptr,
                advantages_ptr,
                o_flat,
                o_advantage,
                m_valid,
                ratio_low,
                ratio_high,
            )
            b_policy -= tl.where(m_plain, b_plain, b_clipped)
            m_ref = m_valid & (has_ref != 0)
            b_gap = tl.where(m_ref, load_double(ref_ptr, o_flat, m_ref) - b_logprob, 0.0)
            b_kl += _divergence_parts(b_gap)[0]
            b_count += m_valid.to(tl.float64)
    o_partial = i_sequence * 3 + tl.arange(0, 1)  # [1]
    tl.store(partial_ptr + o_partial, fold_lanes(b_policy, LANES, HALVINGS))
    tl.store(partial_ptr + o_partial + 1, fold_lanes(b_kl, LANES, HALVINGS))
    tl.store(partial_ptr + o_partial + 2, fold_lanes(b_count, LANES, HALVINGS))


@triton.jit(do_not_specialize=["num_sequences", "aggregation", "max_length", "beta"])
def _grpo_loss_fold_kernel(
    partial_ptr,
    totals_ptr,
    loss_ptr,
    policy_loss_ptr,
    kl_ptr,
    num_sequences: tl.int64,
    aggregation: tl.int64,
    max_length: tl.int64,
    beta: tl.float32,
    LANES: tl.constexpr,
    HALVINGS: tl.constexpr,
    UNROLL: tl.constexpr,
):
    o_lane = tl.arange(0, LANES)  # [LANES]
    b_policy = tl.zeros([LANES], dtype=tl.float64)
    b_kl = tl.zeros([LANES], dtype=tl.float64)
    b_count = tl.zeros([LANES], dtype=tl.float64)
    for i_first in tl.range(0, num_sequences, LANES * UNROLL):
        for i_ahead in tl.static_range(UNROLL):
            o_sequence = i_first + i_ahead * LANES + o_lane
            m_sequence = o_sequence < num_sequences
            o_partial = o_sequence * 3
            b_tokens = tl.load(partial_ptr + o_partial + 2, mask=m_sequence, other=0.0)
            b_weight = tl.where(aggregation == 1, tl.maximum(b_tokens, 1.0), 1.0)
            b_policy += tl.load(partial_ptr + o_partial, mask=m_sequence, other=0.0) / b_weight
            b_kl += tl.load(partial_ptr + o_partial + 1, mask=m_sequence, other=0.0) / b_weight
            b_count += tl.where(aggregation == 1, tl.minimum(b_tokens, 1.0), b_tokens)
    b_count = fold_lanes(b_count, LANES, HALVINGS)  # [1]
    b_all = tl.full([1], 1.0, tl.float64) * num_sequences * max_length
    b_divisor = tl.where(aggregation == 2, b_all, tl.maximum(b_count, 1.0))
    b_policy = fold_lanes(b_policy, LANES, HALVINGS) / b_divisor
    b_kl = fold_lanes(b_kl, LANES, HALVINGS) / b_divisor
    b_loss = tl.where(beta != 0.0, tl.fma(b_kl, beta, b_policy), b_policy)
    o_one = tl.arange(0, 1)  # [1]
    tl.store(totals_ptr + o_one, b_policy)
    tl.store(totals_ptr + 1 + o_one, b_kl)
    tl.store(totals_ptr + 2 + o_one, 1.0 / b_divisor)
    store_double(loss_ptr, o_one, b_loss, o_one < 1)
    store_double(policy_loss_ptr, o_one, b_policy, o_one < 1)
    store_double(kl_ptr, o_one, b_kl, o_one < 1)


@triton.jit(
    do_not_specialize=[
        "sequence_length",
        "advantage_row",
        "advantage_token",
        "has_ref",
        "aggregation",
        "ratio_low",
        "ratio_high",
        "beta",
    ]
)
def _grpo_loss_bwd_kernel(
    logprob_ptr,
    old_ptr,
    ref_ptr,
    advantages_ptr,
    mask_ptr,
    partial_ptr,
    totals_ptr,
    dloss_ptr,
    dlogprob_ptr,
    sequence_length: tl.int64,
    advantage_row: tl.int64,
    advantage_token: tl.int64,
    has_ref: tl.int64,
    aggregation: tl.int64,
    ratio_low: tl.float32,
    ratio_high: tl.float32,
    beta: tl.float32,
    BLOCK_T: tl.constexpr,
):
    i_sequence = tl.program_id(0).to(tl.int64)
    o_token = tl.program_id(1).to(tl.int64) * BLOCK_T + tl.arange(0, BLOCK_T)  # [BLOCK_T]
    m_token = o_token < sequence_length
    o_flat = i_sequence * sequence_length + o_token
    m_valid = m_token & (tl.load(mask_ptr + o_flat, mask=m_token, other=0) != 0)
    o_advantage = i_sequence * advantage_row + o_token * advantage_token
    b_logprob, b_plain, _, m_plain = _policy_parts(
        logprob_ptr,
        old_ptr,
        advantages_ptr,
        o_flat,
        o_advantage,
        m_valid,
        ratio_low,
        ratio_high,
    )
    b_slope = tl.where(m_plain, b_plain, 0.0) * -1.0
    m_ref = m_valid & (has_ref != 0)  # 0 for a beta of 0 too, which an infinity would make NaN
    b_gap = tl.where(m_ref, load_double(ref_ptr, o_flat, m_ref) - b_logprob, 0.0)
    b_slope = tl.fma(_divergence_parts(b_gap)[1], beta * -1.0, b_slope)
    b_tokens = tl.maximum(tl.load(partial_ptr + i_sequence * 3 + 2), 1.0)
    b_weight = tl.load(totals_ptr + 2) / tl.where(aggregation == 1, b_tokens, 1.0)
    b_weight = b_weight * tl.load(dloss_ptr).to(tl.float64)
    # a zero times an upstream gradient that is no number is no gradient
    store_double(dlogprob_ptr, o_flat, tl.where(m_valid, b_slope * b_weight, 0.0), m_token)
