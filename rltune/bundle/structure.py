"""What must hold between the parts of a statement, and between it and the body."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TypeVar

from rltune.bundle.decode_v1 import Statement
from rltune.bundle.schema_v1 import Blob, Decision, Launch, Predicate
from rltune.core.shapes import ShapeKey, first_overlap
from rltune.errors import BundleError

_WHERE = "payload.predicate"
_Comparable = TypeVar("_Comparable", str, tuple[str, ShapeKey])


def check_statement(statement: Statement) -> None:
    """Check that the parts of a decoded statement fit each other.

    Raises:
        BundleError: two parts contradict each other; names the JSON path.
    """
    predicate = statement.predicate
    if predicate.created > predicate.not_after:  # one fixed format: text order is time order
        raise BundleError(f"{_WHERE}.not_after: expected a time after {predicate.created}")
    _check_blobs(predicate)
    _check_sources(predicate)
    _check_decisions(predicate)
    _check_programs(predicate)
    _check_evidence(predicate)


def launches(decision: Decision) -> Iterator[Launch]:
    """The launches a decision names: its baseline and each selection."""
    yield decision.baseline
    for item in decision.ranges:
        yield item.launch


def _check_blobs(predicate: Predicate) -> None:
    _require_unique((blob.id for blob in predicate.blobs), f"{_WHERE}.blobs", "id")
    end = 0
    for index, blob in enumerate(predicate.blobs):
        if blob.offset != end:
            raise BundleError(
                f"{_WHERE}.blobs[{index}].offset: expected {end}, the end of what lies before "
                f"it, got {blob.offset}"
            )
        end += blob.size
    if end != predicate.body_size:
        raise BundleError(
            f"{_WHERE}.body_size: expected {end}, the sum of all blobs, got {predicate.body_size}"
        )


def _check_sources(predicate: Predicate) -> None:
    _require_ascending((item.kernel for item in predicate.sources), f"{_WHERE}.sources")


def _check_decisions(predicate: Predicate) -> None:
    _require_ascending(
        ((item.kernel, item.key) for item in predicate.decisions), f"{_WHERE}.decisions"
    )
    kernels = {item.kernel for item in predicate.sources}
    for index, decision in enumerate(predicate.decisions):
        where = f"{_WHERE}.decisions[{index}]"
        if decision.kernel not in kernels:
            raise BundleError(f"{where}.kernel: {decision.kernel} has no entry in sources")
        _check_ranges(decision, where)


def _check_ranges(decision: Decision, where: str) -> None:
    tokens = [item.tokens for item in decision.ranges]
    if tokens != sorted(tokens) or first_overlap(tokens):
        raise BundleError(f"{where}.ranges: expected disjoint ranges in ascending order")
    for index, item in enumerate(decision.ranges):
        if item.launch.candidate_id == decision.baseline.candidate_id:
            raise BundleError(
                f"{where}.ranges[{index}].launch: expected a launch other than the baseline"
            )


def _check_programs(predicate: Predicate) -> None:
    _require_ascending((item.digest for item in predicate.programs), f"{_WHERE}.programs")
    blobs = {blob.id: blob for blob in predicate.blobs if blob.role == "program"}
    for index, program in enumerate(predicate.programs):
        where = f"{_WHERE}.programs[{index}]"
        blob = blobs.pop(program.blob, None)
        if blob is None:
            raise BundleError(f"{where}.blob: no program blob of its own called {program.blob!r}")
        if blob.sha256 != program.digest:
            raise BundleError(
                f"{where}.digest: expected the digest of blob {blob.id!r}, {blob.sha256}, "
                f"got {program.digest}"
            )
    _require_none_left(blobs, "programs")
    held = {program.digest for program in predicate.programs}
    named = {launch.program for decision in predicate.decisions for launch in launches(decision)}
    if held != named:
        digest = min(held ^ named)
        state = "is named by no launch" if digest in held else "is named by a launch and missing"
        raise BundleError(f"{_WHERE}.programs: program {digest} {state}")


def _check_evidence(predicate: Predicate) -> None:
    drivers = predicate.target.drivers
    where = f"{_WHERE}.target.drivers"
    if not drivers:
        raise BundleError(f"{where}: expected at least one driver")
    _require_unique((driver.version for driver in drivers), where, "version")
    blobs = {blob.id: blob for blob in predicate.blobs if blob.role == "evidence"}
    for index, driver in enumerate(drivers):
        if driver.evidence not in blobs:
            raise BundleError(
                f"{where}[{index}].evidence: no evidence blob called {driver.evidence!r}"
            )
    named = {driver.evidence for driver in drivers}
    _require_none_left({key: blobs[key] for key in blobs if key not in named}, "target.drivers")


def _require_none_left(blobs: dict[str, Blob], referrer: str) -> None:
    if blobs:
        raise BundleError(f"{_WHERE}.blobs: {min(blobs)!r} is referred to by no {referrer}")


def _require_ascending(values: Iterable[_Comparable], where: str) -> None:
    if any(left >= right for left, right in pairwise(values)):
        raise BundleError(f"{where}: expected entries in ascending order, each once")


def _require_unique(values: Iterable[str], where: str, name: str) -> None:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise BundleError(f"{where}: {name} {value!r} occurs twice")
        seen.add(value)
