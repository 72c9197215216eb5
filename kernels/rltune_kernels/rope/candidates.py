"""Launch configs of RoPE.

Each pair is rotated alone and the fused product is written out, so no knob moves a byte.
"""

from __future__ import annotations

from collections.abc import Mapping

from rltune.core.launch import Grid, LaunchConfig, ceil_div, next_power_of_2
from rltune.core.operator import Axes
from rltune.core.shapes import ShapeKey

SWEEP_POSITIONS = 4096
"""Rows of the caches in a sweep. A call's own number is passed at run time and no constexpr."""

_WARP_THREADS = 32
_ROWS = (1, 2, 4, 8, 16, 32, 64)
_WARPS = (1, 2, 4, 8)
_MOST_PER_THREAD = 16


def cache_axes(axes: Axes) -> Mapping[str, int]:
    """Sizes of the caches and of positions, where the caller does not say."""
    return {
        "num_pairs": axes["rotary_dim"] // 2,
        "num_positions": axes.get("num_positions", axes["num_tokens"]),
        "max_positions": axes.get("max_positions", SWEEP_POSITIONS),
    }


def grid(axes: Axes, launch_config: LaunchConfig) -> Grid:
    """One program for every ROWS rows of q, then of k; a row is one head of one token."""
    tokens, rows = axes["num_tokens"], launch_config.knob("ROWS")
    programs = (ceil_div(tokens * axes[heads], rows) for heads in ("num_heads", "num_key_heads"))
    return sum(programs), 1, 1


def forward_constexprs(axes: Axes, _dtype: str, launch_config: LaunchConfig) -> Mapping[str, int]:
    """The sizes of a token, the direction +1, and the knobs."""
    return _constexprs(axes, launch_config, 1)


def backward_constexprs(axes: Axes, _dtype: str, launch_config: LaunchConfig) -> Mapping[str, int]:
    """The sizes of a token, the direction -1, and the knobs."""
    return _constexprs(axes, launch_config, -1)


def baseline(key: ShapeKey) -> LaunchConfig:
    """All query heads of one token a program, at most 16 pairs a thread, 4 warps.

    The launch of Liger-Kernel's ``_triton_rope`` for up to 2048 pairs of a token.
    """
    axes = dict(key.axes)
    most_rows = max(_MOST_PER_THREAD * _WARP_THREADS * 4 // _block_pairs(key), 1)
    return LaunchConfig.of(ROWS=min(next_power_of_2(axes["num_heads"]), most_rows), num_warps=4)


def candidates(key: ShapeKey) -> tuple[LaunchConfig, ...]:
    """Rows a program and warps."""
    configs = [LaunchConfig.of(ROWS=rows, num_warps=warps) for rows in _ROWS for warps in _WARPS]
    fixed = baseline(key)
    return tuple(item for item in configs if item != fixed and prune(item, key) is None)


def prune(launch_config: LaunchConfig, key: ShapeKey) -> str | None:
    """Why a config is not tried, or None."""
    pairs = launch_config.knob("ROWS") * _block_pairs(key)
    threads = _WARP_THREADS * launch_config.num_warps
    if pairs < threads:
        return "threads without a pair"
    if pairs > _MOST_PER_THREAD * threads:
        return "more than 16 pairs a thread, six registers each, limit the occupancy"
    return None


def _block_pairs(key: ShapeKey) -> int:
    return next_power_of_2(dict(key.axes)["rotary_dim"] // 2)


def _constexprs(axes: Axes, launch_config: LaunchConfig, sign: int) -> Mapping[str, int]:
    pairs = axes["rotary_dim"] // 2
    rest = axes["head_dim"] - 2 * pairs
    return {
        "H_Q": axes["num_heads"],
        "H_K": axes["num_key_heads"],
        "D": axes["head_dim"],
        "PAIRS": pairs,
        "SIGN": sign,
        "BLOCK_PAIRS": next_power_of_2(pairs),
        "BLOCK_REST": next_power_of_2(max(rest, 1)),
        "ROWS": launch_config.knob("ROWS"),
    }
