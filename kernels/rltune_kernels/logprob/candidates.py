"""Launch configs of logprob.

Rows are read in lanes whose order is written out, dlogits is element-wise and the
merge of shards works on one token at a time: every knob is safe.
"""

from __future__ import annotations

from collections.abc import Mapping

from rltune.core.launch import Grid, LaunchConfig, ceil_div
from rltune.core.operator import Axes
from rltune.core.shapes import ShapeKey

SWEEP_SHARD_SIZE = 1000
"""Columns of a shard in a sweep of ``merge``. A call's own number is passed at run time."""

_MERGE_BLOCKS = (32, 64, 128, 256, 512, 1024)
_MERGE_WARPS = (1, 2, 4, 8)
_WARP_THREADS = 32


def num_columns(axes: Axes) -> Mapping[str, int]:
    """Columns of a shard and of all, where the caller does not say: a sweep has no logits."""
    shard_size = axes.get("shard_size", SWEEP_SHARD_SIZE)
    return {
        "shard_size": shard_size,
        "vocab_size": axes.get("vocab_size", shard_size * axes["num_shards"]),
    }


def merge_grid(axes: Axes, launch_config: LaunchConfig) -> Grid:
    """One program for every BLOCK tokens."""
    return ceil_div(axes["num_tokens"], launch_config.knob("BLOCK")), 1, 1


def merge_constexprs(axes: Axes, _dtype: str, launch_config: LaunchConfig) -> Mapping[str, int]:
    """The number of shards and the knob of ``merge``."""
    return {
        "SHARDS": axes["num_shards"],
        "FOLDS": axes["num_shards"].bit_length() - 1,
        "BLOCK": launch_config.knob("BLOCK"),
    }


def merge_baseline(_key: ShapeKey) -> LaunchConfig:
    """128 tokens with 4 warps: a token a thread."""
    return LaunchConfig.of(BLOCK=128, num_warps=4)


def merge_candidates(key: ShapeKey) -> tuple[LaunchConfig, ...]:
    """Tokens a program and warps of ``merge``."""
    configs = [
        LaunchConfig.of(BLOCK=block, num_warps=warps)
        for block in _MERGE_BLOCKS
        for warps in _MERGE_WARPS
    ]
    fixed = merge_baseline(key)
    return tuple(item for item in configs if item != fixed and prune_merge(item) is None)


def prune_merge(launch_config: LaunchConfig) -> str | None:
    """Why a config of ``merge`` is not tried, or None."""
    per_thread = launch_config.knob("BLOCK") / (_WARP_THREADS * launch_config.num_warps)
    if per_thread < 1:
        return "threads without a token"
    if per_thread > 4:
        return "more than four tokens a thread: fewer programs share the latency"
    return None
