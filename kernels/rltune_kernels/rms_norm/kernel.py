"""Triton kernels of RMSNorm: forward, dx, and dw as a fold in two steps."""
# ruff: noqa: PLR0917 - a kernel takes what it takes, by position

import triton
import triton.language as tl

from rltune_kernels._math import (
    fold_rows,
    load_wide,
    norm_slope,
    row_step,
    rstd_of_rows,
    store_rounded,
)


@triton.jit(do_not_specialize=["num_tokens", "eps"])
def _rms_norm_fwd_kernel(
    x_ptr,
    weight_ptr,
    y_ptr,
    rstd_ptr,
    num_tokens: tl.int64,
    eps: tl.float32,
    N: tl.constexpr,
    BLOCK_N: tl.constexpr,
    ROWS: tl.constexpr,
    STEPS: tl.constexpr,
    STAGES: tl.constexpr,
):
    o_col = tl.arange(0, BLOCK_N)  # [BLOCK_N]
    m_col = o_col < N
    b_weight = load_wide(weight_ptr, o_col, m_col)[None, :]
    for i_step in tl.range(0, STEPS, num_stages=STAGES):
        o_row, m_row, o_tile, m_tile = row_step(i_step, num_tokens, o_col, m_col, ROWS, STEPS, N)
        b_x = load_wide(x_ptr, o_tile, m_tile)
        b_rstd = rstd_of_rows(b_x, eps, N)  # [ROWS]
        store_rounded(y_ptr, o_tile, b_x * b_rstd[:, None] * b_weight, m_tile)
        tl.store(rstd_ptr + o_row, b_rstd, mask=m_row)


@triton.jit(do_not_specialize=["num_tokens"])
def _rms_norm_dx_kernel(
    dy_ptr,
    x_ptr,
    weight_ptr,
    rstd_ptr,
    dx_ptr,
    num_tokens: tl.int64,
    N: tl.constexpr,
    BLOCK_N: tl.constexpr,
    ROWS: tl.constexpr,
    STEPS: tl.constexpr,
    STAGES: tl.constexpr,
):
    o_col = tl.arange(0, BLOCK_N)  # [BLOCK_N]
    m_col = o_col < N
    b_weight = load_wide(weight_ptr, o_col, m_col)[None, :]
    for i_step in tl.range(0, STEPS, num_stages=STAGES):
        o_row, m_row, o_tile, m_tile = row_step(i_step, num_tokens, o_col, m_col, ROWS, STEPS, N)
        b_x = load_wide(x_ptr, o_tile, m_tile)
        b_dy = load_wide(dy_ptr, o_tile, m_tile)
        b_rstd = tl.load(rstd_ptr + o_row, mask=m_row, other=0.0)  # [ROWS]
        b_slope = norm_slope(b_dy, b_x, b_weight, b_rstd, N)
        store_rounded(dx_ptr, o_tile, b_slope * b_rstd[:, None], m_tile)


@triton.jit(do_not_specialize=["num_tokens"])
def _rms_norm_dw_partial_kernel(
    dy_ptr,
    x_ptr,
    rstd_ptr,
    partial_ptr,
    num_tokens: tl.int64,
    N: tl.constexpr,
    FOLD_ROWS: tl.constexpr,
    LANES: tl.constexpr,
    HALVINGS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    STAGES: tl.constexpr,
):
    i_block = tl.program_id(0).to(tl.int64)
    o_col = tl.program_id(1).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    m_col = o_col < N
    o_lane = tl.arange(0, LANES)  # [LANES]
    b_acc = tl.zeros([LANES, BLOCK_N], dtype=partial_ptr.dtype.element_ty)
    for i_step in tl.range(0, FOLD_ROWS // LANES, num_stages=STAGES):
        o_row = i_block * FOLD_ROWS + i_step * LANES + o_lane
        m_row = o_row < num_tokens
        o_tile = o_row[:, None] * N + o_col[None, :]  # [LANES, BLOCK_N]
        m_tile = m_row[:, None] & m_col[None, :]
        b_x = load_wide(x_ptr, o_tile, m_tile)
        b_dy = load_wide(dy_ptr, o_tile, m_tile)
        b_rstd = tl.load(rstd_ptr + o_row, mask=m_row, other=0.0)
        b_acc = tl.fma(b_dy, b_x * b_rstd[:, None], b_acc)
    b_partial = fold_rows(b_acc, LANES, HALVINGS)  # [BLOCK_N]
    tl.store(partial_ptr + i_block * N + o_col, b_partial, mask=m_col)


@triton.jit(do_not_specialize=["num_blocks"])
def _rms_norm_dw_fold_kernel(
    partial_ptr,
    dw_ptr,
    num_blocks: tl.int64,
    N: tl.constexpr,
    LANES: tl.constexpr,
    HALVINGS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    STAGES: tl.constexpr,
):
    o_col = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N]
    m_col = o_col < N
    o_lane = tl.arange(0, LANES)  # [LANES]
    b_acc = tl.zeros([LANES, BLOCK_N], dtype=partial_ptr.dtype.element_ty)
    for i_first in tl.range(0, num_blocks, LANES, num_stages=STAGES):
        o_block = i_first + o_lane
        m_tile = (o_block < num_blocks)[:, None] & m_col[None, :]
        o_tile = o_block[:, None] * N + o_col[None, :]  # [LANES, BLOCK_N]
        b_acc += tl.load(partial_ptr + o_tile, mask=m_tile, other=0.0)
    b_dw = fold_rows(b_acc, LANES, HALVINGS)  # [BLOCK_N]
    store_rounded(dw_ptr, o_col, b_dw, m_col)
