"""Triton kernel of RoPE: rows of token and head, one rounding on store."""
# ruff: noqa: PLR0917 - a kernel takes what it takes, by position

import triton
import triton.language as tl

from rltune_kernels._math import load_wide, store_rounded


@triton.jit
def _rotate_rows(
    x_ptr,
    positions_ptr,
    cos_ptr,
    sin_ptr,
    y_ptr,
    i_program,
    num_tokens,
    num_positions,
    max_positions,
    H: tl.constexpr,
    D: tl.constexpr,
    PAIRS: tl.constexpr,
    SIGN: tl.constexpr,
    BLOCK_PAIRS: tl.constexpr,
    BLOCK_REST: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Rows ``i_program`` * ROWS and on of x [num_tokens, H, D]."""
    o_row = i_program * ROWS + tl.arange(0, ROWS)  # [ROWS]
    m_row = o_row < num_tokens * H
    # both below 2**31, where a remainder is cheap
    o_position = (o_row // H).to(tl.int32) % num_positions.to(tl.int32)
    b_position = tl.load(positions_ptr + o_position, mask=m_row, other=-1)
    m_inside = (b_position >= 0) & (b_position < max_positions)
    b_position = tl.where(m_inside, b_position, 0)
    o_pair = tl.arange(0, BLOCK_PAIRS)  # [BLOCK_PAIRS]
    m_pair = o_pair < PAIRS
    # the caches hold PAIRS columns: the block's width is padding and no part of an offset
    o_angle = b_position[:, None] * PAIRS + o_pair[None, :]  # [ROWS, BLOCK_PAIRS]
    m_angle = m_inside[:, None] & m_pair[None, :]
    o_first = o_row[:, None] * D + o_pair[None, :]
    m_tile = m_row[:, None] & m_pair[None, :]
    b_first = load_wide(x_ptr, o_first, m_tile)
    b_second = load_wide(x_ptr, o_first + PAIRS, m_tile)
    b_cos = tl.load(cos_ptr + o_angle, mask=m_angle, other=0.0).to(b_first.dtype)
    b_sin = (tl.load(sin_ptr + o_angle, mask=m_angle, other=0.0) * SIGN).to(b_first.dtype)
    b_y_first = tl.fma(b_first, b_cos, b_second * (b_sin * -1.0))
    b_y_second = tl.fma(b_second, b_cos, b_first * b_sin)
    # not left to the zeros of cos and sin: their product with an infinity is NaN
    store_rounded(y_ptr, o_first, tl.where(m_inside[:, None], b_y_first, 0.0), m_tile)
    store_rounded(y_ptr, o_first + PAIRS, tl.where(m_inside[:, None], b_y_second, 0.0), m_tile)
    if 2 * PAIRS < D:
        o_col = 2 * PAIRS + tl.arange(0, BLOCK_REST)  # [BLOCK_REST]
        o_rest = o_row[:, None] * D + o_col[None, :]
        m_rest = m_row[:, None] & (o_col < D)[None, :]
        b_rest = tl.load(x_ptr + o_rest, mask=m_rest, other=0.0)  # no arithmetic: bits survive
        tl.store(y_ptr + o_rest, b_rest, mask=m_rest)


@triton.jit(do_not_specialize=["num_tokens", "num_positions", "max_positions"])
def _rope_kernel(
    q_ptr,
    k_ptr,
    positions_ptr,
    cos_ptr,
    sin_ptr,
    q_out_ptr,
    k_out_ptr,
    num_tokens: tl.int64,
    num_positions: tl.int64,
    max_positions: tl.int64,
    H_Q: tl.constexpr,
    H_K: tl.constexpr,
    D: tl.constexpr,
    PAIRS: tl.constexpr,
    SIGN: tl.constexpr,
    BLOCK_PAIRS: tl.constexpr,
    BLOCK_REST: tl.constexpr,
    ROWS: tl.constexpr,
):
    i_program = tl.program_id(0).to(tl.int64)
    programs_q = (num_tokens * H_Q + ROWS - 1) // ROWS  # the rest are those of k
    if i_program < programs_q:
        _rotate_rows(
            q_ptr,
            positions_ptr,
            cos_ptr,
            sin_ptr,
            q_out_ptr,
            i_program,
            num_tokens,
            num_positions,
            max_positions,
            H_Q,
            D,
            PAIRS,
            SIGN,
            BLOCK_PAIRS,
            BLOCK_REST,
            ROWS,
        )
    elif H_K > 0:  # a branch of its own, taken at compile time
        _rotate_rows(
            k_ptr,
            positions_ptr,
            cos_ptr,
            sin_ptr,
            k_out_ptr,
            i_program - programs_q,
            num_tokens,
            num_positions,
            max_positions,
            H_K,
            D,
            PAIRS,
            SIGN,
            BLOCK_PAIRS,
            BLOCK_REST,
            ROWS,
        )
