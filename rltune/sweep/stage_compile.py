"""Compile every launch of the plan, ahead of the GPU work."""

from __future__ import annotations

from typing import Any

from rltune.errors import BaselineError, EnvironmentUnfitError
from rltune.sweep.bench import Bench
from rltune.sweep.events import Observer
from rltune.sweep.outcomes import (
    Dropped,
    Records,
    compile_key,
    launch_key,
    triage,
    variants,
)
from rltune.sweep.plan import KernelPlan
from rltune.sweep.programs import (
    CompiledProgram,
    CompileFailed,
    CompileOutcome,
    CompilePool,
    CompileRequest,
)


def compile_programs(bench: Bench, *, triton: str) -> None:
    """Compile all launches, and the witnesses of kernels with a control.

    Args:
        bench: what the stages share.
        triton: version the plan's target names.

    Raises:
        BaselineError: a baseline does not compile; nothing can be compared with it.
        EnvironmentUnfitError: the compile workers hold another Triton.
    """
    wanted = _wanted(bench)
    bench.observer.stage("compile", len(wanted))
    missing = []
    for request, key in wanted.items():
        if _compiled(bench, key):
            bench.observer.advance(key, resumed=True)
        else:
            missing.append(request)
    if missing:
        with CompilePool() as pool:
            if pool.triton != triton:
                raise EnvironmentUnfitError(
                    f"compile workers: expected Triton {triton}, found {pool.triton}",
                    advice="Use one environment for the whole sweep.",
                )
            for request, outcome in pool.compile_all(missing):
                _record(bench, wanted[request], outcome)
                bench.observer.advance(wanted[request])
    for part in bench.plan.parts:
        drop_unrun(part, bench.journal.records, bench.observer)


def _wanted(bench: Bench) -> dict[CompileRequest, str]:
    wanted: dict[CompileRequest, str] = {}
    for part in bench.plan.parts:
        for variant in variants(part):
            kernel = part.kernel if variant == "program" else part.kernel.witness()
            for launch_id, config in part.launches.items():
                request = CompileRequest(
                    kernel=kernel, key=part.key, launch_config=config, target=bench.compile_target
                )
                wanted[request] = compile_key(part, launch_id, variant)
    return wanted


def _compiled(bench: Bench, key: str) -> bool:
    record = bench.journal.records.get(("compile", key))
    return record is not None and ("error" in record or bench.store.intact(str(record["digest"])))


def _record(bench: Bench, key: str, outcome: CompileOutcome) -> None:
    if isinstance(outcome, CompiledProgram):
        bench.store.add(outcome.digest, outcome.binary)
    if not bench.journal.done("compile", key):
        bench.journal.append("compile", key, compile_record(outcome))


def compile_record(outcome: CompileOutcome) -> dict[str, Any]:
    """What the journal keeps of a compilation: why it failed, or all but the binary."""
    if isinstance(outcome, CompileFailed):
        return {"error": outcome.reason}
    return {
        "digest": outcome.digest,
        "entry": outcome.entry,
        "num_warps": outcome.num_warps,
        "num_ctas": outcome.num_ctas,
        "shared_bytes": outcome.shared_bytes,
        "global_scratch_bytes": outcome.global_scratch_bytes,
        "reductions": list(outcome.reductions),
    }


def drop_unrun(part: KernelPlan, records: Records, observer: Observer) -> dict[str, Dropped]:
    """Candidates that are out by their compilation alone; the observer is told of each.

    Raises:
        BaselineError: the baseline does not compile; nothing can be compared with it.
    """
    baseline_id = part.baseline.candidate_id
    baseline = records["compile", compile_key(part, baseline_id, "program")]
    if "error" in baseline:
        raise BaselineError(
            f"{launch_key(part, baseline_id)}: the baseline does not compile: {baseline['error']}",
            advice="Mend the kernel or its baseline rule; no bundle was written.",
        )
    found = triage(part, records)
    for candidate_id, dropped in found.items():
        observer.dropped(launch_key(part, candidate_id), f"{dropped.cause}: {dropped.text}")
    return found
