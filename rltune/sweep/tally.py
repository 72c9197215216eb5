"""What became of each candidate: by compiling alone, or by the evidence in a bundle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rltune.bundle.codec import BundleFile
from rltune.bundle.evidence import decode_evidence
from rltune.bundle.schema_v1 import CompileTarget, Predicate
from rltune.core.operator import OperatorSpec
from rltune.core.shapes import ShapeKey
from rltune.sweep.checks import check_sources
from rltune.sweep.events import Observer
from rltune.sweep.outcomes import (
    NOT_COMPARED_OUTCOME,
    QUALIFIED_OUTCOME,
    Records,
    compile_key,
)
from rltune.sweep.plan import KernelPlan
from rltune.sweep.programs import CompilePool, CompileRequest
from rltune.sweep.stage_compile import compile_record, drop_unrun

Outcomes = dict[str, dict[str, str]]
"""Outcome by candidate id, by plan id."""


def compile_outcomes(
    parts: Sequence[KernelPlan], target: CompileTarget, observer: Observer
) -> Outcomes:
    """Compile each baseline and candidate, and say what a sweep would drop unrun.

    Needs no GPU and leaves nothing behind.

    Args:
        parts: kernels and keys with their launches.
        target: what to compile for.
        observer: who watches.

    Returns:
        Every candidate: the cause of its drop, or ``NOT_COMPARED_OUTCOME``.

    Raises:
        BaselineError: a baseline does not compile.
        EnvironmentUnfitError: the compile workers do not start.
    """
    wanted = {
        CompileRequest(
            kernel=part.kernel, key=part.key, launch_config=config, target=target
        ): compile_key(part, config.candidate_id, "program")
        for part in parts
        for config in (part.baseline, *part.candidates)
    }
    records: dict[tuple[str, str], Mapping[str, Any]] = {}
    with CompilePool() as pool:
        observer.note(f"compiling for {target.backend} sm_{target.arch}, Triton {pool.triton}")
        observer.stage("compile", len(wanted))
        for request, outcome in pool.compile_all(list(wanted)):
            records["compile", wanted[request]] = compile_record(outcome)
            observer.advance(wanted[request])
    return {part.plan_id: _outcome_of_each(part, records, observer) for part in parts}


def _outcome_of_each(part: KernelPlan, records: Records, observer: Observer) -> dict[str, str]:
    dropped = drop_unrun(part, records, observer)
    causes = {candidate_id: item.cause for candidate_id, item in dropped.items()}
    return {
        item.candidate_id: causes.get(item.candidate_id, NOT_COMPARED_OUTCOME)
        for item in part.candidates
    }


def evidence_outcomes(bundle: BundleFile, predicate: Predicate) -> Outcomes:
    """What the evidence in a bundle says of every candidate.

    With evidence of several drivers a candidate is qualified if it is under each.

    Args:
        bundle: the open file.
        predicate: its content, in which :func:`rltune.sweep.checks.check_evidence` found nothing.
    """
    blobs = {blob.id: blob for blob in predicate.blobs}
    found: Outcomes = {}
    for driver in predicate.target.drivers:
        document: Any = decode_evidence(bundle.read_blob(blobs[driver.evidence]))
        for part in document["parts"]:
            key = ShapeKey.from_json(part["key"], f"{driver.evidence}.key")
            known = found.setdefault(f"{part['kernel']} {key}", {})
            for row in part["candidates"]:
                if known.get(row["candidate_id"], QUALIFIED_OUTCOME) == QUALIFIED_OUTCOME:
                    known[row["candidate_id"]] = row["outcome"]
    return found


def stale_kernels(
    predicate: Predicate, kernel_ids: Iterable[str], operators: Sequence[OperatorSpec]
) -> tuple[str, ...]:
    """Those of some kernels that a bundle was made from another source of than is installed.

    Args:
        predicate: content of the bundle.
        kernel_ids: kernels to look at.
        operators: the installed operators.
    """
    wanted = set(kernel_ids)
    return tuple(
        source.kernel
        for source in predicate.sources
        if source.kernel in wanted
        and any(check_sources(replace(predicate, sources=(source,)), operators))
    )
