"""From journal records to decisions. Pure: a complete journal gives one result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rltune.core.shapes import TokenRange
from rltune.sweep import outcomes
from rltune.sweep.outcomes import Records, Rejected, edge_key, measure_key
from rltune.sweep.plan import KernelPlan, Plan, QualificationCase
from rltune.sweep.ranges import RangeDecision, decide_ranges
from rltune.sweep.select import (
    PPM,
    PointDecision,
    PointSamples,
    Selected,
    decide_point,
    finalist_to_replicate,
)
from rltune.sweep.worker import CONTROL_ID

REPLICATION_PROCESSES = 2
_SCREEN_GAIN_PPM = 10_000
"""A candidate must look at least this much faster in the first pass to be confirmed."""
_CONTENDERS = 4
_EDGE_SEED = 101
_EDGE_GENERATORS = ("normal", "near_ties")

Points = Mapping[tuple[str, int], tuple[str, ...]]
"""Candidate ids to time, by plan id and token count."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PartDecision:
    """What is decided for one kernel and key.

    Attributes:
        part: the planned part.
        qualified: ids of qualified candidates with programs of their own.
        points: decision by token count; empty where nothing was confirmed.
        ranges: token ranges a candidate serves.
        reason: one short text.
    """

    part: KernelPlan
    qualified: tuple[str, ...]
    points: Mapping[int, PointDecision]
    ranges: tuple[RangeDecision, ...]
    reason: str


def decide(plan: Plan, records: Records) -> tuple[PartDecision, ...]:
    """Decide every part of a plan from the records of its journal."""
    qualified = qualified_by_part(plan, records)
    return tuple(_decide_part(plan, part, qualified[part.plan_id], records) for part in plan.parts)


def _decide_part(
    plan: Plan, part: KernelPlan, qualified: tuple[str, ...], records: Records
) -> PartDecision:
    samples = [
        found
        for tokens, _ in part.measurement
        if (found := point_samples(plan, part, tokens, records)) is not None
    ]
    allowed = frozenset(qualified)
    points = {sample.tokens: decide_point(sample, allowed) for sample in samples}
    return PartDecision(
        part=part,
        qualified=qualified,
        points=points,
        ranges=decide_ranges(samples, allowed),
        reason=_reason(part, qualified, points),
    )


def _reason(
    part: KernelPlan, qualified: tuple[str, ...], points: Mapping[int, PointDecision]
) -> str:
    if not qualified:
        return "same program: no other program qualified"
    if not part.measurement:
        return "no measurement case"
    if not points:
        return f"no candidate of {len(qualified)} looked faster"
    selected = [item for item in points.values() if isinstance(item, Selected)]
    text = f"faster at {len(selected)} of {len(points)} token counts"
    if selected:
        best = max(item.gain_ppm for item in selected)
        return f"{text}, by up to {best / 10_000:.1f}%"
    reasons = Counter(item.reason for item in points.values() if not isinstance(item, Selected))
    return f"{text}: {reasons.most_common(1)[0][0]}"


EdgeRejections = Mapping[tuple[str, str], Rejected]
"""Why a candidate was rejected beside the end of a range, by launch key and candidate id."""


def edge_rejections(records: Records) -> EdgeRejections:
    """The first difference of each candidate whose bytes differed there."""
    found: dict[tuple[str, str], Rejected] = {}
    for (kind, key), body in sorted(records.items()):
        if kind != "edge":
            continue
        launch, _, case_id = key.rpartition(" | ")
        for candidate_id, difference in body["outcomes"].items():
            if difference:
                text = f"{case_id}: {difference['text']}"
                found.setdefault((launch, candidate_id), Rejected(difference["kind"], text))
    return found


def qualified_by_part(plan: Plan, records: Records) -> dict[str, tuple[str, ...]]:
    """Qualified candidates by plan id, less those rejected at the edge of a range later."""
    rejected = edge_rejections(records)
    return {
        part.plan_id: tuple(
            candidate_id
            for candidate_id in outcomes.qualified_ids(part, records)
            if (outcomes.launch_key(part, candidate_id), candidate_id) not in rejected
        )
        for part in plan.parts
    }


def missing_edges(
    decisions: tuple[PartDecision, ...], records: Records
) -> list[tuple[KernelPlan, str, list[QualificationCase]]]:
    """Comparisons around the ends of each decided range that are still to be made."""
    wanted = []
    for decision in decisions:
        for item in decision.ranges:
            cases = [
                case
                for case in edge_cases(item.tokens)
                if ("edge", edge_key(decision.part, item.candidate_id, case)) not in records
            ]
            if cases:
                wanted.append((decision.part, item.candidate_id, cases))
    return wanted


