"""From a finished sweep to the unsigned bundle: predicate, programs, evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from rltune.bundle.codec import build_body, write_unsigned
from rltune.bundle.evidence import encode_evidence
from rltune.bundle.schema_v1 import (
    BlobRole,
    Decision,
    Launch,
    Predicate,
    Program,
    Provenance,
    Range,
    Source,
)
from rltune.core.fingerprint import space_digest
from rltune.sweep import outcomes
from rltune.sweep.decide import EdgeRejections, PartDecision, edge_rejections
from rltune.sweep.outcomes import VARIANTS, Qualified, compile_key, measure_key
from rltune.sweep.plan import KernelPlan
from rltune.sweep.ranges import share_served
from rltune.sweep.run import EVIDENCE_BLOB, SweepResult
from rltune.sweep.select import Selected

EVIDENCE_FORMAT = "rltune-evidence/1"


def write_statement(
    path: Path,
    result: SweepResult,
    provenance: Provenance,
    *,
    stream: str,
    sequence: int,
    valid_days: int,
    now: datetime | None = None,
) -> Predicate:
    """Write the unsigned bundle of a finished sweep.

    Args:
        path: the new file; replaced atomically if there.
        result: the sweep.
        provenance: who, what, when.
        stream: ``product/device class/channel``.
        sequence: number within the stream.
        valid_days: days until ``not_after``.
        now: time of creation; the clock's if None.

    Returns:
        The predicate as written.
    """
    created = (now or datetime.now(UTC)).replace(microsecond=0)
    programs = _programs(result)
    blobs: list[tuple[str, BlobRole, bytes]] = [
        (EVIDENCE_BLOB, "evidence", encode_evidence(evidence(result)))
    ]
    blobs += [
        (program.blob, "program", result.bench.store.read(program.digest)) for program in programs
    ]
    index, body = build_body(blobs)
    predicate = Predicate(
        stream=stream,
        sequence=sequence,
        created=_text(created),
        not_after=_text(created + timedelta(days=valid_days)),
        target=result.target,
        sources=_sources(result),
        decisions=tuple(
            sorted(
                (_decision(item, result) for item in result.decisions),
                key=lambda item: (item.kernel, item.key),
            )
        ),
        programs=programs,
        blobs=index,
        body_size=len(body),
        provenance=provenance,
    )
    write_unsigned(path, predicate, body)
    return predicate


def _text(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _compile_record(result: SweepResult, part: KernelPlan, launch_id: str) -> Mapping[str, Any]:
    return result.bench.journal.records["compile", compile_key(part, launch_id, "program")]


def _launch(result: SweepResult, part: KernelPlan, launch_id: str) -> Launch:
    return Launch(
        candidate_id=launch_id,
        launch_config=part.launches[launch_id],
        program=_compile_record(result, part, launch_id)["digest"],
    )


def _decision(item: PartDecision, result: SweepResult) -> Decision:
    return Decision(
        kernel=item.part.kernel.kernel_id,
        key=item.part.key,
        baseline=_launch(result, item.part, item.part.baseline.candidate_id),
        ranges=tuple(
            Range(tokens=found.tokens, launch=_launch(result, item.part, found.candidate_id))
            for found in item.ranges
        ),
        reason=item.reason,
    )


def _programs(result: SweepResult) -> tuple[Program, ...]:
    """Every program a decision refers to, the baselines' too, ascending by digest."""
    records = {}
    for item in result.decisions:
        ids = [item.part.baseline.candidate_id, *(found.candidate_id for found in item.ranges)]
        for launch_id in ids:
            record = _compile_record(result, item.part, launch_id)
            records[record["digest"]] = record
    return tuple(
        Program(
            digest=digest,
            blob=f"program-{digest[:12]}",
            entry=record["entry"],
            num_warps=record["num_warps"],
            num_ctas=record["num_ctas"],
            shared_bytes=record["shared_bytes"],
            global_scratch_bytes=record["global_scratch_bytes"],
        )
        for digest, record in sorted(records.items())
    )


def _sources(result: SweepResult) -> tuple[Source, ...]:
    spaces: dict[str, dict[str, Sequence[str]]] = {}
    for item in result.decisions:
        part = item.part
        ids = [candidate.candidate_id for candidate in part.candidates]
        spaces.setdefault(part.kernel.kernel_id, {})[str(part.key)] = ids
    fingerprints = result.bench.plan.fingerprints
    return tuple(
        Source(kernel=kernel, fingerprint=fingerprints[kernel], space=space_digest(spaces[kernel]))
        for kernel in sorted(spaces)
    )


