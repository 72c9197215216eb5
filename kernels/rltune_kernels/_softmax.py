"""The softmax of long rows in lanes: what logprob, ratio_kl and linear_logp share in kernels.

A row is cut into segments, a segment into steps of four tiles of LANES columns. Lane l of
a segment keeps the largest logit it saw and the sum of exp((logit - largest) / temperature),
and is rescaled once a step. At the end the lanes of a segment are scaled to its largest
logit and added by halves, and the segments are merged by neighbouring pairs. Everything is
written out, in fp32: no layout, warp count or pipeline moves a byte, and eight segments in
one program, or on eight devices, are one tree.
"""

import triton
import triton.language as tl

from rltune_kernels._math import store_rounded


@triton.jit
def lowest():
    """The lowest finite fp32: what a lane without a logit holds, so that nothing is inf - inf."""
    return -3.4028234663852886e38


@triton.jit
def binary_scale(inverse_temperature):
    """Factor that turns a difference of logits into an exponent of two."""
    return inverse_temperature * 1.4426950408889634


@triton.jit
def _load_logits(ptr, o_col, m_col, MASKED: tl.constexpr):
    """Logits at ``o_col`` in fp32, minus infinity where masked."""
    if MASKED:
        b_logits = tl.load(ptr + o_col, mask=m_col, other=float("-inf"))
    else:
        b_logits = tl.load(ptr + o_col)
    return b_logits.to(tl.float32)


@triton.jit
def _lane_step(
    ptr,
    i_step,
    o_first,
    o_lane,
    b_end,
    b_max,
    b_sum,
    scale,
    LANES: tl.constexpr,
    MASKED: tl.constexpr,
):
    """One step of four tiles [SEGMENTS, LANES] into the lanes' (largest, sum)."""
    o_a = o_first + (i_step * (4 * LANES) + o_lane)
    o_b = o_a + LANES
    o_c = o_a + 2 * LANES
    o_d = o_a + 3 * LANES
    b_a = _load_logits(ptr, o_a, o_a < b_end, MASKED)
    b_b = _load_logits(ptr, o_b, o_b < b_end, MASKED)
    b_c = _load_logits(ptr, o_c, o_c < b_end, MASKED)
    b_d = _load_logits(ptr, o_d, o_d < b_end, MASKED)
    b_new = tl.maximum(b_max, tl.maximum(tl.maximum(b_a, b_b), tl.maximum(b_c, b_d)))
    b_kept = tl.exp2((b_max - b_new) * scale)
    b_ab = tl.exp2((b_a - b_new) * scale) + tl.exp2((b_b - b_new) * scale)
    b_cd = tl.exp2((b_c - b_new) * scale) + tl.exp2((b_d - b_new) * scale)
    return b_new, tl.fma(b_sum, b_kept, b_ab + b_cd)


@triton.jit
def _fold_lanes(
    b_max, b_sum, scale, SEGMENTS: tl.constexpr, LANES: tl.constexpr, HALVINGS: tl.constexpr
):
    """(largest, sum) [SEGMENTS] of the lanes [SEGMENTS, LANES], LANES being 2**HALVINGS.

    Every lane is scaled to the largest of its segment, then the upper half of the lanes is
    added to the lower half, HALVINGS times. A sum over an axis of two is one addition,
    whichever layout the axis has.
    """
    b_largest = tl.max(b_max, axis=1) + 0.0  # no zero keeps its minus
    b_sum = b_sum * tl.exp2((b_max - b_largest[:, None]) * scale)
    for i_halving in tl.static_range(HALVINGS):
        b_sum = tl.sum(tl.reshape(b_sum, [SEGMENTS, 2, LANES >> (i_halving + 1)]), axis=1)
    return b_largest, tl.reshape(b_sum, [SEGMENTS])


@triton.jit
def fold_neighbours(
    b_max, b_sum, scale, ROWS: tl.constexpr, PARTS: tl.constexpr, FOLDS: tl.constexpr
):
    """(largest, sum) [ROWS] of parts [ROWS, PARTS] of a row each, PARTS being 2**FOLDS.

    FOLDS times, part 2i and part 2i + 1 are scaled to the larger of both and added.
    """
    for i_fold in tl.static_range(FOLDS):
        b_max = tl.reshape(b_max, [ROWS, PARTS >> (i_fold + 1), 2])
        b_sum = tl.reshape(b_sum, [ROWS, PARTS >> (i_fold + 1), 2])
        b_larger = tl.max(b_max, axis=2)
        b_sum = tl.sum(b_sum * tl.exp2((b_max - b_larger[:, :, None]) * scale), axis=2)
        b_max = b_larger
    return tl.reshape(b_max, [ROWS]), tl.reshape(b_sum, [ROWS])


