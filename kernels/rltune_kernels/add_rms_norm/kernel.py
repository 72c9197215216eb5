"""Triton kernels of the fused residual add and RMSNorm: forward and dx."""
# ruff: noqa: PLR0917 - a kernel takes what it takes, by position

import triton
import triton.language as tl

from rltune_kernels._math import (
    load_wide,
    norm_slope,
    row_step,
    rstd_of_rows,
    store_rounded,
    widen,
)


@triton.jit(do_not_specialize=["num_tokens", "eps"])
def _add_rms_norm_fwd_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    y_ptr,
    residual_out_ptr,
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
        b_sum = load_wide(x_ptr, o_tile, m_tile) + load_wide(residual_ptr, o_tile, m_tile)
        # what is normed is the stored sum, so that the fused bytes are those of two calls
        b_x = widen(b_sum.to(x_ptr.dtype.element_ty))
        b_rstd = rstd_of_rows(b_x, eps, N)  # [ROWS]
        store_rounded(y_ptr, o_tile, b_x * b_rstd[:, None] * b_weight, m_tile)
        store_rounded(residual_out_ptr, o_tile, b_x, m_tile)
        tl.store(rstd_ptr + o_row, b_rstd, mask=m_row)


@triton.jit(do_not_specialize=["num_tokens"])
def _add_rms_norm_dx_kernel(
    dy_ptr,
    dresidual_out_ptr,
    residual_out_ptr,
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
        b_x = load_wide(residual_out_ptr, o_tile, m_tile)
        b_dy = load_wide(dy_ptr, o_tile, m_tile)
        b_direct = load_wide(dresidual_out_ptr, o_tile, m_tile)
        b_rstd = tl.load(rstd_ptr + o_row, mask=m_row, other=0.0)  # [ROWS]
        b_slope = norm_slope(b_dy, b_x, b_weight, b_rstd, N)
        store_rounded(dx_ptr, o_tile, tl.fma(b_slope, b_rstd[:, None], b_direct), m_tile)
