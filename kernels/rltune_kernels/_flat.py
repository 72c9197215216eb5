"""Launch rules of element-wise kernels: flat over num_tokens * intermediate_size elements."""

from __future__ import annotations

from collections.abc import Mapping

from rltune.core.launch import Grid, LaunchConfig, ceil_div
from rltune.core.operator import Axes
from rltune.core.shapes import ShapeKey

_BLOCKS = (256, 512, 1024, 2048, 4096, 8192)
_WARPS = (1, 2, 4, 8, 16)
_PIPELINES = ((1, 1), (4, 2))
_LEAST_PER_THREAD = 4
_MOST_PER_THREAD = 32
_PIPELINED_PER_THREAD = (8, 16)


def grid(axes: Axes, launch_config: LaunchConfig) -> Grid:
    """One program for every BLOCK * STEPS elements."""
    elements = axes["num_tokens"] * axes["intermediate_size"]
    span = launch_config.knob("BLOCK") * launch_config.knob("STEPS")
    return ceil_div(elements, span), 1, 1


def constexprs(axes: Axes, _dtype: str, launch_config: LaunchConfig) -> Mapping[str, int]:
    """The width and the knobs."""
    return {
        "N": axes["intermediate_size"],
        "BLOCK": launch_config.knob("BLOCK"),
        "STEPS": launch_config.knob("STEPS"),
        "STAGES": launch_config.knob("STAGES"),
    }


def baseline(_key: ShapeKey) -> LaunchConfig:
    """BLOCK 1024 with 4 warps: the launch of Triton's own element-wise tutorial."""
    return LaunchConfig.of(BLOCK=1024, STEPS=1, STAGES=1, num_warps=4)


def candidates(key: ShapeKey) -> tuple[LaunchConfig, ...]:
    """Every block size and warp count with a sane number of elements a thread."""
    configs = [
        LaunchConfig.of(BLOCK=block, STEPS=steps, STAGES=stages, num_warps=warps)
        for steps, stages in _PIPELINES
        for block in _BLOCKS
        for warps in _WARPS
    ]
    fixed = baseline(key)
    return tuple(item for item in configs if item != fixed and prune(item) is None)


def prune(launch_config: LaunchConfig) -> str | None:
    """Why a config is not tried, or None."""
    per_thread = launch_config.knob("BLOCK") // (32 * launch_config.num_warps)
    if per_thread < _LEAST_PER_THREAD:
        return "less than one 8-byte load a thread: more instructions for the same bytes"
    if per_thread > _MOST_PER_THREAD:
        return "more than four 16-byte loads a thread: registers limit the occupancy"
    if launch_config.knob("STEPS") > 1 and per_thread not in _PIPELINED_PER_THREAD:
        return "asynchronous copies pay with one or two 16-byte loads a thread and step"
    return None
