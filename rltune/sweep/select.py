"""Selection at one point, from confirmed times. Pure, exact integer arithmetic.

A point's candidate is selected only if

1. it qualified, and was measured in at least ``MIN_PROCESSES`` fresh processes
   beside the baseline and the A/A control (the baseline measured a second time);
2. its process medians and the baseline's do not overlap;
3. its gain exceeds ``required_gain_ppm``: 2%, and the noise band corrected for the
   number of finalists;
4. one replication in fresh processes agrees: no overlap, and a gain that exceeds
   the requirement for a single finalist.

Whatever misses a rule, ties included, keeps the baseline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rltune.core.shapes import ShapeKey
from rltune.errors import JournalError

PPM = 1_000_000

MIN_PROCESSES = 5
"""Fresh processes behind a confirmation."""

MIN_REPLICATION_PROCESSES = 2
"""Fresh processes behind a replication."""

MIN_GAIN_PPM = 20_000
"""A gain of 2% or less is not worth a selection."""

Reason = Literal[
    "baseline not confirmed",
    "no qualified finalist",
    "no finalist without overlap",
    "gain within the noise band or 2%",
    "not replicated",
    "replication disagrees",
]
"""Why a point keeps its baseline."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PointSamples:
    """Confirmed times of one kernel, key and token count.

    Every sequence holds one median per process, in picoseconds, process by process
    in the same order.

    Attributes:
        kernel: kernel id.
        key: structural key.
        tokens: size of the dynamic axis.
        baseline_id: candidate id of the baseline.
        samples_ps: medians by candidate id, the baseline's among them.
        control_ps: A/A control: the baseline measured again in the same processes.
        replication_ps: medians by candidate id, the baseline's among them, in
            another set of fresh processes; empty if none was run.

    Raises:
        JournalError: the baseline's times are missing, or a time is not positive.
    """

    kernel: str
    key: ShapeKey
    tokens: int
    baseline_id: str
    samples_ps: Mapping[str, tuple[int, ...]]
    control_ps: tuple[int, ...]
    replication_ps: Mapping[str, tuple[int, ...]]

    def __post_init__(self) -> None:
        where = f"{self.kernel} {self.key} {self.tokens} tokens"
        for times in (self.samples_ps, self.replication_ps):
            if times and self.baseline_id not in times:
                raise JournalError(f"{where}: no times of the baseline {self.baseline_id}")
        every = [self.control_ps, *self.samples_ps.values(), *self.replication_ps.values()]
        if any(time_ps <= 0 for times_ps in every for time_ps in times_ps):
            raise JournalError(f"{where}: a time is not positive")

    @property
    def finalists(self) -> tuple[str, ...]:
        """Ids of the candidates that were measured, sorted, without the baseline."""
        return tuple(sorted(set(self.samples_ps) - {self.baseline_id}))


@dataclass(frozen=True, kw_only=True, slots=True)
class Selected:
    """A candidate was selected for a point.

    Attributes:
        candidate_id: the candidate.
        gain_ppm: part of the baseline's time that it saves.
        required_ppm: gain that it had to exceed.
        band_ppm: A/A noise band.
    """

    candidate_id: str
    gain_ppm: int
    required_ppm: int
    band_ppm: int


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptBaseline:
    """A point keeps its baseline.

    Attributes:
        reason: the first rule that no finalist met.
        band_ppm: A/A noise band; None where it was not measured.
    """

    reason: Reason
    band_ppm: int | None


PointDecision = Selected | KeptBaseline


