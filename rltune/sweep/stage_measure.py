"""Time launches at measurement points, in one process or in several fresh ones."""

from __future__ import annotations

import random

from rltune.sweep import outcomes
from rltune.sweep.bench import Bench
from rltune.sweep.decide import Points
from rltune.sweep.outcomes import measure_key
from rltune.sweep.processes import WorkerProcess


def measure(
    bench: Bench,
    worker: WorkerProcess,
    kind: str,
    points: Points,
    *,
    samples: int,
    process: int = 0,
) -> None:
    """Time candidates beside the baseline at each of the points.

    Args:
        bench: what the stages share.
        worker: measuring process.
        kind: journal kind: ``screen``, ``confirm`` or ``replicate``.
        points: candidate ids by plan id and token count.
        samples: samples per launch.
        process: number of the fresh process, part of the journal key.
    """
    parts = {part.plan_id: part for part in bench.plan.parts}
    for (plan_id, tokens), candidate_ids in points.items():
        part = parts[plan_id]
        key = measure_key(part, tokens, process)
        resumed = bench.journal.done(kind, key)
        if not resumed:
            request = {
                "op": "measure",
                "tokens": tokens,
                "samples": samples,
                "seed": random.Random(f"{kind} {key}").getrandbits(31),  # noqa: S311 - an order
            }
            records = bench.journal.records
            alive = [item for item in candidate_ids if outcomes.lost(part, item, records) is None]
            result = bench.ask(worker, part, "program", alive, request)
            bench.journal.append(kind, key, result)
        bench.observer.advance(key, resumed=resumed)
