"""Triton kernel of ``grpo_norm``: one pass for the mean, one for the deviation, one to write."""
# ruff: noqa: PLR0917 - a kernel takes what it takes, by position

import triton
import triton.language as tl

from rltune_kernels._double import fold_lanes, load_double, store_double


@triton.jit
def _members(rewards_ptr, mask_ptr, i_first, i_end, has_mask, LANES: tl.constexpr):
    """Offsets, which are members, which of those count, and rewards, +0.0 for all others."""
    o_reward = i_first + tl.arange(0, LANES)  # [LANES]
    m_member = o_reward < i_end
    b_mask = tl.load(mask_ptr + o_reward, mask=m_member & (has_mask != 0), other=1)
    b_reward = load_double(rewards_ptr, o_reward, m_member & (b_mask != 0))
    m_counts = m_member & (b_mask != 0) & (b_reward == b_reward)  # noqa: PLR0124 - no NaN
    return o_reward, m_member, m_counts, tl.where(m_counts, b_reward, 0.0)


@triton.jit(
    do_not_specialize=[
        "num_groups",
        "num_rewards",
        "group_size",
        "has_mask",
        "scale_by_std",
        "eps",
    ]
)
def _grpo_norm_fwd_kernel(
    rewards_ptr,
    mask_ptr,
    offsets_ptr,
    advantages_ptr,
    num_groups: tl.int64,
    num_rewards: tl.int64,
    group_size: tl.int64,
    has_mask: tl.int64,
    scale_by_std: tl.int64,
    eps: tl.float32,
    LANES: tl.constexpr,
    HALVINGS: tl.constexpr,
    GROUPS: tl.constexpr,
):
    i_program = tl.program_id(0).to(tl.int64)
    i_last = tl.minimum((i_program + 1) * GROUPS, num_groups)
    for i_group in tl.range(i_program * GROUPS, i_last):
        i_start = i_group * group_size
        i_end = i_start + group_size
        if group_size == 0:
            i_start = tl.load(offsets_ptr + i_group)
            i_end = tl.load(offsets_ptr + i_group + 1)
        i_start = tl.maximum(i_start, 0)
        i_end = tl.minimum(i_end, num_rewards)
        b_count = tl.zeros([LANES], dtype=tl.float64)
        b_sum = tl.zeros([LANES], dtype=tl.float64)
        for i_first in tl.range(i_start, i_end, LANES):
            _, _, m_counts, b_reward = _members(
                rewards_ptr, mask_ptr, i_first, i_end, has_mask, LANES
            )
            b_count += m_counts.to(tl.float64)
            b_sum += b_reward
        b_count = fold_lanes(b_count, LANES, HALVINGS)  # [1]
        b_mean = fold_lanes(b_sum, LANES, HALVINGS) / tl.maximum(b_count, 1.0)
        b_squares = tl.zeros([LANES], dtype=tl.float64)
        for i_first in tl.range(i_start, i_end, LANES):
            _, _, m_counts, b_reward = _members(
                rewards_ptr, mask_ptr, i_first, i_end, has_mask, LANES
            )
            b_centred = tl.where(m_counts, b_reward - b_mean, 0.0)
            b_squares = tl.fma(b_centred, b_centred, b_squares)
        b_variance = fold_lanes(b_squares, LANES, HALVINGS) / tl.maximum(b_count - 1.0, 1.0)
        b_scale = tl.where(scale_by_std != 0, tl.sqrt(b_variance) + eps, 1.0)
        b_no_number = b_mean - b_mean  # NaN for a group with an infinite reward, else +0.0
        for i_first in tl.range(i_start, i_end, LANES):
            o_reward, m_member, m_counts, b_reward = _members(
                rewards_ptr, mask_ptr, i_first, i_end, has_mask, LANES
            )
            b_centred = tl.where(m_counts, b_reward - b_mean + b_no_number, 0.0)
            # without deviation and eps, 0 / 0 is no advantage either
            b_advantage = tl.where(b_centred == 0.0, 0.0, b_centred / b_scale)
            store_double(advantages_ptr, o_reward, b_advantage, m_member)
