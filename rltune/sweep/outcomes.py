"""What the journal says of each candidate. Pure functions over its records.

Everything that is decided is decided here or in ``select.py`` from records
alone, so a resumed sweep and a replayed journal decide the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from rltune.sweep.plan import KernelPlan, QualificationCase

Records = Mapping[tuple[str, str], Mapping[str, Any]]
"""Journal bodies by (kind, key)."""

Variant = Literal["program", "witness"]


def compile_key(part: KernelPlan, candidate_id: str, variant: Variant) -> str:
    """Journal key of one compilation."""
    return f"{part.plan_id} | {candidate_id} | {variant}"


def qualify_key(part: KernelPlan, case: QualificationCase, variant: Variant) -> str:
    """Journal key of one qualification case."""
    return f"{part.plan_id} | {case.case_id} | {variant}"


def launch_key(part: KernelPlan, candidate_id: str) -> str:
    """Journal key, and the name shown, of one candidate."""
    return f"{part.plan_id} | {candidate_id}"


def measure_key(part: KernelPlan, tokens: int, process: int) -> str:
    """Journal key of one measured point in one process."""
    return f"{process} | {part.plan_id} | tokens={tokens}"


def edge_key(part: KernelPlan, candidate_id: str, case: QualificationCase) -> str:
    """Journal key of one candidate's comparison at one size beside the end of its range."""
    return f"{launch_key(part, candidate_id)} | {case.case_id}"


@dataclass(frozen=True, slots=True)
class Dropped:
    """A candidate that is out before its bytes are compared.

    Attributes:
        cause: ``compile failed``, ``same program``, ``reduction order`` or ``scratch``.
        text: one sentence.
    """

    cause: Literal["compile failed", "same program", "reduction order", "scratch"]
    text: str


@dataclass(frozen=True, slots=True)
class Rejected:
    """A candidate whose bytes differ, or which could not be run.

    Attributes:
        cause: ``bytes``, ``unstable``, ``damage``, ``failed``, ``died``, ``timed out``.
        text: case and first difference.
    """

    cause: str
    text: str


@dataclass(frozen=True, slots=True)
class Qualified:
    """A candidate equal to the baseline in every case.

    Attributes:
        cases: inputs compared, witness runs included.
        rows: independent rows compared.
        compared_bytes: bytes compared per repeat.
    """

    cases: int
    rows: int
    compared_bytes: int


def triage(part: KernelPlan, records: Records) -> dict[str, Dropped]:
    """Candidates that need no run: not compiled, equal to an earlier program, another order.

    Of equal programs the first stands for all, also where it is dropped itself. The control
    is never among them: only its bytes may reject it, where bytes are compared.
    """
    baseline_id = part.baseline.candidate_id
    baseline = records["compile", compile_key(part, baseline_id, "program")]
    seen: dict[str, str] = {baseline["digest"]: baseline_id}
    dropped: dict[str, Dropped] = {}
    for candidate in part.candidates:
        candidate_id = candidate.candidate_id
        record = records["compile", compile_key(part, candidate_id, "program")]
        if "error" in record:
            dropped[candidate_id] = Dropped("compile failed", record["error"])
            continue
        first = seen.setdefault(record["digest"], candidate_id)
        if first != candidate_id:
            dropped[candidate_id] = Dropped("same program", f"as {first}")
        elif record["global_scratch_bytes"]:
            dropped[candidate_id] = Dropped("scratch", "needs scratch memory, which no launch has")
        elif record["reductions"] != baseline["reductions"]:
            text = f"expected {baseline['reductions']}, found {record['reductions']}"
            dropped[candidate_id] = Dropped("reduction order", text)
    return dropped


def witnessed(part: KernelPlan, records: Records) -> frozenset[str]:
    """Launch ids whose witness counts: its reductions equal those of the shipped program."""
    if part.control is None:
        return frozenset()
    return frozenset(
        candidate_id
        for candidate_id in part.launches
        if _same_reductions(part, candidate_id, records)
    )


def _same_reductions(part: KernelPlan, candidate_id: str, records: Records) -> bool:
    shipped = records.get(("compile", compile_key(part, candidate_id, "program")), {})
    witness = records.get(("compile", compile_key(part, candidate_id, "witness")), {})
    return "digest" in witness and witness["reductions"] == shipped.get("reductions")


def lost(part: KernelPlan, candidate_id: str, records: Records) -> Rejected | None:
    """Why a candidate could not be run, or None if it could."""
    record = records.get(("lost", launch_key(part, candidate_id)))
    return Rejected(record["cause"], record["text"]) if record else None


