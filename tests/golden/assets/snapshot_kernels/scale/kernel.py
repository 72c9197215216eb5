"""y = exp(x) * GAIN."""

import triton
import triton.language as tl

from snapshot_kernels.math import exp

GAIN: tl.constexpr = tl.constexpr(2)


@triton.jit
def _scaled(x):
    return exp(x) * GAIN


@triton.jit(do_not_specialize=["num_tokens"])
def _scale_fwd_kernel(x_ptr, y_ptr, num_tokens, N: tl.constexpr, BLOCK: tl.constexpr = 1024):  # noqa: N803
    """One program scales BLOCK elements."""
    i_block = tl.program_id(0).to(tl.int64)
    o_item = i_block * BLOCK + tl.arange(0, BLOCK)
    m_item = o_item < num_tokens * N
    b_x = tl.load(x_ptr + o_item, mask=m_item, other=0.0).to(tl.float32)
    tl.store(y_ptr + o_item, _scaled(b_x).to(y_ptr.dtype.element_ty), mask=m_item)
