"""What kernels share whose arithmetic is fp64 whatever the type of their elements."""

import triton
import triton.language as tl

from rltune_kernels._math import fold_rows


@triton.jit
def load_double(ptr, offsets, mask):
    """Elements at ``offsets`` in fp64, which is exact; zeros where masked, unread."""
    return tl.load(ptr + offsets, mask=mask, other=0.0).to(tl.float32).to(tl.float64)


@triton.jit
def store_double(ptr, offsets, value, mask):
    """Store fp64 values in the type of the buffer: to fp32, and from there to bf16 or fp16."""
    if ptr.dtype.element_ty == tl.float64:
        rounded = value
    else:
        rounded = value.to(tl.float32).to(ptr.dtype.element_ty)
    tl.store(ptr + offsets, rounded, mask=mask)


@triton.jit
def fold_lanes(acc, LANES: tl.constexpr, HALVINGS: tl.constexpr):
    """Sum [1] of ``acc`` [LANES]: upper half onto lower half, HALVINGS times."""
    return fold_rows(tl.reshape(acc, [LANES, 1]), LANES, HALVINGS)