def required_gain_ppm(band_ppm: int, finalists: int) -> int:
    """Gain that a finalist must exceed, in ppm of the baseline's time.

    The best of many finalists looks faster by luck alone. The band is the largest
    of five A/A deviations, so about the 80% quantile of the noise; Bonferroni's
    correction of that quantile for n finalists grows, for normal noise, by less
    than 0.3 for each doubling of n. So the band counts 1 + 0.3 * ceil(log2 n)
    times. The 2% are a matter of worth, not of noise, and stay.
    """
    doublings = max(0, finalists - 1).bit_length()
    return max(MIN_GAIN_PPM, -(-band_ppm * (10 + 3 * doublings) // 10))


def noise_band_ppm(point: PointSamples) -> int | None:
    """Largest deviation of the A/A control from the baseline in one process, in ppm.

    None if fewer than ``MIN_PROCESSES`` processes measured both.
    """
    baseline_ps = point.samples_ps.get(point.baseline_id, ())
    if len(baseline_ps) < MIN_PROCESSES or len(point.control_ps) != len(baseline_ps):
        return None
    pairs = zip(point.control_ps, baseline_ps, strict=True)
    return max(-(-abs(control - baseline) * PPM // baseline) for control, baseline in pairs)


def finalist_to_replicate(point: PointSamples, qualified: frozenset[str]) -> str | None:
    """The candidate that a replication would select, or None if none can be."""
    found = _best(point, qualified)
    return found.candidate_id if isinstance(found, Selected) else None


def decide_point(point: PointSamples, qualified: frozenset[str]) -> PointDecision:
    """Select a candidate for one point, or keep the baseline.

    Args:
        point: the times; ``replication_ps`` must hold the finalist that
            :func:`finalist_to_replicate` names.
        qualified: ids of the candidates whose bytes were shown equal.
    """
    best = _best(point, qualified)
    if isinstance(best, KeptBaseline):
        return best
    candidate_ps = point.replication_ps.get(best.candidate_id, ())
    baseline_ps = point.replication_ps.get(point.baseline_id, ())
    if min(len(candidate_ps), len(baseline_ps)) < MIN_REPLICATION_PROCESSES:
        return KeptBaseline(reason="not replicated", band_ppm=best.band_ppm)
    required_ppm = required_gain_ppm(best.band_ppm, 1)
    if (
        max(candidate_ps) >= min(baseline_ps)
        or _gain_ppm(candidate_ps, baseline_ps) <= required_ppm
    ):
        return KeptBaseline(reason="replication disagrees", band_ppm=best.band_ppm)
    return best


def _best(point: PointSamples, qualified: frozenset[str]) -> PointDecision:
    """The finalist with the largest gain that meets rules 1 to 3."""
    band_ppm = noise_band_ppm(point)
    if band_ppm is None:
        return KeptBaseline(reason="baseline not confirmed", band_ppm=None)
    finalists = [name for name in point.finalists if _is_confirmed(point, name, qualified)]
    if not finalists:
        return KeptBaseline(reason="no qualified finalist", band_ppm=band_ppm)
    baseline_ps = point.samples_ps[point.baseline_id]
    clear = [name for name in finalists if max(point.samples_ps[name]) < min(baseline_ps)]
    if not clear:
        return KeptBaseline(reason="no finalist without overlap", band_ppm=band_ppm)
    # of equal times the smaller id, whatever the order of records
    name = min(clear, key=lambda item: (_twice_median(point.samples_ps[item]), item))
    gain_ppm = _gain_ppm(point.samples_ps[name], baseline_ps)
    required_ppm = required_gain_ppm(band_ppm, len(point.finalists))
    if gain_ppm <= required_ppm:
        return KeptBaseline(reason="gain within the noise band or 2%", band_ppm=band_ppm)
    return Selected(
        candidate_id=name, gain_ppm=gain_ppm, required_ppm=required_ppm, band_ppm=band_ppm
    )


def _is_confirmed(point: PointSamples, candidate_id: str, qualified: frozenset[str]) -> bool:
    processes = len(point.samples_ps[point.baseline_id])
    times_ps = point.samples_ps.get(candidate_id, ())
    return candidate_id in qualified and len(times_ps) == processes >= MIN_PROCESSES


def _twice_median(times_ps: Sequence[int]) -> int:
    """Twice the median, which is an integer for every count of times."""
    ordered = sorted(times_ps)
    half = len(ordered) // 2
    return ordered[half] + ordered[-half - 1]


def _gain_ppm(candidate_ps: Sequence[int], baseline_ps: Sequence[int]) -> int:
    baseline = _twice_median(baseline_ps)
    return (baseline - _twice_median(candidate_ps)) * PPM // baseline


def gain_ppm(point: PointSamples, candidate_id: str) -> int:
    """Part of the baseline's time that a candidate saves at a point, in ppm.

    Raises:
        KeyError: the candidate was not measured there.
    """
    return _gain_ppm(point.samples_ps[candidate_id], point.samples_ps[point.baseline_id])


def is_not_slower(point: PointSamples, candidate_id: str, qualified: frozenset[str]) -> bool:
    """Whether a candidate may serve a point without being its selection.

    It qualified, was measured in as many processes as the baseline, and its median
    is at most the noise band above the baseline's.
    """
    band_ppm = noise_band_ppm(point)
    if band_ppm is None or not _is_confirmed(point, candidate_id, qualified):
        return False
    baseline = _twice_median(point.samples_ps[point.baseline_id])
    return _twice_median(point.samples_ps[candidate_id]) * PPM <= baseline * (PPM + band_ppm)
