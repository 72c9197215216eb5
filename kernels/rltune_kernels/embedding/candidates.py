"""Launch configs of the embedding.

``forward`` copies bytes and ``backward`` writes its order of additions out, one
fold for every column, so no knob moves a byte.
"""

from __future__ import annotations

from collections.abc import Mapping

from rltune.core.launch import Grid, LaunchConfig, ceil_div, next_power_of_2
from rltune.core.operator import Axes
from rltune.core.shapes import ShapeKey

_WARP_THREADS = 32
_WIDEST_BLOCK = 4096
_COPY_COLUMNS = (256, 512, 1024, 2048, 4096, 8192)
_COPY_ROWS = (1, 2, 4)
_COPY_WARPS = (1, 2, 4, 8)
_FOLD_COLUMNS = (32, 64, 128, 256, 512, 1024)
_FOLD_WARPS = (1, 2, 4, 8)
_UNROLLS = (1, 4, 8)


def copy_grid(axes: Axes, launch_config: LaunchConfig) -> Grid:
    """One program for every ROWS tokens and column tile."""
    return (
        ceil_div(axes["num_tokens"], launch_config.knob("ROWS")),
        ceil_div(axes["hidden_size"], launch_config.knob("BLOCK_N")),
        1,
    )


def copy_constexprs(axes: Axes, _dtype: str, launch_config: LaunchConfig) -> Mapping[str, int]:
    """The sizes of the weight and the knobs of ``forward``."""
    return {
        "V": axes["vocab_size"],
        "N": axes["hidden_size"],
        "BLOCK_N": launch_config.knob("BLOCK_N"),
        "ROWS": launch_config.knob("ROWS"),
    }


def copy_baseline(key: ShapeKey) -> LaunchConfig:
    """One row a program in a power-of-two block of at most 4096 columns, 4 warps.

    The common shape of published gather kernels; 4096 elements of bf16 are four
    16-byte loads a thread, and wider rows take several column tiles.
    """
    block = min(next_power_of_2(dict(key.axes)["hidden_size"]), _WIDEST_BLOCK)
    return LaunchConfig.of(BLOCK_N=block, ROWS=1, num_warps=4)


def copy_candidates(key: ShapeKey) -> tuple[LaunchConfig, ...]:
    """Column tiles, rows a program and warps of ``forward``."""
    block = next_power_of_2(dict(key.axes)["hidden_size"])
    columns = sorted({min(item, block) for item in _COPY_COLUMNS})
    configs = [
        LaunchConfig.of(BLOCK_N=item, ROWS=rows, num_warps=warps)
        for rows in _COPY_ROWS
        for item in columns
        for warps in _COPY_WARPS
    ]
    fixed = copy_baseline(key)
    return tuple(item for item in configs if item != fixed and prune_copy(item) is None)


def prune_copy(launch_config: LaunchConfig) -> str | None:
    """Why a config of ``forward`` is not tried, or None."""
    tile = launch_config.knob("BLOCK_N") * launch_config.knob("ROWS")
    per_thread = tile // (_WARP_THREADS * launch_config.num_warps)
    if per_thread < 4:
        return "less than one 8-byte load a thread: more instructions for the same bytes"
    if per_thread > 64:
        return "more than eight 16-byte loads a thread: registers limit the occupancy"
    return None


def fold_grid(axes: Axes, launch_config: LaunchConfig) -> Grid:
    """One program for every position and column tile."""
    return axes["num_tokens"], ceil_div(axes["hidden_size"], launch_config.knob("BLOCK_H")), 1


def fold_constexprs(axes: Axes, _dtype: str, launch_config: LaunchConfig) -> Mapping[str, int]:
    """The sizes of the weight and the knobs of ``backward``."""
    return {
        "V": axes["vocab_size"],
        "N": axes["hidden_size"],
        "BLOCK_H": launch_config.knob("BLOCK_H"),
        "UNROLL": launch_config.knob("UNROLL"),
    }


def fold_baseline(_key: ShapeKey) -> LaunchConfig:
    """128 columns with 4 warps, one row at a time: a thread a column.

    The fixed launch of RL-Kernel's sorted-segment backward (pull request 349).
    """
    return LaunchConfig.of(BLOCK_H=128, UNROLL=1, num_warps=4)


def fold_candidates(key: ShapeKey) -> tuple[LaunchConfig, ...]:
    """Column tiles, warps and rows loaded ahead of ``backward``."""
    configs = [
        LaunchConfig.of(BLOCK_H=columns, UNROLL=unroll, num_warps=warps)
        for unroll in _UNROLLS
        for columns in _FOLD_COLUMNS
        for warps in _FOLD_WARPS
    ]
    fixed = fold_baseline(key)
    return tuple(item for item in configs if item != fixed and prune_fold(item, key) is None)


def prune_fold(launch_config: LaunchConfig, key: ShapeKey) -> str | None:
    """Why a config of ``backward`` is not tried, or None."""
    columns = launch_config.knob("BLOCK_H")
    if columns > max(next_power_of_2(dict(key.axes)["hidden_size"]), min(_FOLD_COLUMNS)):
        return "wider than the row"
    per_thread = columns / (_WARP_THREADS * launch_config.num_warps)
    if per_thread < 1:
        return "threads without a column"
    if per_thread > 8:
        return "more than one 16-byte load a thread and row: fewer programs share the latency"
    return None