def mismatch(
    part: KernelPlan, candidate_id: str, case: QualificationCase, variant: Variant, records: Records
) -> Rejected | None:
    """A candidate's difference in one finished case, or None if there is none."""
    record = records.get(("qualify", qualify_key(part, case, variant)))
    found = record["outcomes"].get(candidate_id) if record and "outcomes" in record else None
    if not found:
        return None
    name = f"{case.case_id}{' (witness)' if variant == 'witness' else ''}"
    return Rejected(found["kind"], f"{name}: {found['text']}")


def first_rejection(part: KernelPlan, candidate_id: str, records: Records) -> Rejected | None:
    """The first reason, in order of the plan, that a candidate is rejected; None so far."""
    gone = lost(part, candidate_id, records)
    if gone:
        return gone
    for case in part.qualification:
        for variant in VARIANTS:
            found = mismatch(part, candidate_id, case, variant, records)
            if found:
                return found
    return None


QUALIFIED_OUTCOME = "qualified"
"""What evidence calls a qualified candidate."""

NOT_COMPARED_OUTCOME = "not compared"
"""What a candidate is called that no check dropped and whose bytes nothing compared."""

VARIANTS: tuple[Variant, ...] = ("program", "witness")


def variants(part: KernelPlan) -> tuple[Variant, ...]:
    """What is compiled and compared: of a kernel with a control, its witness too.

    A kernel that rounds no output of the element type is its own witness.
    """
    has_witness = part.control is not None and part.kernel.witness() != part.kernel
    return VARIANTS if has_witness else VARIANTS[:1]


def judge(part: KernelPlan, candidate_id: str, records: Records) -> Qualified | Rejected:
    """The verdict on a candidate once every case is done. Nothing compared is a rejection."""
    rejection = first_rejection(part, candidate_id, records)
    if rejection:
        return rejection
    cases = rows = compared = 0
    for case in part.qualification:
        for variant in VARIANTS:
            record = records.get(("qualify", qualify_key(part, case, variant)))
            if record and candidate_id in record.get("outcomes", {}):
                cases += 1
                rows += record["rows"]
                compared += record["compared_bytes"]
            elif variant == "program":
                return Rejected(NOT_COMPARED_OUTCOME, f"{case.case_id} was not compared")
    if compared == 0:
        return Rejected(NOT_COMPARED_OUTCOME, "no byte was compared")
    return Qualified(cases, rows, compared)


@dataclass(frozen=True, kw_only=True, slots=True)
class ControlResult:
    """How often the planted wrong order was caught.

    Attributes:
        rejected_cases: cases that rejected it.
        cases: cases compared.
        flipped_rows: rows that differed, over all cases.
        rows: rows compared.
    """

    rejected_cases: int
    cases: int
    flipped_rows: int
    rows: int


def control_result(part: KernelPlan, records: Records, variant: Variant) -> ControlResult:
    """Count the rejections of the positive control in one variant."""
    control_id = part.control.candidate_id if part.control else ""
    rejected = cases = flipped = rows = 0
    for case in part.qualification:
        record = records.get(("qualify", qualify_key(part, case, variant)), {})
        if control_id not in record.get("outcomes", {}):
            continue
        found = record["outcomes"][control_id]
        cases += 1
        rows += record["rows"]
        rejected += bool(found)
        flipped += found["rows"] if found else 0
    return ControlResult(rejected_cases=rejected, cases=cases, flipped_rows=flipped, rows=rows)


def qualified_ids(part: KernelPlan, records: Records) -> tuple[str, ...]:
    """Ids of the qualified candidates with programs of their own, in order of the plan."""
    dropped = triage(part, records)
    return tuple(
        item.candidate_id
        for item in part.candidates
        if item.candidate_id not in dropped
        and isinstance(judge(part, item.candidate_id, records), Qualified)
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ProgramCounts:
    """Distinct programs of one kernel and key, the baseline's included in each number.

    Attributes:
        programs: those that compiled.
        same_order: those that need no scratch memory and add in the baseline's order.
        qualified: those whose bytes are the baseline's in every case.
    """

    programs: int
    same_order: int
    qualified: int


def count_programs(found: Collection[str]) -> ProgramCounts:
    """Count distinct programs by what became of each candidate.

    Args:
        found: one outcome a candidate: the cause of a :class:`Dropped` or :class:`Rejected`,
            ``NOT_COMPARED_OUTCOME`` or ``QUALIFIED_OUTCOME``.
    """
    count = Counter(found)
    programs = 1 + len(found) - count["compile failed"] - count["same program"]
    return ProgramCounts(
        programs=programs,
        same_order=programs - count["scratch"] - count["reduction order"],
        qualified=1 + count[QUALIFIED_OUTCOME],
    )
