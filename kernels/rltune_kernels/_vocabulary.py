"""Launch rules of kernels over rows of the vocabulary.

A row's lanes, steps and segments are part of the numeric definition (see
``rltune_kernels._softmax``), so warps and pipelining are safe, and in gradients, which
are element-wise, so is every knob.
"""

from __future__ import annotations

from collections.abc import Mapping

from rltune.core.launch import Grid, LaunchConfig, ceil_div, next_power_of_2
from rltune.core.operator import Axes
from rltune.core.shapes import DTYPES, ShapeKey

SEGMENTS = 8
"""Parts that a row is cut into, and so the most vocabulary shards. Numeric definition."""

SHARD_COUNTS = (1, 2, 4, 8)
"""Numbers of vocabulary shards that give the bytes of one."""

LANES = 128
"""Running sums of a segment; lane l takes columns l, l + 128, … Numeric definition."""

_CONTROL_LANES = 64
_TILES_A_STEP = 4
_WARP_THREADS = 32
_LANE_WARPS = (2, 4, 8, 16, 32)
_LANE_STAGES = (1, 2, 3, 4)
_STAGED_BYTES = 160 * 1024
_SLOPE_BLOCKS = (512, 1024, 2048, 4096, 8192)
_SLOPE_WARPS = (1, 2, 4, 8, 16)


def lane_grid(axes: Axes, _launch_config: LaunchConfig) -> Grid:
    """One program for every token."""
    return axes["num_tokens"], 1, 1


def lane_constexprs(axes: Axes, _dtype: str, launch_config: LaunchConfig) -> Mapping[str, int]:
    """Columns, segments, steps and the knobs of a kernel that reads rows in lanes."""
    columns, counted = axes["padded_vocab_size"], axes["vocab_size"]
    segments = SEGMENTS // axes.get("num_shards", 1)
    segment = ceil_div(columns, segments)
    lanes = launch_config.knob("LANES")
    step = _TILES_A_STEP * lanes
    last = max(counted - (segments - 1) * segment, 0)  # columns of the last segment
    return {
        "P": columns,
        "V": counted,
        "SEGMENT": segment,
        "SEGMENTS": segments,
        "FOLDS": segments.bit_length() - 1,
        "WHOLE": min(last, segment) // step,
        "STEPS": ceil_div(min(segment, counted), step),
        "LANES": lanes,
        "HALVINGS": lanes.bit_length() - 1,
        "STAGES": launch_config.knob("STAGES"),
    }


def lane_baseline(_key: ShapeKey) -> LaunchConfig:
    """Four warps, not pipelined: 8 columns a thread and tile, one 16-byte load of bf16."""
    return LaunchConfig.of(LANES=LANES, STAGES=1, num_warps=4)


def lane_candidates(key: ShapeKey) -> tuple[LaunchConfig, ...]:
    """Warps and pipelining of a kernel that reads rows in lanes."""
    configs = [
        LaunchConfig.of(LANES=LANES, STAGES=stages, num_warps=warps)
        for stages in _LANE_STAGES
        for warps in _LANE_WARPS
    ]
    fixed = lane_baseline(key)
    return tuple(item for item in configs if item != fixed and prune_lanes(item, key) is None)


def prune_lanes(launch_config: LaunchConfig, key: ShapeKey) -> str | None:
    """Why a config of a kernel that reads rows in lanes is not tried, or None."""
    axes = dict(key.axes)
    segments = SEGMENTS // axes.get("num_shards", 1)
    tile = segments * LANES
    if tile < _WARP_THREADS * launch_config.num_warps:
        return "threads without a column"
    stages = launch_config.knob("STAGES")
    step = _TILES_A_STEP * LANES
    if stages > 1 and ceil_div(axes["vocab_size"], segments) < step * stages:
        return "fewer steps than stages"
    if stages > 1 and _TILES_A_STEP * tile * DTYPES[key.dtype][1] * stages > _STAGED_BYTES:
        return "the staged tiles leave no room for a second program"
    return None


def lane_control(_key: ShapeKey) -> LaunchConfig:
    """A wrong candidate: half the lanes, so that other columns share a running sum."""
    return LaunchConfig.of(LANES=_CONTROL_LANES, STAGES=1, num_warps=4)


def slope_grid(axes: Axes, launch_config: LaunchConfig) -> Grid:
    """One program for every token and column tile."""
    return axes["num_tokens"], ceil_div(axes["padded_vocab_size"], launch_config.knob("BLOCK_V")), 1


def slope_constexprs(axes: Axes, _dtype: str, launch_config: LaunchConfig) -> Mapping[str, int]:
    """The columns and the knob of a gradient over the vocabulary."""
    return {
        "P": axes["padded_vocab_size"],
        "V": axes["vocab_size"],
        "BLOCK_V": launch_config.knob("BLOCK_V"),
    }


def slope_baseline(_key: ShapeKey) -> LaunchConfig:
    """1024 columns with 4 warps, the launch of Triton's own element-wise tutorial."""
    return LaunchConfig.of(BLOCK_V=1024, num_warps=4)


def slope_candidates(key: ShapeKey) -> tuple[LaunchConfig, ...]:
    """Column tiles and warps of a gradient over the vocabulary."""
    configs = [
        LaunchConfig.of(BLOCK_V=block, num_warps=warps)
        for block in _SLOPE_BLOCKS
        for warps in _SLOPE_WARPS
    ]
    fixed = slope_baseline(key)
    return tuple(item for item in configs if item != fixed and prune_slope(item, key) is None)


def prune_slope(launch_config: LaunchConfig, key: ShapeKey) -> str | None:
    """Why a config of a gradient over the vocabulary is not tried, or None."""
    block = launch_config.knob("BLOCK_V")
    widest = next_power_of_2(dict(key.axes)["padded_vocab_size"])
    if block > max(widest, min(_SLOPE_BLOCKS)):
        return "wider than the row"
    per_thread = block // (_WARP_THREADS * launch_config.num_warps)
    if per_thread < 4:
        return "less than one 8-byte load a thread: more instructions for the same bytes"
    if per_thread > 64:
        return "more than eight 16-byte loads a thread: registers limit the occupancy"
    return None
