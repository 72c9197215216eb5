"""Launch configs of RMSNorm.

``forward`` and ``dx`` add a row with ``tl.sum``, whose order follows from how the
row is spread over threads. That spread, the *row class*, is part of the numeric
definition: candidates change how many rows a program holds, not how many threads
share a row. ``dw_partial`` and ``dw_fold`` write their order out, so every knob
there is safe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rltune.core.launch import Grid, LaunchConfig, ceil_div, next_power_of_2
from rltune.core.operator import Axes
from rltune.core.shapes import ACCUMULATION, DTYPES, ShapeKey
from rltune.errors import UsageError

FOLD_ROWS = 64
"""Rows that one partial sum of dw covers. Part of the numeric definition."""

PARTIAL_LANES = 8
"""Running sums a partial is folded from; lane l takes rows l, l + 8, … Numeric definition."""

FOLD_LANES = 32
"""Running sums the partials are folded into. Part of the numeric definition."""

_VECTOR_BYTES = 16
_WARP_THREADS = 32
_BASELINE_PER_THREAD = 16
_WARPS = (1, 2, 4, 8, 16)
_ROWS = (1, 2, 4, 8, 16, 32)
_PIPELINES = ((1, 1), (4, 2), (8, 3))
_MOST_REGISTERS = 64
_PIPELINE_BYTES = 96 * 1024
_COLUMNS = (32, 64, 128, 256, 512)


@dataclass(frozen=True, slots=True)
class RowClass:
    """How one row is spread over threads; equal classes add in the same order.

    Attributes:
        vector: consecutive elements of a thread.
        lanes: threads of a warp along the row.
        warps: warps along the row.
    """

    vector: int
    lanes: int
    warps: int


def row_class(key: ShapeKey, rows: int, num_warps: int) -> RowClass:
    """Row class of a [rows, BLOCK_N] tile, as Triton's default blocked layout makes it.

    The layout takes the widest load that the row pitch allows and that leaves no
    thread idle, then fills the row with lanes, then with warps; what is left of
    either goes to further rows.
    """
    width = dict(key.axes)["hidden_size"]
    block = next_power_of_2(width)
    aligned = width & -width  # elements by which every row start is aligned
    vector = min(
        _VECTOR_BYTES // DTYPES[key.dtype][1],
        aligned,
        max(1, rows * block // (_WARP_THREADS * num_warps)),
    )
    lanes = min(_WARP_THREADS, block // vector)
    return RowClass(vector, lanes, min(num_warps, block // (vector * lanes)))


def row_grid(axes: Axes, launch_config: LaunchConfig) -> Grid:
    """One program for every ROWS * STEPS rows."""
    span = launch_config.knob("ROWS") * launch_config.knob("STEPS")
    return ceil_div(axes["num_tokens"], span), 1, 1


def row_constexprs(axes: Axes, _dtype: str, launch_config: LaunchConfig) -> Mapping[str, int]:
    """The width, its block, and the knobs of ``forward`` and ``dx``."""
    return {
        "N": axes["hidden_size"],
        "BLOCK_N": next_power_of_2(axes["hidden_size"]),
        "ROWS": launch_config.knob("ROWS"),
        "STEPS": launch_config.knob("STEPS"),
        "STAGES": launch_config.knob("STAGES"),
    }


def row_baseline(key: ShapeKey) -> LaunchConfig:
    """One row a program, with a warp for every 512 elements, from 1 to 16 warps.

    That is 16 elements a thread, two 16-byte loads of bf16, and equals the rule of
    Liger-Kernel's ``calculate_settings`` from 4096 to 16384 wide (8, then 16 warps);
    below, Liger's floor of 4 warps would leave threads of narrow rows idle. A row too
    narrow for one 16-byte load in each lane of a warp shares its warp with the next
    rows, as quack's threads-per-row rule has it: 16 threads for 128 elements of bf16.
    """
    width = dict(key.axes)["hidden_size"]
    block = next_power_of_2(width)
    vector = min(_VECTOR_BYTES // DTYPES[key.dtype][1], width & -width)
    warps = min(max(block // (_WARP_THREADS * _BASELINE_PER_THREAD), 1), 16)
    rows = max(_WARP_THREADS * vector // block, 1)
    return LaunchConfig.of(ROWS=rows, STEPS=1, STAGES=1, num_warps=warps)


def row_candidates(key: ShapeKey) -> tuple[LaunchConfig, ...]:
    """Rows a program, warps and pipelining within the baseline's row class."""
    configs = [
        LaunchConfig.of(ROWS=rows, STEPS=steps, STAGES=stages, num_warps=warps)
        for steps, stages in _PIPELINES
        for rows in _ROWS
        for warps in _WARPS
    ]
    fixed = row_baseline(key)
    return tuple(item for item in configs if item != fixed and prune_rows(item, key) is None)


