"""Triton kernel of RoPE: rows of token and head, fp32 inside, one rounding on store."""
# ruff: noqa: PLR0917 - a kernel takes what it takes, by position

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["num_tokens", "max_positions"])
def _rope_kernel(
    x_ptr,
    positions_ptr,
    cos_ptr,
    sin_ptr,
    y_ptr,
    num_tokens: tl.int64,
    max_positions: tl.int64,
    H: tl.constexpr,
    D: tl.constexpr,
    PAIRS: tl.constexpr,
    SIGN: tl.constexpr,
    BLOCK_PAIRS: tl.constexpr,
    BLOCK_REST: tl.constexpr,
    ROWS: tl.constexpr,
):
    o_row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)  # [ROWS]
    m_row = o_row < num_tokens * H
    b_position = tl.load(positions_ptr + o_row // H, mask=m_row, other=-1)
    m_inside = (b_position >= 0) & (b_position < max_positions)
    b_position = tl.where(m_inside, b_position, 0)
    o_pair = tl.arange(0, BLOCK_PAIRS)  # [BLOCK_PAIRS]
    m_pair = o_pair < PAIRS
    # the caches hold PAIRS columns: the block's width is padding and no part of an offset
    o_angle = b_position[:, None] * PAIRS + o_pair[None, :]  # [ROWS, BLOCK_PAIRS]
    m_angle = m_inside[:, None] & m_pair[None, :]
    b_cos = tl.load(cos_ptr + o_angle, mask=m_angle, other=0.0)
    b_sin = tl.load(sin_ptr + o_angle, mask=m_angle, other=0.0) * SIGN
    o_first = o_row[:, None] * D + o_pair[None, :]
    m_tile = m_row[:, None] & m_pair[None, :]
    b_first = tl.load(x_ptr + o_first, mask=m_tile, other=0.0).to(tl.float32)
    b_second = tl.load(x_ptr + o_first + PAIRS, mask=m_tile, other=0.0).to(tl.float32)
    b_y_first = tl.fma(b_first, b_cos, b_second * (b_sin * -1.0))
    b_y_second = tl.fma(b_second, b_cos, b_first * b_sin)
    # not left to the zeros of cos and sin: their product with an infinity is NaN
    b_y_first = tl.where(m_inside[:, None], b_y_first, 0.0)
    b_y_second = tl.where(m_inside[:, None], b_y_second, 0.0)
    tl.store(y_ptr + o_first, b_y_first.to(y_ptr.dtype.element_ty), mask=m_tile)
    tl.store(y_ptr + o_first + PAIRS, b_y_second.to(y_ptr.dtype.element_ty), mask=m_tile)
    if 2 * PAIRS < D:
        o_col = 2 * PAIRS + tl.arange(0, BLOCK_REST)  # [BLOCK_REST]
        o_rest = o_row[:, None] * D + o_col[None, :]
        m_rest = m_row[:, None] & (o_col < D)[None, :]
        b_rest = tl.load(x_ptr + o_rest, mask=m_rest, other=0.0)  # no arithmetic: bits survive
        tl.store(y_ptr + o_rest, b_rest, mask=m_rest)
