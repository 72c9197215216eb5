"""Triton kernels of SiLU: flat over all elements, fp32 inside, one rounding on store."""
# ruff: noqa: PLR0917 - a kernel takes what it takes, by position

import triton
import triton.language as tl

from rltune_kernels._math import logistic_parts


@triton.jit(do_not_specialize=["num_tokens"])
def _silu_fwd_kernel(
    x_ptr,
    y_ptr,
    num_tokens: tl.int64,
    N: tl.constexpr,
    EXACT: tl.constexpr,
    BLOCK: tl.constexpr,
    STEPS: tl.constexpr,
    STAGES: tl.constexpr,
):
    i_first = tl.program_id(0).to(tl.int64) * (BLOCK * STEPS)
    for i_step in tl.range(0, STEPS, num_stages=STAGES):
        o_flat = i_first + i_step * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
        m_flat = o_flat < num_tokens * N
        b_x = tl.load(x_ptr + o_flat, mask=m_flat, other=0.0).to(tl.float32)
        b_sigmoid, _, b_scale = logistic_parts(b_x, EXACT)
        b_y = b_x * b_sigmoid * b_scale
        tl.store(y_ptr + o_flat, b_y.to(y_ptr.dtype.element_ty), mask=m_flat)


@triton.jit(do_not_specialize=["num_tokens"])
def _silu_bwd_kernel(
    dy_ptr,
    x_ptr,
    dx_ptr,
    num_tokens: tl.int64,
    N: tl.constexpr,
    EXACT: tl.constexpr,
    BLOCK: tl.constexpr,
    STEPS: tl.constexpr,
    STAGES: tl.constexpr,
):
    i_first = tl.program_id(0).to(tl.int64) * (BLOCK * STEPS)
    for i_step in tl.range(0, STEPS, num_stages=STAGES):
        o_flat = i_first + i_step * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
        m_flat = o_flat < num_tokens * N
        b_x = tl.load(x_ptr + o_flat, mask=m_flat, other=0.0).to(tl.float32)
        b_dy = tl.load(dy_ptr + o_flat, mask=m_flat, other=0.0).to(tl.float32)
        b_sigmoid, b_rest, b_scale = logistic_parts(b_x, EXACT)
        b_slope = tl.fma(b_x, b_rest, 1.0) * b_sigmoid
        b_dx = b_dy * b_slope * b_scale
        tl.store(dx_ptr + o_flat, b_dx.to(dx_ptr.dtype.element_ty), mask=m_flat)
