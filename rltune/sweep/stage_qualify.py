"""Compare bytes: every candidate against the baseline, before anything is timed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rltune.errors import BaselineError, BytesDifferError
from rltune.sweep import outcomes
from rltune.sweep.bench import Bench
from rltune.sweep.outcomes import (
    VARIANTS,
    Variant,
    compile_key,
    edge_key,
    launch_key,
    qualify_key,
)
from rltune.sweep.plan import KernelPlan, QualificationCase
from rltune.sweep.processes import WorkerProcess


def qualify_candidates(bench: Bench, worker: WorkerProcess) -> None:
    """Compare every candidate with the baseline on every input.

    A rejected candidate is not run again. The control runs in every case, so
    that its flip rate is known.

    Raises:
        BaselineError: a baseline cannot run or does not repeat itself.
        BytesDifferError: a planted wrong candidate was not rejected.
    """
    cases = [
        (part, case, variant)
        for part in bench.plan.parts
        for case in part.qualification
        for variant in outcomes.variants(part)
    ]
    bench.observer.stage("qualify", len(cases))
    live: dict[str, list[str]] = {}
    for part, case, variant in cases:
        key = qualify_key(part, case, variant)
        resumed = bench.journal.done("qualify", key)
        alive = live.setdefault(part.plan_id, _not_dropped(part, bench.journal.records))
        if not resumed:
            _compare(bench, worker, part, case, variant, alive)
        _remove_rejected(bench, part, case, variant, alive)
        bench.observer.advance(key, resumed=resumed)
    for part in bench.plan.parts:
        check_control(part, bench.journal.records, runs_programs=bench.runs_programs)


def _not_dropped(part: KernelPlan, records: outcomes.Records) -> list[str]:
    dropped = outcomes.triage(part, records)
    return [item.candidate_id for item in part.candidates if item.candidate_id not in dropped]


def _compare(
    bench: Bench,
    worker: WorkerProcess,
    part: KernelPlan,
    case: QualificationCase,
    variant: Variant,
    alive: list[str],
) -> None:
    key = qualify_key(part, case, variant)
    chosen = [*alive, *([part.control.candidate_id] if part.control else [])]
    if variant == "witness":
        counted = outcomes.witnessed(part, bench.journal.records)
        if part.baseline.candidate_id not in counted:
            bench.journal.append("qualify", key, {"status": "another layout", "outcomes": {}})
            return
        chosen = [launch_id for launch_id in chosen if launch_id in counted]
    result = _run_case(bench, worker, part, case, variant, chosen)
    if result["status"] == "did not fit":
        # Not recorded, so that a resumed sweep tries again.
        bench.observer.note(f"{key}: did not fit into free memory; not compared")
        return
    bench.journal.append("qualify", key, result)


def _run_case(
    bench: Bench,
    worker: WorkerProcess,
    part: KernelPlan,
    case: QualificationCase,
    variant: Variant,
    chosen: list[str],
) -> dict[str, Any]:
    request = {
        "op": "qualify",
        "tokens": case.tokens,
        "seed": case.seed,
        "generator": case.generator,
        "witness": variant == "witness",
        "repeats": bench.plan.budget.repeats,
    }
    result = bench.ask(worker, part, variant, chosen, request)
    if result["status"] == "baseline":
        raise BaselineError(
            f"{qualify_key(part, case, variant)}: {result['mismatch']['text']}",
            advice="A baseline that does not repeat itself cannot define the result.",
        )
    return result


def _remove_rejected(
    bench: Bench, part: KernelPlan, case: QualificationCase, variant: Variant, alive: list[str]
) -> None:
    records = bench.journal.records
    for candidate_id in tuple(alive):
        found = outcomes.mismatch(part, candidate_id, case, variant, records)
        if found:
            bench.observer.dropped(launch_key(part, candidate_id), f"{found.cause}: {found.text}")
        if found or outcomes.lost(part, candidate_id, records):
            alive.remove(candidate_id)


def check_control(part: KernelPlan, records: outcomes.Records, *, runs_programs: bool) -> None:
    """Make sure that the planted wrong candidate of a kernel was caught.

    Bytes must have caught it. The interpreter ignores warps, so there a reduction
    layout that differs counts too.

    Raises:
        BytesDifferError: it was not caught: qualification of this kernel proves nothing.
    """
    if part.control is None:
        return
    caught = any(
        outcomes.control_result(part, records, variant).rejected_cases for variant in VARIANTS
    )
    if not runs_programs:
        control_id, baseline_id = part.control.candidate_id, part.baseline.candidate_id
        layouts = [
            records["compile", compile_key(part, item, "program")].get("reductions")
            for item in (control_id, baseline_id)
        ]
        caught = caught or layouts[0] != layouts[1]
    if not caught:
        raise BytesDifferError(
            f"{part.plan_id}: expected the planted wrong candidate "
            f"{part.control.candidate_id} to be rejected, found it equal in every case",
            advice="Add qualification cases with more rows; no bundle was written.",
        )


def compare_edges(
    bench: Bench,
    worker: WorkerProcess,
    part: KernelPlan,
    candidate_id: str,
    cases: Iterable[QualificationCase],
) -> None:
    """Compare one candidate at the sizes around the ends of its range."""
    for case in cases:
        key = edge_key(part, candidate_id, case)
        resumed = bench.journal.done("edge", key)
        if not resumed:
            result = _run_case(bench, worker, part, case, "program", [candidate_id])
            if result["status"] == "did not fit":
                # A range whose end cannot be compared is not shown to be safe.
                unfit = {"kind": "did not fit", "text": "free memory was too small", "rows": 0}
                result = {**result, "outcomes": {candidate_id: unfit}}
            bench.journal.append("edge", key, result)
        bench.observer.advance(key, resumed=resumed)