def prune_rows(launch_config: LaunchConfig, key: ShapeKey) -> str | None:
    """Why a config of ``forward`` or ``dx`` is not tried, or None."""
    fixed = row_baseline(key)
    rows, warps = launch_config.knob("ROWS"), launch_config.num_warps
    if row_class(key, rows, warps) != row_class(key, fixed.knob("ROWS"), fixed.num_warps):
        return "another row class: the row is added in another order"
    tile = rows * next_power_of_2(dict(key.axes)["hidden_size"])
    registers = tile * DTYPES[ACCUMULATION[key.dtype]][1] // 4
    if registers > _MOST_REGISTERS * _WARP_THREADS * warps and rows > fixed.knob("ROWS"):
        return "more than 64 registers a thread for one tile"
    if launch_config.knob("STEPS") == 1:
        return None
    # dx keeps two tiles in flight a stage, and two programs should fit a multiprocessor
    staged_bytes = 2 * tile * DTYPES[key.dtype][1] * (launch_config.knob("STAGES") - 1)
    if staged_bytes > _PIPELINE_BYTES:
        return "the staged tiles leave no room for a second program"
    return None


def row_control(key: ShapeKey) -> LaunchConfig:
    """A wrong candidate: the baseline with a warp count of another row class.

    Raises:
        UsageError: the row is so narrow that it has one row class only.
    """
    fixed = row_baseline(key)
    rows, warps = fixed.knob("ROWS"), fixed.num_warps
    own = row_class(key, rows, warps)
    for other in (warps * 2, warps // 2):
        if other in _WARPS and row_class(key, rows, other) != own:
            return LaunchConfig.of(ROWS=rows, STEPS=1, STAGES=1, num_warps=other)
    raise UsageError(
        f"rms_norm at {key}: a row of at most 32 elements at odd addresses has one order only",
        advice="Leave this size out of the preset: its fixed launch has no rival.",
    )


def num_blocks(axes: Axes) -> Mapping[str, int]:
    """Number of partial sums of dw."""
    return {"num_blocks": ceil_div(axes["num_tokens"], FOLD_ROWS)}


def partial_grid(axes: Axes, launch_config: LaunchConfig) -> Grid:
    """One program for every fold block and column tile."""
    return axes["num_blocks"], ceil_div(axes["hidden_size"], launch_config.knob("BLOCK_N")), 1


def partial_constexprs(axes: Axes, _dtype: str, launch_config: LaunchConfig) -> Mapping[str, int]:
    """The width, the fold's definition and the knobs of ``dw_partial``."""
    return {
        "N": axes["hidden_size"],
        "FOLD_ROWS": FOLD_ROWS,
        "LANES": PARTIAL_LANES,
        "HALVINGS": PARTIAL_LANES.bit_length() - 1,
        "BLOCK_N": launch_config.knob("BLOCK_N"),
        "STAGES": launch_config.knob("STAGES"),
    }


def partial_baseline(_key: ShapeKey) -> LaunchConfig:
    """Tiles of 8 x 128 with 4 warps: one 16-byte load of bf16 a thread and step."""
    return LaunchConfig.of(BLOCK_N=128, STAGES=1, num_warps=4)


def partial_candidates(key: ShapeKey) -> tuple[LaunchConfig, ...]:
    """Column tiles, warps and pipelining of ``dw_partial``."""
    return _column_candidates(key, PARTIAL_LANES, partial_baseline(key))


def fold_grid(axes: Axes, launch_config: LaunchConfig) -> Grid:
    """One program for every column tile."""
    return ceil_div(axes["hidden_size"], launch_config.knob("BLOCK_N")), 1, 1


def fold_constexprs(axes: Axes, _dtype: str, launch_config: LaunchConfig) -> Mapping[str, int]:
    """The width, the fold's definition and the knobs of ``dw_fold``."""
    return {
        "N": axes["hidden_size"],
        "LANES": FOLD_LANES,
        "HALVINGS": FOLD_LANES.bit_length() - 1,
        "BLOCK_N": launch_config.knob("BLOCK_N"),
        "STAGES": launch_config.knob("STAGES"),
    }


def fold_baseline(_key: ShapeKey) -> LaunchConfig:
    """Tiles of 32 x 32 with 4 warps: two 16-byte loads of fp32 a thread and step."""
    return LaunchConfig.of(BLOCK_N=32, STAGES=1, num_warps=4)


def fold_candidates(key: ShapeKey) -> tuple[LaunchConfig, ...]:
    """Column tiles, warps and pipelining of ``dw_fold``."""
    return _column_candidates(key, FOLD_LANES, fold_baseline(key))


def prune_columns(launch_config: LaunchConfig, key: ShapeKey, lanes: int) -> str | None:
    """Why a config of a dw kernel is not tried, or None."""
    columns = launch_config.knob("BLOCK_N")
    if columns > max(next_power_of_2(dict(key.axes)["hidden_size"]), min(_COLUMNS)):
        return "wider than the row"
    per_thread = lanes * columns // (_WARP_THREADS * launch_config.num_warps)
    if per_thread < 4:
        return "less than one 8-byte load a thread: more instructions for the same bytes"
    if per_thread > 32:
        return "more than 32 running sums a thread: registers limit the occupancy"
    return None


def _column_candidates(key: ShapeKey, lanes: int, fixed: LaunchConfig) -> tuple[LaunchConfig, ...]:
    configs = [
        LaunchConfig.of(BLOCK_N=columns, STAGES=stages, num_warps=warps)
        for stages in (1, 2, 3)
        for columns in _COLUMNS
        for warps in (1, 2, 4, 8)
    ]
    return tuple(
        item for item in configs if item != fixed and prune_columns(item, key, lanes) is None
    )
