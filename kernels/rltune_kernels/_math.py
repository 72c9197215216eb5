"""What kernels share: the type of the arithmetic, steps over tiles, logistic parts, norms."""
# ruff: noqa: SIM108 - Triton takes a branch at compile time where its types differ

import triton
import triton.language as tl


@triton.jit
def widen(value):
    """``value`` in the type of its arithmetic: fp64 for fp32, fp32 for bf16 and fp16."""
    if value.dtype == tl.float32:
        wide = value.to(tl.float64)
    else:
        wide = value.to(tl.float32)
    return wide


@triton.jit
def load_wide(ptr, offsets, mask):
    """Elements at ``offsets`` in the type of their arithmetic, zeros where masked."""
    return widen(tl.load(ptr + offsets, mask=mask, other=0.0))


@triton.jit
def store_rounded(ptr, offsets, value, mask):
    """Store ``value`` in the type of the buffer: the one rounding, to nearest even."""
    tl.store(ptr + offsets, value.to(ptr.dtype.element_ty), mask=mask)


@triton.jit
def _divide(value, COUNT: tl.constexpr):
    """``value`` / COUNT, correctly rounded."""
    if value.dtype == tl.float64:
        quotient = value / COUNT
    else:
        quotient = tl.div_rn(value, COUNT * 1.0)
    return quotient


@triton.jit
def _reciprocal_root(value):
    """1 / sqrt(``value``), each step correctly rounded."""
    if value.dtype == tl.float64:
        root = 1.0 / tl.sqrt(value)
    else:
        root = tl.div_rn(1.0, tl.sqrt_rn(value))
    return root


@triton.jit
def _reciprocal(value):
    """1 / ``value`` for a value from 1 to 2, far below the last place of a stored result."""
    if value.dtype == tl.float64:
        # one Newton step from fp32: 2**-44 at a third of a division's cost
        seed = (1.0 / value.to(tl.float32)).to(tl.float64)
        inverse = tl.fma(seed, tl.fma(-value, seed, 1.0), seed)
    else:
        inverse = 1.0 / value
    return inverse


@triton.jit
def logistic_parts(x):
    """(s, r, scale): sigmoid(x) is s * scale, and 1 - sigmoid(x) is r.

    z = exp(-|x|); nothing cancels. ``scale`` is 1 for x >= 0; below, it is the square
    root of z, whose product with the rest may underflow, so it goes last.
    """
    root = tl.exp(tl.abs(x) * -0.5)
    z = root * root
    positive = x >= 0.0
    reciprocal = _reciprocal(1.0 + z)
    sigmoid = tl.where(positive, 1.0, root) * reciprocal
    rest = tl.where(positive, z, 1.0) * reciprocal
    return sigmoid, rest, tl.where(positive, 1.0, root)


@triton.jit
def flat_step(i_step, elements, BLOCK: tl.constexpr, STEPS: tl.constexpr):
    """(offsets, mask), each [BLOCK], of one step of a program over flat elements."""
    o_flat = tl.program_id(0).to(tl.int64) * (BLOCK * STEPS) + i_step * BLOCK
    o_flat += tl.arange(0, BLOCK)
    return o_flat, o_flat < elements


@triton.jit
def row_step(i_step, num_tokens, o_col, m_col, ROWS: tl.constexpr, STEPS: tl.constexpr, N):
    """Rows [ROWS] and tile [ROWS, BLOCK_N] of one step: (offsets, mask) of each."""
    i_row = tl.program_id(0).to(tl.int64) * (ROWS * STEPS) + i_step * ROWS
    o_row = i_row + tl.arange(0, ROWS)
    m_row = o_row < num_tokens
    return o_row, m_row, o_row[:, None] * N + o_col[None, :], m_row[:, None] & m_col[None, :]


@triton.jit
def rstd_of_rows(b_x, eps, N: tl.constexpr):
    """1 / sqrt(mean of squares + eps) [ROWS] of a tile [ROWS, BLOCK_N], zeros beyond N."""
    return _reciprocal_root(_divide(tl.sum(b_x * b_x, axis=1), N) + eps)


@triton.jit
def norm_slope(b_dy, b_x, b_weight, b_rstd, N: tl.constexpr):
    """A row's dx / rstd: dy * w - xhat * mean(dy * w * xhat), a tile [ROWS, BLOCK_N]."""
    b_dyw = b_dy * b_weight
    b_xhat = b_x * b_rstd[:, None]
    b_mean = _divide(tl.sum(b_dyw * b_xhat, axis=1), N)  # [ROWS]
    return tl.fma(b_xhat, -b_mean[:, None], b_dyw)


@triton.jit
def fold_rows(acc, ROWS: tl.constexpr, HALVINGS: tl.constexpr):
    """Sum of the rows of ``acc`` [ROWS, N]: upper half onto lower half, HALVINGS times.

    ROWS is 2**HALVINGS. The order is written out, so it depends on no layout.
    """
    columns: tl.constexpr = acc.shape[1]
    for i_halving in tl.static_range(HALVINGS):
        halves = tl.reshape(acc, [2, ROWS >> (i_halving + 1), columns])
        pairs = tl.permute(halves, [1, 2, 0])
        lower, upper = tl.split(pairs)  # [half, N] each
        acc = lower + upper
    return tl.reshape(acc, [columns])