def edge_cases(tokens: TokenRange) -> tuple[QualificationCase, ...]:
    """One below, at, and one above each end of a range."""
    counts = {end + step for end in (tokens.first, tokens.last) for step in (-1, 0, 1)}
    return tuple(
        QualificationCase(tokens=count, seed=_EDGE_SEED, generator=generator)
        for count in sorted(counts)
        if count >= 1
        for generator in _EDGE_GENERATORS
    )


def screen_points(plan: Plan, records: Records) -> Points:
    """Every qualified candidate at every measurement point."""
    qualified = qualified_by_part(plan, records)
    return {
        (part.plan_id, tokens): qualified[part.plan_id]
        for part in plan.parts
        if qualified[part.plan_id]
        for tokens, _ in part.measurement
    }


def confirm_points(plan: Plan, records: Records) -> Points:
    """The contenders of each part, at every point of it."""
    chosen: dict[tuple[str, int], tuple[str, ...]] = {}
    for part in plan.parts:
        contenders = _contenders(plan, part, records)
        if contenders:
            chosen |= {(part.plan_id, tokens): contenders for tokens, _ in part.measurement}
    return chosen


def replicate_points(plan: Plan, records: Records) -> Points:
    """The one candidate of each point that a replication must agree on."""
    chosen: dict[tuple[str, int], tuple[str, ...]] = {}
    qualified = qualified_by_part(plan, records)
    for part in plan.parts:
        allowed = frozenset(qualified[part.plan_id])
        for tokens, _ in part.measurement:
            samples = point_samples(plan, part, tokens, records)
            finalist = finalist_to_replicate(samples, allowed) if samples else None
            if finalist:
                chosen[part.plan_id, tokens] = (finalist,)
    return chosen


def _contenders(plan: Plan, part: KernelPlan, records: Records) -> tuple[str, ...]:
    """Candidates that were among the fastest at a point of the first pass, by their summed gain."""
    gains: Counter[str] = Counter()
    for tokens, _ in part.measurement:
        record = records.get(("screen", measure_key(part, tokens, 0)))
        if record and record["status"] == "measured":
            gains.update(_fastest(plan, part, record))
    ordered = sorted(gains, key=lambda item: (-gains[item], item))
    return tuple(ordered[:_CONTENDERS])


def _fastest(plan: Plan, part: KernelPlan, record: Mapping[str, Any]) -> dict[str, int]:
    """Gains, in ppm, of the point's fastest candidates."""
    baseline_id = part.baseline.candidate_id
    cold = {name: _median(times) for name, times in record["cold_ps"].items()}
    warm = {name: _median(times) for name, times in record["warm_ps"].items()}
    gains = {
        name: (cold[baseline_id] - time_ps) * PPM // cold[baseline_id]
        for name, time_ps in cold.items()
        if name not in (baseline_id, CONTROL_ID)
        # Faster on cold buffers must not mean slower on warm ones.
        and warm[name] * PPM <= warm[baseline_id] * (PPM + _SCREEN_GAIN_PPM)
    }
    fast = {name: gain for name, gain in gains.items() if gain > _SCREEN_GAIN_PPM}
    ordered = sorted(fast, key=lambda item: (-fast[item], item))
    return {name: fast[name] for name in ordered[: plan.budget.finalists]}


def _median(times: list[int]) -> int:
    return sorted(times)[len(times) // 2]


def point_samples(
    plan: Plan, part: KernelPlan, tokens: int, records: Records
) -> PointSamples | None:
    """Process medians of one confirmed point; None if it was not confirmed."""
    confirmed = _processes(part, tokens, records, "confirm", plan.budget.processes)
    if not confirmed:
        return None
    samples = _by_launch(confirmed)
    control = samples.pop(CONTROL_ID)
    replication = _by_launch(_processes(part, tokens, records, "replicate", REPLICATION_PROCESSES))
    replication.pop(CONTROL_ID, None)
    return PointSamples(
        kernel=part.kernel.kernel_id,
        key=part.key,
        tokens=tokens,
        baseline_id=part.baseline.candidate_id,
        samples_ps=samples,
        control_ps=control,
        replication_ps=replication,
    )


def _processes(
    part: KernelPlan, tokens: int, records: Records, kind: str, count: int
) -> list[dict[str, int]]:
    """Median by launch id of each process that measured the point."""
    found = [records.get((kind, measure_key(part, tokens, process))) for process in range(count)]
    return [
        {name: _median(times) for name, times in record["cold_ps"].items()}
        for record in found
        if record is not None and record["status"] == "measured"
    ]


def _by_launch(processes: list[dict[str, int]]) -> dict[str, tuple[int, ...]]:
    names = sorted({name for process in processes for name in process})
    return {
        name: tuple(process[name] for process in processes if name in process) for name in names
    }
