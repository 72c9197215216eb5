"""From decided points to the token ranges that a candidate serves. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from rltune.core.shapes import TokenRange
from rltune.errors import JournalError
from rltune.sweep.select import PPM, PointSamples, Selected, decide_point, gain_ppm, is_not_slower


@dataclass(frozen=True, kw_only=True, slots=True)
class RangeDecision:
    """A candidate serves a range of token counts.

    Attributes:
        tokens: the counts.
        candidate_id: the candidate.
    """

    tokens: TokenRange
    candidate_id: str


def decide_ranges(
    points: Sequence[PointSamples], qualified: frozenset[str]
) -> tuple[RangeDecision, ...]:
    """Token ranges that a candidate serves; every other count keeps the baseline.

    A point is served by its own selection. A run of points that keep the baseline
    is bridged if the selections on both its sides are the same candidate and that
    is not slower than the baseline at each of them. The counts between two points
    go to what serves both; if they differ, to the one of the two that is not slower
    than the baseline at both points, else to the baseline. "Not slower" means
    measured there in as many processes as the baseline, with a median at most the
    noise band above the baseline's. Counts outside the measured points keep the
    baseline.

    Args:
        points: all points of one kernel and key, in any order.
        qualified: ids of the candidates whose bytes were shown equal.

    Raises:
        JournalError: points of several kernels or keys, or a token count twice.
    """
    ordered = sorted(points, key=lambda point: point.tokens)
    if len({(point.kernel, point.key, point.baseline_id) for point in ordered}) > 1:
        raise JournalError("select: points of several kernels, keys or baselines")
    for left, right in pairwise(ordered):
        if left.tokens == right.tokens:
            raise JournalError(
                f"{left.kernel} {left.key}: {left.tokens} tokens were confirmed twice"
            )
    serving = _bridge(ordered, qualified)
    pieces: list[tuple[int, int, str | None]] = []
    for index, point in enumerate(ordered):
        if index:
            last = ordered[index - 1]
            between = _between(last, point, (serving[index - 1], serving[index]), qualified)
            pieces.append((last.tokens + 1, point.tokens - 1, between))
        pieces.append((point.tokens, point.tokens, serving[index]))
    return _joined(pieces)


def _bridge(ordered: Sequence[PointSamples], qualified: frozenset[str]) -> list[str | None]:
    """What serves each point: its selection, or the candidate that bridges it."""
    decisions = [decide_point(point, qualified) for point in ordered]
    serving = [item.candidate_id if isinstance(item, Selected) else None for item in decisions]
    selected = [index for index, name in enumerate(serving) if name is not None]
    for left, right in pairwise(selected):
        name = serving[left]
        interior = range(left + 1, right)
        if (
            name is not None
            and name == serving[right]
            and all(is_not_slower(ordered[index], name, qualified) for index in interior)
        ):
            for index in interior:
                serving[index] = name
    return serving


def _between(
    left: PointSamples,
    right: PointSamples,
    serving: tuple[str | None, str | None],
    qualified: frozenset[str],
) -> str | None:
    """What serves the counts between two neighbouring points."""
    if serving[0] == serving[1]:
        return serving[0]
    fit = [
        name
        for name in serving
        if name is not None
        and is_not_slower(left, name, qualified)
        and is_not_slower(right, name, qualified)
    ]
    # of two that fit, the one that saves more at its worse end
    return min(
        fit,
        key=lambda name: (-min(gain_ppm(left, name), gain_ppm(right, name)), name),
        default=None,
    )


def _joined(pieces: Sequence[tuple[int, int, str | None]]) -> tuple[RangeDecision, ...]:
    ranges: list[RangeDecision] = []
    for first, last, name in pieces:
        if name is None or first > last:
            continue
        if ranges and ranges[-1].candidate_id == name and ranges[-1].tokens.last + 1 == first:
            first = ranges.pop().tokens.first  # noqa: PLW2901 - the piece grows to the left
        ranges.append(RangeDecision(tokens=TokenRange(first, last), candidate_id=name))
    return tuple(ranges)


def share_served(ranges: Sequence[RangeDecision], first: int, last: int) -> int:
    """Share of log-uniform token counts in [first, last] that ``ranges`` serve, in ppm.

    A count n weighs log((n + 1) / n), so a range weighs log((its last + 1) / its first).

    Args:
        ranges: disjoint ranges.
        first: smallest count, at least 1.
        last: largest count, at least ``first``.
    """
    served = 0.0
    for item in ranges:
        low, high = max(first, item.tokens.first), min(last, item.tokens.last)
        if low <= high:
            served += math.log((high + 1) / low)
    return round(PPM * served / math.log((last + 1) / first))
