"""The sweep: plan, compile, dedupe, qualify, measure, confirm, select.

Every stage reads and writes the journal, so an interrupted sweep goes on where
it stopped, and what is decided is a pure function of the complete journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rltune.bundle.schema_v1 import Target
from rltune.core.fingerprint import source_fingerprint
from rltune.core.operator import OperatorSpec
from rltune.runtime.device import DeviceFacts
from rltune.runtime.sources import read_source
from rltune.sweep.bench import Bench
from rltune.sweep.decide import (
    REPLICATION_PROCESSES,
    PartDecision,
    Points,
    confirm_points,
    decide,
    missing_edges,
    replicate_points,
    screen_points,
)
from rltune.sweep.events import Observer
from rltune.sweep.journal import Journal
from rltune.sweep.plan import Plan, plan_parts, target_facts
from rltune.sweep.preset import Preset
from rltune.sweep.processes import WorkerProcess
from rltune.sweep.stage_compile import compile_programs
from rltune.sweep.stage_measure import measure
from rltune.sweep.stage_qualify import compare_edges, qualify_candidates
from rltune.sweep.store import ProgramStore

EVIDENCE_BLOB = "evidence"
"""Id of the evidence blob of a bundle with one driver."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepResult:
    """A finished sweep.

    Attributes:
        bench: plan, journal and programs.
        target: where the result holds.
        decisions: one per kernel and key.
    """

    bench: Bench
    target: Target
    decisions: tuple[PartDecision, ...]


def make_plan(preset: Preset, operators: Sequence[OperatorSpec], target: Target) -> Plan:
    """Plan a preset over the installed operators for one target.

    Raises:
        PresetError: the preset names something that does not exist.
        SourceError: a kernel's source has no fingerprint.
    """
    parts = plan_parts(preset, operators)
    kernels = {part.kernel.kernel_id: part.kernel for part in parts}
    return Plan(
        parts=parts,
        budget=preset.budget,
        target=target_facts(target),
        fingerprints={
            name: source_fingerprint(kernel, read_source) for name, kernel in kernels.items()
        },
    )


def open_journal(path: Path, plan_digest: str, *, resume: bool) -> Journal:
    """The journal at ``path``: resumed if asked for and there, else new.

    Raises:
        JournalError: it is of another plan, or was altered.
    """
    if resume and path.exists():
        return Journal.resume(path, plan_digest)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    return Journal.create(path, plan_digest)


def run_sweep(
    plan: Plan,
    facts: DeviceFacts,
    journal: Journal,
    folder: Path,
    observer: Observer,
    *,
    specs: str,
) -> SweepResult:
    """Run every stage that the journal does not have yet.

    Args:
        plan: the plan.
        facts: facts of the device, as probed.
        journal: open journal of this plan.
        folder: work folder for programs.
        observer: who watches.
        specs: ``module:function`` giving the operator specs, for worker processes.

    Raises:
        BaselineError: a baseline does not compile, run or repeat itself.
        BytesDifferError: a planted wrong candidate was not rejected.
        EnvironmentUnfitError: a worker process does not start.
    """
    target = facts.to_target(evidence=EVIDENCE_BLOB)
    bench = Bench(
        plan=plan,
        journal=journal,
        store=ProgramStore(folder / "programs"),
        observer=observer,
        compile_target=facts.compile_target,
        specs=specs,
        device="cpu" if facts.kind == "interpreter" else "cuda:0",
    )
    compile_programs(bench, triton=target.triton)
    worker = WorkerProcess(specs, bench.device)
    try:
        qualify_candidates(bench, worker)
        screen = screen_points(plan, journal.records)
        observer.stage("screen", len(screen))
        measure(bench, worker, "screen", screen, samples=plan.budget.screen_samples)
    finally:
        worker.close()
    contenders = confirm_points(plan, journal.records)
    _in_fresh_processes(bench, "confirm", contenders, plan.budget.processes)
    finalists = replicate_points(plan, journal.records)
    _in_fresh_processes(bench, "replicate", finalists, REPLICATION_PROCESSES)
    return SweepResult(bench=bench, target=target, decisions=_settle(bench))


def _in_fresh_processes(bench: Bench, kind: str, points: Points, processes: int) -> None:
    bench.observer.stage(kind, len(points) * processes)
    for process in range(processes):
        worker = WorkerProcess(bench.specs, bench.device)
        samples = bench.plan.budget.confirm_samples
        try:
            measure(bench, worker, kind, points, samples=samples, process=process)
        finally:
            worker.close()


def _settle(bench: Bench) -> tuple[PartDecision, ...]:
    """Decide, compare at the edges of each range, and decide again until nothing is left."""
    worker = WorkerProcess(bench.specs, bench.device)
    try:
        while True:
            decisions = decide(bench.plan, bench.journal.records)
            edges = missing_edges(decisions, bench.journal.records)
            if not edges:
                return decisions
            bench.observer.stage("edges", sum(len(cases) for _, _, cases in edges))
            for part, candidate_id, cases in edges:
                compare_edges(bench, worker, part, candidate_id, cases)
    finally:
        worker.close()
