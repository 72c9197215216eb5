"""Triton kernels of SiLU: flat over all elements, one rounding on store."""
# ruff: noqa: PLR0917 - a kernel takes what it takes, by position

import triton
import triton.language as tl

from rltune_kernels._math import flat_step, load_wide, logistic_parts, store_rounded


@triton.jit(do_not_specialize=["num_tokens"])
def _silu_fwd_kernel(
    x_ptr,
    y_ptr,
    num_tokens: tl.int64,
    N: tl.constexpr,
    BLOCK: tl.constexpr,
    STEPS: tl.constexpr,
    STAGES: tl.constexpr,
):
    for i_step in tl.range(0, STEPS, num_stages=STAGES):
        o_flat, m_flat = flat_step(i_step, num_tokens * N, BLOCK, STEPS)
        b_x = load_wide(x_ptr, o_flat, m_flat)
        b_sigmoid, _, b_scale = logistic_parts(b_x)
        store_rounded(y_ptr, o_flat, b_x * b_sigmoid * b_scale, m_flat)


@triton.jit(do_not_specialize=["num_tokens"])
def _silu_bwd_kernel(
    dy_ptr,
    x_ptr,
    dx_ptr,
    num_tokens: tl.int64,
    N: tl.constexpr,
    BLOCK: tl.constexpr,
    STEPS: tl.constexpr,
    STAGES: tl.constexpr,
):
    for i_step in tl.range(0, STEPS, num_stages=STAGES):
        o_flat, m_flat = flat_step(i_step, num_tokens * N, BLOCK, STEPS)
        b_x = load_wide(x_ptr, o_flat, m_flat)
        b_dy = load_wide(dy_ptr, o_flat, m_flat)
        b_sigmoid, b_rest, b_scale = logistic_parts(b_x)
        b_slope = tl.fma(b_x, b_rest, 1.0) * b_sigmoid
        store_rounded(dx_ptr, o_flat, b_dy * b_slope * b_scale, m_flat)
