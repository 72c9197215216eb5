"""Timing launches: replays of a CUDA graph, or wall time under the interpreter.

All candidates of a case are timed the same way, interleaved in random order.
If a graph cannot be captured for one of them, the whole case falls back to
event timing, never a mixture. Times are integers in picoseconds.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rltune.sweep.buffers import CaseBuffers

Method = Literal["graph", "events", "wall"]

_GRAPH_TARGET_NS = 200_000
"""A replayed graph lasts at least about this long, so that event resolution does not count."""
_MAX_NODES = 64
_MAX_SETS = 32
_MAX_BYTES = 8 << 30

LaunchSet = Callable[[CaseBuffers], None]
"""Queues one launch on the current stream; does not wait."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Times of all launches of one case.

    Attributes:
        method: how they were taken.
        cold_ps: samples per launch id over rotating buffers larger than the L2 cache.
        warm_ps: samples per launch id over one buffer set.
        buffer_sets: number of rotating sets.
    """

    method: Method
    cold_ps: Mapping[str, tuple[int, ...]]
    warm_ps: Mapping[str, tuple[int, ...]]
    buffer_sets: int


def buffer_set_count(case_bytes: int, l2_bytes: int) -> int:
    """How many sets exceed twice the L2 cache, within the limits of count and memory."""
    wanted = 1 + 2 * l2_bytes // max(case_bytes, 1)
    return max(1, min(wanted, _MAX_SETS, _MAX_BYTES // max(case_bytes, 1)))


def time_wall(
    launches: Mapping[str, LaunchSet], buffers: CaseBuffers, samples: int, seed: int
) -> Timing:
    """Wall time of launches that run at once on the host, as the interpreter's do.

    Each was launched before, so that no first call is timed.
    """
    taken: dict[str, list[int]] = {name: [] for name in launches}
    for name in _order(launches, samples, seed):
        start = time.perf_counter_ns()
        launches[name](buffers)
        taken[name].append((time.perf_counter_ns() - start) * 1000)
    result = _freeze(taken)
    return Timing(method="wall", cold_ps=result, warm_ps=result, buffer_sets=1)


def time_cuda(
    launches: Mapping[str, LaunchSet], sets: Sequence[CaseBuffers], samples: int, seed: int
) -> Timing:
    """Device time per launch, by graph replay where every launch can be captured.

    Args:
        launches: by id; the baseline among them.
        sets: rotating buffer sets, at least one.
        samples: samples per launch.
        seed: seed of the order.
    """
    import torch

    make_stream: Any = torch.cuda.Stream
    stream = make_stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        estimates = {name: _estimate_ns(launch, sets[0]) for name, launch in launches.items()}
        nodes = _node_count(min(estimates.values()), len(sets))
        method: Method = "graph"
        try:
            cold = {name: _capture(item, sets, nodes) for name, item in launches.items()}
            warm = {name: _capture(item, sets[:1], nodes) for name, item in launches.items()}
        except RuntimeError:
            method = "events"
            cold = {name: _repeat(item, sets, nodes) for name, item in launches.items()}
            warm = {name: _repeat(item, sets[:1], nodes) for name, item in launches.items()}
        return Timing(
            method=method,
            cold_ps=_sample(cold, nodes, samples, seed),
            warm_ps=_sample(warm, nodes, samples, seed + 1),
            buffer_sets=len(sets),
        )


def _node_count(shortest_ns: int, sets: int) -> int:
    wanted = -(-_GRAPH_TARGET_NS // max(shortest_ns, 1))
    return min(max(wanted, sets, 2), _MAX_NODES)


def _estimate_ns(launch: LaunchSet, buffers: CaseBuffers) -> int:
    launch(buffers)
    start, end = _events()
    start.record()
    launch(buffers)
    end.record()
    end.synchronize()
    return int(start.elapsed_time(end) * 1e6)


def _events() -> tuple[Any, Any]:
    import torch

    # torch leaves these constructors untyped.
    make: Any = torch.cuda.Event
    return make(enable_timing=True), make(enable_timing=True)


def _capture(launch: LaunchSet, sets: Sequence[CaseBuffers], nodes: int) -> Callable[[], None]:
    import torch

    # The context manager torch.cuda.graph also empties the allocator's cache each time.
    graph = torch.cuda.CUDAGraph()
    graph.capture_begin()
    try:
        for index in range(nodes):
            launch(sets[index % len(sets)])
    finally:
        graph.capture_end()
    replay: Callable[[], None] = graph.replay
    return replay


def _repeat(launch: LaunchSet, sets: Sequence[CaseBuffers], nodes: int) -> Callable[[], None]:
    def run() -> None:
        for index in range(nodes):
            launch(sets[index % len(sets)])

    return run


def _sample(
    runs: Mapping[str, Callable[[], None]], nodes: int, samples: int, seed: int
) -> dict[str, tuple[int, ...]]:
    import torch

    taken: dict[str, list[int]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    pending = []
    for name in _order(runs, samples, seed):
        start, end = _events()
        start.record()
        runs[name]()
        end.record()
        pending.append((name, start, end))
    torch.cuda.synchronize()
    for name, start, end in pending:
        taken[name].append(int(start.elapsed_time(end) * 1e9 / nodes))
    return _freeze(taken)


def _order(names: Mapping[str, object], samples: int, seed: int) -> list[str]:
    shuffle = random.Random(seed)  # noqa: S311 - an order of measurement, not a secret
    order = []
    for _ in range(samples):
        round_ = list(names)
        shuffle.shuffle(round_)
        order.extend(round_)
    return order


def _freeze(taken: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(values) for name, values in taken.items()}
