"""Triton kernels of the embedding: a gather, and its gradient as ordered folds."""
# ruff: noqa: PLR0917 - a kernel takes what it takes, by position

import triton
import triton.language as tl

from rltune_kernels._math import load_wide, store_rounded, widen


@triton.jit(do_not_specialize=["num_tokens"])
def _embedding_fwd_kernel(
    ids_ptr,
    weight_ptr,
    y_ptr,
    num_tokens: tl.int64,
    V: tl.constexpr,
    N: tl.constexpr,
    BLOCK_N: tl.constexpr,
    ROWS: tl.constexpr,
):
    o_row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)  # [ROWS]
    m_row = o_row < num_tokens
    b_id = tl.load(ids_ptr + o_row, mask=m_row, other=-1)
    m_id = (b_id >= 0) & (b_id < V)
    b_id = tl.where(m_id, b_id, 0)
    o_col = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    m_col = o_col < N
    b_tile = tl.load(
        weight_ptr + b_id[:, None] * N + o_col[None, :],
        mask=m_id[:, None] & m_col[None, :],
        other=0.0,
    )  # [ROWS, BLOCK_N]
    o_tile = o_row[:, None] * N + o_col[None, :]
    tl.store(y_ptr + o_tile, b_tile, mask=m_row[:, None] & m_col[None, :])


@triton.jit(do_not_specialize=["num_tokens"])
def _embedding_bwd_kernel(
    sorted_ids_ptr,
    order_ptr,
    segment_ends_ptr,
    dy_ptr,
    dweight_ptr,
    num_tokens: tl.int64,
    V: tl.constexpr,
    N: tl.constexpr,
    BLOCK_H: tl.constexpr,
    UNROLL: tl.constexpr,
):
    i_start = tl.program_id(0).to(tl.int64)
    i_id = tl.load(sorted_ids_ptr + i_start)
    i_before = tl.load(sorted_ids_ptr + i_start - 1, mask=i_start > 0, other=-1)
    starts = (i_start == 0) | (i_before != i_id)
    if starts & (i_id >= 0) & (i_id < V):
        o_col = tl.program_id(1).to(tl.int64) * BLOCK_H + tl.arange(0, BLOCK_H)  # [BLOCK_H]
        m_col = o_col < N
        i_end = tl.minimum(tl.load(segment_ends_ptr + i_start), num_tokens)
        b_acc = widen(tl.zeros([BLOCK_H], dtype=dy_ptr.dtype.element_ty))
        for i_first in tl.range(i_start, i_end, UNROLL):
            for i_ahead in tl.static_range(UNROLL):
                i_position = i_first + i_ahead
                inside = i_position < i_end
                i_row = tl.load(order_ptr + i_position, mask=inside, other=0)
                # a row past the end adds +0.0, which changes no sum that started at +0.0
                b_acc += load_wide(dy_ptr, i_row * N + o_col, m_col & inside)
        store_rounded(dweight_ptr, i_id * N + o_col, b_acc, m_col)
