"""Launch configs of ratio_kl: those of every kernel over rows of the vocabulary.

``forward`` reads both models' rows in lanes, one after the other, and ``backward`` is
element-wise: every knob is safe.
"""

from __future__ import annotations

from rltune_kernels._vocabulary import (
    lane_baseline,
    lane_candidates,
    lane_constexprs,
    lane_control,
    lane_grid,
    slope_baseline,
    slope_candidates,
    slope_constexprs,
    slope_grid,
)

__all__ = [
    "lane_baseline",
    "lane_candidates",
    "lane_constexprs",
    "lane_control",
    "lane_grid",
    "slope_baseline",
    "slope_candidates",
    "slope_constexprs",
    "slope_grid",
]
