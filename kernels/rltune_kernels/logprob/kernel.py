"""Triton kernels of logprob: whole rows, the parts of a vocabulary shard, their merge, dlogits."""
# ruff: noqa: PLR0917 - a kernel takes what it takes, by position

import triton
import triton.language as tl

from rltune_kernels._math import store_rounded
from rltune_kernels._softmax import (
    binary_scale,
    fold_neighbours,
    log_share,
    lowest,
    row_parts,
    store_slope,
)


@triton.jit(do_not_specialize=["ignore_index", "inverse_temperature"])
def _logprob_fwd_kernel(
    logits_ptr,
    ids_ptr,
    logprob_ptr,
    row_max_ptr,
    row_sum_ptr,
    ignore_index: tl.int64,
    inverse_temperature: tl.float32,
    P: tl.constexpr,
    V: tl.constexpr,
    SEGMENT: tl.constexpr,
    SEGMENTS: tl.constexpr,
    FOLDS: tl.constexpr,
    WHOLE: tl.constexpr,
    STEPS: tl.constexpr,
    LANES: tl.constexpr,
    HALVINGS: tl.constexpr,
    STAGES: tl.constexpr,
):
    i_row = tl.program_id(0).to(tl.int64)
    o_row = i_row + tl.arange(0, 1)  # [1]
    row_ptr = logits_ptr + i_row * P
    id_ = tl.load(ids_ptr + i_row)
    if id_ == ignore_index:
        tl.store(logprob_ptr + i_row, 0.0)
        tl.store(row_max_ptr + i_row, 0.0)
        tl.store(row_sum_ptr + i_row, 1.0)
    else:
        scale = binary_scale(inverse_temperature)
        b_max, b_sum = row_parts(
            row_ptr, scale, V, SEGMENT, SEGMENTS, FOLDS, WHOLE, STEPS, LANES, HALVINGS, STAGES
        )
        inside = (id_ >= 0) & (id_ < V)
        b_selected = tl.load(row_ptr + tl.where(inside, id_, 0) + tl.arange(0, 1)).to(tl.float32)
        # an id that names no column has no logarithm, and its row no gradient
        b_sum = tl.where(inside, b_sum, float("nan"))
        store_rounded(
            logprob_ptr, o_row, log_share(b_selected, b_max, b_sum, inverse_temperature), None
        )
        tl.store(row_max_ptr + o_row, b_max)
        tl.store(row_sum_ptr + o_row, b_sum)


@triton.jit(do_not_specialize=["num_tokens", "vocab_start", "ignore_index", "inverse_temperature"])
def _logprob_shard_kernel(
    logits_ptr,
    ids_ptr,
    parts_ptr,
    num_tokens: tl.int64,
    vocab_start: tl.int64,
    ignore_index: tl.int64,
    inverse_temperature: tl.float32,
    P: tl.constexpr,
    V: tl.constexpr,
    SEGMENT: tl.constexpr,
    SEGMENTS: tl.constexpr,
    FOLDS: tl.constexpr,
    WHOLE: tl.constexpr,
    STEPS: tl.constexpr,
    LANES: tl.constexpr,
    HALVINGS: tl.constexpr,
    STAGES: tl.constexpr,
):
    i_row = tl.program_id(0).to(tl.int64)
    o_row = i_row + tl.arange(0, 1)  # [1]
    row_ptr = logits_ptr + i_row * P
    id_ = tl.load(ids_ptr + i_row)
    if id_ == ignore_index:
        tl.store(parts_ptr + i_row, 0.0)
        tl.store(parts_ptr + num_tokens + i_row, 1.0)
        tl.store(parts_ptr + 2 * num_tokens + i_row, 0.0)
    else:
        scale = binary_scale(inverse_temperature)
        b_max, b_sum = row_parts(
            row_ptr, scale, V, SEGMENT, SEGMENTS, FOLDS, WHOLE, STEPS, LANES, HALVINGS, STAGES
        )
        column = id_ - vocab_start
        inside = (column >= 0) & (column < V)
        o_column = tl.where(inside, column, 0) + tl.arange(0, 1)
        b_selected = tl.load(row_ptr + o_column).to(tl.float32)
        tl.store(parts_ptr + o_row, b_max)
        tl.store(parts_ptr + num_tokens + o_row, b_sum)
        tl.store(parts_ptr + 2 * num_tokens + o_row, tl.where(inside, b_selected, 0.0))


@triton.jit(
    do_not_specialize=[
        "num_tokens",
        "vocab_size",
        "shard_size",
        "ignore_index",
        "inverse_temperature",
    ]
)
def _logprob_merge_kernel(
    parts_ptr,
    ids_ptr,
    logprob_ptr,
    row_max_ptr,
    row_sum_ptr,
    num_tokens: tl.int64,
    vocab_size: tl.int64,
    shard_size: tl.int64,
    ignore_index: tl.int64,
    inverse_temperature: tl.float32,
    SHARDS: tl.constexpr,
    FOLDS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    o_row = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    m_row = o_row < num_tokens
    ids = tl.load(ids_ptr + o_row, mask=m_row, other=0)
    inside = (ids >= 0) & (ids < vocab_size)
    ignored = ids == ignore_index
    o_part = tl.arange(0, SHARDS)[None, :] * (3 * num_tokens) + o_row[:, None]  # [BLOCK, SHARDS]
    b_max = tl.load(parts_ptr + o_part, mask=m_row[:, None], other=lowest())
    b_sum = tl.load(parts_ptr + num_tokens + o_part, mask=m_row[:, None], other=1.0)
    b_max, b_sum = fold_neighbours(
        b_max, b_sum, binary_scale(inverse_temperature), BLOCK, SHARDS, FOLDS
    )
    shard = tl.where(inside, ids, 0) // shard_size
    o_selected = (3 * shard + 2) * num_tokens + o_row
    b_selected = tl.load(parts_ptr + o_selected, mask=m_row & inside, other=0.0)
    b_sum = tl.where(inside, b_sum, float("nan"))
    b_logprob = log_share(b_selected, b_max, b_sum, inverse_temperature)
    store_rounded(logprob_ptr, o_row, tl.where(ignored, 0.0, b_logprob), m_row)
    tl.store(row_max_ptr + o_row, tl.where(ignored, 0.0, b_max), mask=m_row)
    tl.store(row_sum_ptr + o_row, tl.where(ignored, 1.0, b_sum), mask=m_row)


@triton.jit(do_not_specialize=["vocab_start", "ignore_index", "inverse_temperature"])
def _logprob_bwd_kernel(
    dlogprob_ptr,
    logits_ptr,
    ids_ptr,
    row_max_ptr,
    row_sum_ptr,
    dlogits_ptr,
    vocab_start: tl.int64,
    ignore_index: tl.int64,
    inverse_temperature: tl.float32,
    P: tl.constexpr,
    V: tl.constexpr,
    BLOCK_V: tl.constexpr,
):
    i_row = tl.program_id(0).to(tl.int64)
    id_ = tl.load(ids_ptr + i_row)
    slope = tl.load(dlogprob_ptr + i_row) * inverse_temperature
    store_slope(
        logits_ptr,
        dlogits_ptr,
        row_max_ptr,
        row_sum_ptr,
        id_ - vocab_start,
        (id_ == ignore_index) | (slope == 0.0),
        slope,
        binary_scale(inverse_temperature),
        P,
        V,
        BLOCK_V,
    )