@triton.jit
def row_parts(
    ptr,
    scale,
    V: tl.constexpr,
    SEGMENT: tl.constexpr,
    SEGMENTS: tl.constexpr,
    FOLDS: tl.constexpr,
    WHOLE: tl.constexpr,
    STEPS: tl.constexpr,
    LANES: tl.constexpr,
    HALVINGS: tl.constexpr,
    STAGES: tl.constexpr,
):
    """(largest, sum) [1] of the V logits at ``ptr``, cut into SEGMENTS of SEGMENT columns.

    Of STEPS steps the first WHOLE need no mask in any segment.
    """
    o_segment = tl.arange(0, SEGMENTS)[:, None]  # [SEGMENTS, 1]
    o_lane = tl.arange(0, LANES)[None, :]  # [1, LANES]
    o_first = o_segment * SEGMENT
    b_end = tl.minimum(o_first + SEGMENT, V)
    b_max = tl.full([SEGMENTS, LANES], lowest(), dtype=tl.float32)
    b_sum = tl.zeros([SEGMENTS, LANES], dtype=tl.float32)
    for i_step in tl.range(0, WHOLE, num_stages=STAGES):
        b_max, b_sum = _lane_step(
            ptr, i_step, o_first, o_lane, b_end, b_max, b_sum, scale, LANES, MASKED=False
        )
    for i_step in tl.range(WHOLE, STEPS):
        b_max, b_sum = _lane_step(
            ptr, i_step, o_first, o_lane, b_end, b_max, b_sum, scale, LANES, MASKED=True
        )
    b_max, b_sum = _fold_lanes(b_max, b_sum, scale, SEGMENTS, LANES, HALVINGS)  # [SEGMENTS]
    return fold_neighbours(b_max, b_sum, scale, 1, SEGMENTS, FOLDS)


@triton.jit
def log_share(b_selected, b_max, b_sum, inverse_temperature):
    """Log of one logit's share of its row, in fp64: at most 0, as sum is at least 1."""
    b_distance = (b_selected.to(tl.float64) - b_max.to(tl.float64)) * inverse_temperature
    return b_distance - tl.log(b_sum.to(tl.float64))


@triton.jit
def _share_slope(b_logits, b_selected, largest, total, slope, scale):
    """Gradient of the logits from ``slope``, the gradient of the selected logit / temperature.

    slope * (1 where selected - share). A share of nothing gives 0 whatever the slope.
    """
    b_share = tl.exp2((b_logits - largest) * scale)
    b_taken = tl.where(b_share == 0.0, 0.0, b_share * (slope / total))
    return tl.where(b_selected, slope, 0.0) - b_taken


@triton.jit
def store_slope(
    logits_ptr,
    dlogits_ptr,
    row_max_ptr,
    row_sum_ptr,
    column,
    unread,
    slope,
    scale,
    P: tl.constexpr,
    V: tl.constexpr,
    BLOCK_V: tl.constexpr,
):
    """Store a program's BLOCK_V columns of dlogits; zeros, with no logit read, if ``unread``.

    Program (i, j) has columns j * BLOCK_V and on of row i, whose selected logit is in
    ``column``. Columns from V to P are padding.
    """
    i_row = tl.program_id(0).to(tl.int64)
    o_col = tl.program_id(1).to(tl.int64) * BLOCK_V + tl.arange(0, BLOCK_V)  # [BLOCK_V]
    o_tile = i_row * P + o_col
    if unread:
        store_rounded(dlogits_ptr, o_tile, tl.zeros([BLOCK_V], dtype=tl.float32), o_col < P)
    else:
        largest = tl.load(row_max_ptr + i_row)
        total = tl.load(row_sum_ptr + i_row)
        b_logits = _load_logits(logits_ptr, o_tile, o_col < V, MASKED=True)
        b_slope = _share_slope(b_logits, o_col == column, largest, total, slope, scale)
        store_rounded(dlogits_ptr, o_tile, b_slope, o_col < P)


@triton.jit
def difference(left, right):
    """``left`` - ``right``, and 0 where both are the same infinity."""
    return tl.where(left == right, 0.0, left - right)


@triton.jit
def k3(d):
    """exp(d) - 1 - d in fp64: no cancellation near 0, plus infinity at both ends."""
    near = d * d * 0.5 * (1.0 + d / 3.0 * (1.0 + d / 4.0 * (1.0 + d / 5.0 * (1.0 + d / 6.0))))
    far = tl.where(d == float("inf"), d, tl.exp(d) - 1.0 - d)
    return tl.where(tl.abs(d) < 0.015625, near, far)


@triton.jit
def k3_slope(d):
    """1 - exp(d) in fp64, the derivative of k3 by the policy's log-probability."""
    near = -d * (1.0 + d / 2.0 * (1.0 + d / 3.0 * (1.0 + d / 4.0 * (1.0 + d / 5.0))))
    return tl.where(tl.abs(d) < 0.015625, near, 1.0 - tl.exp(d))
