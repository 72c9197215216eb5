"""Launch configs of ``grpo_loss``.

``forward`` and ``fold`` add in lanes and fold the lanes by halves, an order that is
written out; ``backward`` computes each token alone. So warps, steps loaded ahead and
blocks move no byte. LANES is part of the numeric definition, and no candidate changes it.
"""

from __future__ import annotations

from collections.abc import Mapping

from rltune.core.launch import Grid, LaunchConfig, ceil_div, next_power_of_2
from rltune.core.operator import Axes
from rltune.core.shapes import ShapeKey

LANES = 128
"""Lane l takes tokens, and then sequences, l, l + 128, … Part of the numeric definition."""

SMALLEST_BUCKET = 128
"""Sequences up to this length share a launch."""

LARGEST_BUCKET = 65536
"""Sequences above half this length share a launch."""

_WARP_THREADS = 32
_UNROLLS = (1, 2, 4, 8)
_LANE_WARPS = (1, 2, 4)
_BLOCKS = (256, 512, 1024, 2048, 4096)
_BLOCK_WARPS = (1, 2, 4, 8)
_MOST_PER_THREAD = 16


def length_bucket(sequence_length: int) -> int:
    """The structural axis for a length: the next power of two, from 128 to 65536.

    It chooses a launch and no byte.
    """
    return min(max(next_power_of_2(sequence_length), SMALLEST_BUCKET), LARGEST_BUCKET)


def token_axes(axes: Axes) -> Mapping[str, int]:
    """Sizes and choices where the caller does not say, as a sweep has them.

    Its sequences are one shorter than the bucket: an odd length, with a last step in part.
    """
    length = axes.get("sequence_length", max(axes["length_bucket"] - 1, 1))
    return {
        "sequence_length": length,
        "num_advantages": axes.get("num_advantages", axes["num_sequences"]),
        "advantage_row": axes.get("advantage_row", 1),
        "advantage_token": axes.get("advantage_token", 0),
        "has_ref": axes.get("has_ref", 1),
        "aggregation": axes.get("aggregation", 1),
        "max_length": axes.get("max_length", length),
    }


def sequence_grid(axes: Axes, _launch_config: LaunchConfig) -> Grid:
    """One program for every sequence."""
    return axes["num_sequences"], 1, 1


def fold_grid(_axes: Axes, _launch_config: LaunchConfig) -> Grid:
    """One program."""
    return 1, 1, 1


def token_grid(axes: Axes, launch_config: LaunchConfig) -> Grid:
    """One program for every sequence and block of its tokens."""
    blocks = ceil_div(axes["sequence_length"], launch_config.knob("BLOCK_T"))
    return axes["num_sequences"], blocks, 1


def lane_constexprs(_axes: Axes, _dtype: str, launch_config: LaunchConfig) -> Mapping[str, int]:
    """The lanes, how often they are halved, and the steps loaded ahead."""
    lanes = launch_config.knob("LANES")
    return {
        "LANES": lanes,
        "HALVINGS": lanes.bit_length() - 1,
        "UNROLL": launch_config.knob("UNROLL"),
    }


def token_constexprs(_axes: Axes, _dtype: str, launch_config: LaunchConfig) -> Mapping[str, int]:
    """The tokens of a program."""
    return {"BLOCK_T": launch_config.knob("BLOCK_T")}


def lane_baseline(_key: ShapeKey) -> LaunchConfig:
    """A thread a lane and one step at a time: as a careful author would without tuning."""
    return LaunchConfig.of(LANES=LANES, UNROLL=1, num_warps=LANES // _WARP_THREADS)


def token_baseline(_key: ShapeKey) -> LaunchConfig:
    """BLOCK_T 1024 with 4 warps: the launch of Triton's own element-wise tutorial."""
    return LaunchConfig.of(BLOCK_T=1024, num_warps=4)


def sequence_candidates(key: ShapeKey) -> tuple[LaunchConfig, ...]:
    """Steps loaded ahead and warps of ``forward``."""
    steps = ceil_div(dict(key.axes)["length_bucket"], LANES)
    return _lane_candidates(key, tuple(item for item in _UNROLLS if item <= max(steps, 1)))


def fold_candidates(key: ShapeKey) -> tuple[LaunchConfig, ...]:
    """Steps loaded ahead and warps of ``fold``."""
    return _lane_candidates(key, _UNROLLS)


def token_candidates(key: ShapeKey) -> tuple[LaunchConfig, ...]:
    """Blocks and warps of ``backward``."""
    configs = [
        LaunchConfig.of(BLOCK_T=block, num_warps=warps)
        for block in _BLOCKS
        for warps in _BLOCK_WARPS
    ]
    fixed = token_baseline(key)
    return tuple(item for item in configs if item != fixed and prune_tokens(item, key) is None)


def prune_tokens(launch_config: LaunchConfig, key: ShapeKey) -> str | None:
    """Why a config of ``backward`` is not tried, or None."""
    block = launch_config.knob("BLOCK_T")
    if block > max(dict(key.axes)["length_bucket"], min(_BLOCKS)):
        return "wider than the sequence"
    per_thread = block / (_WARP_THREADS * launch_config.num_warps)
    if per_thread < 1:
        return "threads without a token"
    if per_thread > _MOST_PER_THREAD:
        return "more than 16 tokens a thread, in fp64, limit the occupancy"
    return None


def lane_control(key: ShapeKey) -> LaunchConfig:
    """A wrong candidate: the baseline with a quarter of the lanes, each with more tokens.

    Half of them would not do: up to 128 tokens, their one addition more is the first
    halving.
    """
    fixed = lane_baseline(key)
    return LaunchConfig.of(LANES=LANES // 4, UNROLL=1, num_warps=fixed.num_warps)


def _lane_candidates(key: ShapeKey, unrolls: tuple[int, ...]) -> tuple[LaunchConfig, ...]:
    configs = [
        LaunchConfig.of(LANES=LANES, UNROLL=unroll, num_warps=warps)
        for unroll in unrolls
        for warps in _LANE_WARPS
    ]
    fixed = lane_baseline(key)
    return tuple(item for item in configs if item != fixed)
