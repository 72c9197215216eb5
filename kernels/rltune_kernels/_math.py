"""Arithmetic shared by kernels: logistic parts, exact rounding, folds in a written order."""

import triton
import triton.language as tl

_LOG2_E = tl.constexpr(1.4426950408889634)
_LN2_HIGH = tl.constexpr(0.693359375)  # nine significant bits: its product with n is exact
_LN2_LOW = tl.constexpr(-2.12194440e-4)  # ln 2 less the above
_ROUND = tl.constexpr(12582912.0)  # 1.5 * 2**23: adding it rounds to an integer
_ONE_BITS = tl.constexpr(0x3F800000)
_EXP_LIMIT = tl.constexpr(174.0)  # x * exp(-x) is below every subnormal from here on


@triton.jit
def _power_of_2(n):
    """2**n in fp32 for int32 n in [-126, 127]."""
    return ((n << 23) + _ONE_BITS).to(tl.float32, bitcast=True)


@triton.jit
def exp_factors(a, EXACT: tl.constexpr):
    """Two factors of exp(-a) for a >= 0, neither of which underflows.

    ``EXACT`` reduces the range by hand, for results within one ulp of fp32;
    otherwise both factors are the approximate exp(-a / 2).
    """
    if EXACT:
        limited = tl.where(a > _EXP_LIMIT, _EXP_LIMIT, a)
        shifted = tl.fma(limited, -_LOG2_E, _ROUND)
        n = shifted - _ROUND
        r = tl.fma(n, -_LN2_HIGH, -limited)
        r = tl.fma(n, -_LN2_LOW, r)
        # Cephes expf: exp(r) on |r| <= ln(2) / 2
        p = tl.fma(r, 1.9875691500e-4, 1.3981999507e-3)
        p = tl.fma(p, r, 8.3334519073e-3)
        p = tl.fma(p, r, 4.1665795894e-2)
        p = tl.fma(p, r, 1.6666665459e-1)
        p = tl.fma(p, r, 5.0000001201e-1)
        p = tl.fma(p, r * r, r) + 1.0
        steps = shifted.to(tl.int32, bitcast=True) - 0x4B400000
        half = steps >> 1
        first = p * _power_of_2(half)
        second = tl.where(a > _EXP_LIMIT, 0.0, _power_of_2(steps - half))
    else:
        first = tl.exp(a * -0.5)
        second = first
    return first, second


@triton.jit
def logistic_parts(x, EXACT: tl.constexpr):
    """(s, r, scale): sigmoid(x) is s * scale, and 1 - sigmoid(x) is r.

    z = exp(-|x|); nothing cancels. ``scale`` is 1 for x >= 0; below, it holds
    the part of z whose product with the rest may underflow, so it goes last.
    ``EXACT`` divides with correct rounding and takes exp from a reduced range.
    """
    first, second = exp_factors(tl.abs(x), EXACT)
    z = first * second
    positive = x >= 0.0
    one_part = tl.where(positive, 1.0, first)
    other_part = tl.where(positive, z, 1.0)
    if EXACT:
        sigmoid = tl.div_rn(one_part, 1.0 + z)
        rest = tl.div_rn(other_part, 1.0 + z)
    else:
        reciprocal = 1.0 / (1.0 + z)
        sigmoid = one_part * reciprocal
        rest = other_part * reciprocal
    return sigmoid, rest, tl.where(positive, 1.0, second)


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
