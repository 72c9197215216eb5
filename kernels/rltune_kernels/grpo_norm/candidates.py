"""Launch configs of ``grpo_norm``.

A group is added in lanes, and the lanes are folded by halves: an order that is
written out, so warps and groups a program move no byte. LANES is part of the
numeric definition, and no candidate changes it. It is 128; for groups of at most
64 members fewer lanes give the same bytes, as the others would add zeros.
"""

from __future__ import annotations

from collections.abc import Mapping

from rltune.core.launch import Grid, LaunchConfig, ceil_div, next_power_of_2
from rltune.core.operator import Axes
from rltune.core.shapes import ShapeKey

MOST_LANES = 128
"""Lane l takes members l, l + 128, … of a group. Part of the numeric definition."""

SMALLEST_BUCKET = 8
"""Groups up to this size share a launch."""

LARGEST_BUCKET = 1024
"""Groups above half this size share a launch."""

_WARP_THREADS = 32
_GROUPS = (1, 2, 4, 8)
_WARPS = (1, 2, 4)


def group_bucket(group_size: int) -> int:
    """The structural axis for a group size: the next power of two, from 8 to 1024.

    It chooses a launch and no byte.
    """
    return min(max(next_power_of_2(group_size), SMALLEST_BUCKET), LARGEST_BUCKET)


def group_axes(axes: Axes) -> Mapping[str, int]:
    """Sizes of the buffers, where the caller does not say: a sweep's groups are ragged."""
    num_groups = axes["num_groups"]
    return {
        "num_rewards": axes.get("num_rewards", num_groups * axes["group_bucket"]),
        "num_offsets": axes.get("num_offsets", num_groups + 1),
        "group_size": axes.get("group_size", 0),
        "has_mask": axes.get("has_mask", 1),
        "scale_by_std": axes.get("scale_by_std", 1),
    }


def grid(axes: Axes, launch_config: LaunchConfig) -> Grid:
    """One program for every GROUPS groups."""
    return ceil_div(axes["num_groups"], launch_config.knob("GROUPS")), 1, 1


def constexprs(_axes: Axes, _dtype: str, launch_config: LaunchConfig) -> Mapping[str, int]:
    """The lanes, how often they are halved, and the groups of a program."""
    lanes = launch_config.knob("LANES")
    return {
        "LANES": lanes,
        "HALVINGS": lanes.bit_length() - 1,
        "GROUPS": launch_config.knob("GROUPS"),
    }


def baseline(key: ShapeKey) -> LaunchConfig:
    """One group a program, and a thread a lane: as a careful author would without tuning."""
    lanes = _lanes(key)
    warps = max(lanes // _WARP_THREADS, 1)
    return LaunchConfig.of(LANES=lanes, GROUPS=1, num_warps=warps)


def candidates(key: ShapeKey) -> tuple[LaunchConfig, ...]:
    """Groups a program and warps."""
    configs = [
        LaunchConfig.of(LANES=_lanes(key), GROUPS=groups, num_warps=warps)
        for groups in _GROUPS
        for warps in _WARPS
    ]
    fixed = baseline(key)
    return tuple(item for item in configs if item != fixed and prune(item) is None)


def prune(launch_config: LaunchConfig) -> str | None:
    """Why a config is not tried, or None."""
    if launch_config.num_warps > max(launch_config.knob("LANES") // _WARP_THREADS, 1):
        return "threads without a lane"
    return None


def control(key: ShapeKey) -> LaunchConfig:
    """A wrong candidate: the baseline with a quarter of the lanes, each with more members.

    Half of them would not do: up to 128 members, their one addition more is the first
    halving.
    """
    fixed = baseline(key)
    lanes = fixed.knob("LANES") // 4
    return LaunchConfig.of(LANES=lanes, GROUPS=1, num_warps=fixed.num_warps)


def _lanes(key: ShapeKey) -> int:
    return min(group_bucket(dict(key.axes)["group_bucket"]), MOST_LANES)
