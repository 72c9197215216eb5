"""Triton kernels of ratio_kl: both rows of a token in lanes, and the policy's gradient."""
# ruff: noqa: PLR0917 - a kernel takes what it takes, by position

import triton
import triton.language as tl

from rltune_kernels._math import store_rounded
from rltune_kernels._softmax import (
    binary_scale,
    difference,
    k3,
    k3_slope,
    log_share,
    row_parts,
    store_slope,
)


@triton.jit(do_not_specialize=["inverse_temperature"])
def _ratio_kl_fwd_kernel(
    logits_ptr,
    ref_logits_ptr,
    ids_ptr,
    mask_ptr,
    old_logprob_ptr,
    ratio_ptr,
    kl_ptr,
    kl_slope_ptr,
    row_max_ptr,
    row_sum_ptr,
    inverse_temperature: tl.float32,
    P: tl.constexpr,
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
    i_row = tl.program_id(0).to(tl.int64)
    o_row = i_row + tl.arange(0, 1)  # [1]
    if tl.load(mask_ptr + i_row) == 0:
        tl.store(ratio_ptr + i_row, 1.0)
        tl.store(kl_ptr + i_row, 0.0)
        tl.store(kl_slope_ptr + i_row, 0.0)
        tl.store(row_max_ptr + i_row, 0.0)
        tl.store(row_sum_ptr + i_row, 1.0)
    else:
        scale = binary_scale(inverse_temperature)
        row_ptr = logits_ptr + i_row * P
        ref_row_ptr = ref_logits_ptr + i_row * P
        b_max, b_sum = row_parts(
            row_ptr, scale, V, SEGMENT, SEGMENTS, FOLDS, WHOLE, STEPS, LANES, HALVINGS, STAGES
        )
        b_ref_max, b_ref_sum = row_parts(
            ref_row_ptr, scale, V, SEGMENT, SEGMENTS, FOLDS, WHOLE, STEPS, LANES, HALVINGS, STAGES
        )
        id_ = tl.load(ids_ptr + i_row)
        inside = (id_ >= 0) & (id_ < V)
        o_column = tl.where(inside, id_, 0) + tl.arange(0, 1)
        b_selected = tl.load(row_ptr + o_column).to(tl.float32)
        b_ref_selected = tl.load(ref_row_ptr + o_column).to(tl.float32)
        # an id that names no column has no logarithm, and its row no gradient
        b_sum = tl.where(inside, b_sum, float("nan"))
        b_logprob = log_share(b_selected, b_max, b_sum, inverse_temperature)
        b_ref = log_share(b_ref_selected, b_ref_max, b_ref_sum, inverse_temperature)
        b_distance = difference(b_ref, b_logprob)
        # rounded as ``logprob`` rounds it, so that the ratio of a policy to itself is 1
        b_rounded = b_logprob.to(tl.float32).to(tl.float64)
        b_old = tl.load(old_logprob_ptr + o_row).to(tl.float64)
        store_rounded(ratio_ptr, o_row, tl.exp(difference(b_rounded, b_old)), None)
        store_rounded(kl_ptr, o_row, k3(b_distance), None)
        store_rounded(kl_slope_ptr, o_row, k3_slope(b_distance), None)
        tl.store(row_max_ptr + o_row, b_max)
        tl.store(row_sum_ptr + o_row, b_sum)


@triton.jit
def _slope_part(upstream, factor):
    """``upstream`` * ``factor``, and 0 where nothing comes from upstream."""
    return tl.where(upstream == 0.0, 0.0, upstream * factor)


@triton.jit(do_not_specialize=["inverse_temperature"])
def _ratio_kl_bwd_kernel(
    dratio_ptr,
    dkl_ptr,
    logits_ptr,
    ids_ptr,
    mask_ptr,
    ratio_ptr,
    kl_slope_ptr,
    row_max_ptr,
    row_sum_ptr,
    dlogits_ptr,
    inverse_temperature: tl.float32,
    P: tl.constexpr,
    V: tl.constexpr,
    BLOCK_V: tl.constexpr,
):
    i_row = tl.program_id(0).to(tl.int64)
    of_ratio = _slope_part(tl.load(dratio_ptr + i_row), tl.load(ratio_ptr + i_row))
    of_kl = _slope_part(tl.load(dkl_ptr + i_row), tl.load(kl_slope_ptr + i_row))
    slope = (of_ratio + of_kl) * inverse_temperature
    store_slope(
        logits_ptr,
        dlogits_ptr,
        row_max_ptr,
        row_sum_ptr,
        tl.load(ids_ptr + i_row),
        (tl.load(mask_ptr + i_row) == 0) | (slope == 0.0),
        slope,
        binary_scale(inverse_temperature),
        P,
        V,
        BLOCK_V,
    )