def evidence(result: SweepResult) -> dict[str, Any]:
    """Everything behind the decisions, as canonical JSON can hold it."""
    rejected = edge_rejections(result.bench.journal.records)
    return {
        "format": EVIDENCE_FORMAT,
        "parts": [_part_evidence(item, result, rejected) for item in result.decisions],
    }


def _part_evidence(
    item: PartDecision, result: SweepResult, rejected: EdgeRejections
) -> dict[str, Any]:
    part, records = item.part, result.bench.journal.records
    first, last = (part.measurement[0][0], part.measurement[-1][0]) if part.measurement else (1, 1)
    return {
        "kernel": part.kernel.kernel_id,
        "key": part.key.to_json(),
        "repeats": result.bench.plan.budget.repeats,
        "candidates": candidate_evidence(part, records, rejected),
        "cases": _case_evidence(part, records),
        "control": _control_evidence(part, records),
        "points": [_point_evidence(item, tokens, label) for tokens, label in part.measurement],
        "samples_ps": _sample_evidence(part, records),
        "share_served_ppm": share_served(item.ranges, first, last),
    }


def candidate_evidence(
    part: KernelPlan, records: outcomes.Records, rejected: EdgeRejections
) -> list[dict[str, Any]]:
    """What became of each candidate; ``rejected`` holds those of the edges of ranges."""
    dropped = outcomes.triage(part, records)
    rows = []
    for candidate in part.candidates:
        candidate_id = candidate.candidate_id
        row: dict[str, Any] = {"candidate_id": candidate_id}
        if candidate_id in dropped:
            gone = dropped[candidate_id]
            row |= {"outcome": gone.cause, "text": gone.text}
        else:
            at_edge = rejected.get((outcomes.launch_key(part, candidate_id), candidate_id))
            verdict = at_edge or outcomes.judge(part, candidate_id, records)
            if isinstance(verdict, Qualified):
                row |= {
                    "outcome": outcomes.QUALIFIED_OUTCOME,
                    "cases": verdict.cases,
                    "rows": verdict.rows,
                }
                row |= {"compared_bytes": verdict.compared_bytes}
            else:
                row |= {"outcome": verdict.cause, "text": verdict.text}
        rows.append(row)
    return rows


def _case_evidence(part: KernelPlan, records: outcomes.Records) -> list[dict[str, Any]]:
    rows = []
    for case in part.qualification:
        for variant in VARIANTS:
            record = records.get(("qualify", outcomes.qualify_key(part, case, variant)))
            if record is not None and "digests" in record:
                row = {"case": case.case_id, "variant": variant, "digests": record["digests"]}
                rows.append({**row, "rows": record["rows"]})
    return rows


def _control_evidence(part: KernelPlan, records: outcomes.Records) -> dict[str, Any] | None:
    if part.control is None:
        return None
    found: dict[str, Any] = {"candidate_id": part.control.candidate_id}
    for variant in VARIANTS:
        count = outcomes.control_result(part, records, variant)
        found[variant] = {
            "rejected_cases": count.rejected_cases,
            "cases": count.cases,
            "flipped_rows": count.flipped_rows,
            "rows": count.rows,
        }
    return found


def _point_evidence(item: PartDecision, tokens: int, label: str) -> dict[str, Any]:
    row: dict[str, Any] = {"tokens": tokens, "label": label}
    decision = item.points.get(tokens)
    if decision is None:
        return {**row, "outcome": "not confirmed"}
    if isinstance(decision, Selected):
        return {
            **row,
            "outcome": "selected",
            "candidate_id": decision.candidate_id,
            "gain_ppm": decision.gain_ppm,
            "required_ppm": decision.required_ppm,
            "band_ppm": decision.band_ppm,
        }
    return {**row, "outcome": decision.reason, "band_ppm": decision.band_ppm}


def _sample_evidence(part: KernelPlan, records: outcomes.Records) -> dict[str, Any]:
    """Raw samples by stage, process and token count."""
    suffixes = {measure_key(part, tokens, 0).partition(" | ")[2] for tokens, _ in part.measurement}
    found: dict[str, Any] = {}
    for (kind, key), body in records.items():
        if kind in ("screen", "confirm", "replicate") and key.partition(" | ")[2] in suffixes:
            found[f"{kind} {key.partition(' | ')[0]} {key.rpartition('=')[2]}"] = dict(body)
    return found
