"""Two figures of one implementation: device time of graph replays, wall time of calls.

Device time: one CUDA graph holds one call on each input set, and keeps every result, so
that no call finds its inputs or outputs in the L2 cache; the cache is overwritten before
each replay besides. Wall time: calls back to back as a program makes them, results freed
at once, then one wait.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tools.peers.binding import Bound
from tools.peers.request import Effort

_MIN_SETS = 4
_MAX_SETS = 128
_L2_MULTIPLE = 4
_WARM_CALLS = 3


def set_count(bytes_each: int, l2_bytes: int) -> int:
    """How many input sets exceed four times the L2 cache, 4 to 128."""
    wanted = -(-_L2_MULTIPLE * l2_bytes // max(bytes_each, 1))
    return max(_MIN_SETS, min(wanted, _MAX_SETS))


class Flush:
    """Overwrites the L2 cache with a buffer of four times its size."""

    def __init__(self, l2_bytes: int, device: torch.device) -> None:
        self._buffer = torch.empty(_L2_MULTIPLE * l2_bytes, dtype=torch.uint8, device=device)

    def __call__(self) -> None:
        """Queue it on the current stream."""
        self._buffer.zero_()


def time_eager(bound: Bound, effort: Effort, wait: Callable[[], None]) -> list[int]:
    """Wall nanoseconds per call, one number a round."""
    for index in range(_WARM_CALLS):
        bound.calls[index % len(bound.calls)]()
    found = []
    for _ in range(effort.eager_samples):
        if bound.restore is not None:
            bound.restore()
        found.append(_round_ns(bound, effort.calls, wait) // effort.calls)
    return found


def _round_ns(bound: Bound, calls: int, wait: Callable[[], None]) -> int:
    steps = [bound.calls[index % len(bound.calls)] for index in range(calls)]
    with _no_collection():
        wait()
        start = time.perf_counter_ns()
        for step in steps:
            step()
        wait()
        return time.perf_counter_ns() - start


def time_graph(bound: Bound, effort: Effort, flush: Callable[[], None]) -> list[int]:
    """Device nanoseconds per call, one number a replay. The current stream is captured.

    Raises:
        RuntimeError: the calls cannot be captured.
    """
    graph = _capture(bound)
    graph.replay()
    # torch leaves this constructor untyped.
    make: Any = torch.cuda.Event
    pending = []
    for _ in range(effort.graph_samples):
        if bound.restore is not None:
            bound.restore()
        flush()
        start, end = make(enable_timing=True), make(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        pending.append((start, end))
    torch.cuda.synchronize()
    return [round(a.elapsed_time(b) * 1e6 / len(bound.calls)) for a, b in pending]


def _capture(bound: Bound) -> torch.cuda.CUDAGraph:
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    kept: list[Any] = []
    # A collection may end other graphs, which a capture does not allow.
    with _no_collection():
        # The context manager torch.cuda.graph also empties the allocator's cache each time.
        graph.capture_begin()
        try:
            kept.extend(call() for call in bound.calls)
        finally:
            graph.capture_end()
    return graph


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
