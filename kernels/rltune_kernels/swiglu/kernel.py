"""Triton kernels of SwiGLU: flat over all elements, fp32 inside, one rounding on store."""
# ruff: noqa: PLR0917 - a kernel takes what it takes, by position

import triton
import triton.language as tl

from rltune_kernels._math import logistic_parts


@triton.jit(do_not_specialize=["num_tokens"])
def _swiglu_fwd_kernel(
    gate_ptr,
    up_ptr,
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
        b_gate = tl.load(gate_ptr + o_flat, mask=m_flat, other=0.0).to(tl.float32)
        b_up = tl.load(up_ptr + o_flat, mask=m_flat, other=0.0).to(tl.float32)
        b_sigmoid, _, b_scale = logistic_parts(b_gate, EXACT)
        # the scale comes last: a silu that underflows may still meet a large `up`
        b_y = b_gate * b_sigmoid * b_up * b_scale
        tl.store(y_ptr + o_flat, b_y.to(y_ptr.dtype.element_ty), mask=m_flat)


@triton.jit(do_not_specialize=["num_tokens"])
def _swiglu_bwd_kernel(
    dy_ptr,
    gate_ptr,
    up_ptr,
    dgate_ptr,
    dup_ptr,
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
        b_gate = tl.load(gate_ptr + o_flat, mask=m_flat, other=0.0).to(tl.float32)
        b_up = tl.load(up_ptr + o_flat, mask=m_flat, other=0.0).to(tl.float32)
        b_dy = tl.load(dy_ptr + o_flat, mask=m_flat, other=0.0).to(tl.float32)
        b_sigmoid, b_rest, b_scale = logistic_parts(b_gate, EXACT)
        b_slope = tl.fma(b_gate, b_rest, 1.0) * b_sigmoid
        b_dgate = b_dy * b_slope * b_up * b_scale
        b_dup = b_dy * (b_gate * b_sigmoid) * b_scale
        tl.store(dgate_ptr + o_flat, b_dgate.to(dgate_ptr.dtype.element_ty), mask=m_flat)
        tl.store(dup_ptr + o_flat, b_dup.to(dup_ptr.dtype.element_ty), mask=m_flat)
