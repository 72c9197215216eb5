"""What holds for every set of measured times."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rltune.core.shapes import ShapeKey
from rltune.sweep.ranges import decide_ranges, share_served
from rltune.sweep.select import KeptBaseline, PointSamples, Selected, decide_point, is_not_slower

KEY = ShapeKey.of("fp32", {"width": 128})
BASE = "base"
IDS = ["a", "b", "c", "d"]

# few distinct medians, so that ties, overlaps and clear gains are all common
process_times = st.integers(5, 7) | st.just(5)


@st.composite
def points(draw: st.DrawFn, tokens: int = 1) -> PointSamples:
    processes = draw(process_times)

    def run() -> tuple[int, ...]:
        level = draw(st.sampled_from([8_000, 9_500, 10_000, 10_000, 12_000]))
        noise = draw(st.lists(st.integers(0, 150), min_size=processes, max_size=processes))
        return tuple(level + step for step in noise)

    def base() -> tuple[int, ...]:
        noise = draw(st.lists(st.integers(0, 150), min_size=processes, max_size=processes))
        return tuple(10_000 + step for step in noise)

    names = draw(st.sets(st.sampled_from(IDS)))
    again = draw(st.sets(st.sampled_from(sorted(names)))) if names else set()
    samples_ps = {BASE: base(), **{name: run() for name in sorted(names)}}
    fresh = {name: draw(st.sampled_from([samples_ps[name], run()])) for name in sorted(again)}
    return PointSamples(
        kernel="op/forward",
        key=KEY,
        tokens=tokens,
        baseline_id=BASE,
        samples_ps=samples_ps,
        control_ps=base(),
        replication_ps={BASE: base(), **fresh},
    )


@st.composite
def grids(draw: st.DrawFn) -> list[PointSamples]:
    counts = draw(st.lists(st.integers(1, 40), unique=True, max_size=6))
    return [draw(points(tokens=count)) for count in counts]


qualified_sets = st.frozensets(st.sampled_from(IDS)) | st.just(frozenset(IDS))


def scaled(point: PointSamples, factor: int) -> PointSamples:
    def all_scaled(times: dict[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
        return {name: tuple(factor * time for time in value) for name, value in times.items()}

    return replace(
        point,
        samples_ps=all_scaled(dict(point.samples_ps)),
        control_ps=tuple(factor * time for time in point.control_ps),
        replication_ps=all_scaled(dict(point.replication_ps)),
    )


def shuffled(point: PointSamples, seed: int) -> PointSamples:
    """The same measurements in another order: of candidates, and of processes."""
    order = list(range(len(point.control_ps)))
    random.Random(seed).shuffle(order)
    names = sorted(point.samples_ps)
    random.Random(seed).shuffle(names)
    return replace(
        point,
        samples_ps={name: tuple(point.samples_ps[name][i] for i in order) for name in names},
        control_ps=tuple(point.control_ps[i] for i in order),
        replication_ps=dict(sorted(point.replication_ps.items(), reverse=True)),
    )


@given(point=points(), qualified=qualified_sets)
def test_a_selection_qualified_and_is_faster_in_every_process(
    point: PointSamples, qualified: frozenset[str]
) -> None:
    decision = decide_point(point, qualified)
    if isinstance(decision, Selected):
        assert decision.candidate_id in qualified
        for times in (point.samples_ps, point.replication_ps):
            assert max(times[decision.candidate_id]) < min(times[BASE])
        assert decision.gain_ppm > max(20_000, decision.band_ppm)


@given(grid=grids(), qualified=qualified_sets)
def test_ranges_hold_only_qualified_candidates_are_disjoint_and_ascend(
    grid: list[PointSamples], qualified: frozenset[str]
) -> None:
    ranges = decide_ranges(grid, qualified)

    assert {item.candidate_id for item in ranges} <= qualified
    assert all(item.tokens.first <= item.tokens.last for item in ranges)
    for left, right in pairwise(ranges):
        assert left.tokens.last < right.tokens.first
        assert left.tokens.last + 1 < right.tokens.first or left.candidate_id != right.candidate_id
    counts = [point.tokens for point in grid]
    if ranges:
        assert min(counts) <= ranges[0].tokens.first
        assert ranges[-1].tokens.last <= max(counts)
        assert 0 < share_served(ranges, min(counts), max(counts)) <= 1_000_000


@given(grid=grids(), qualified=qualified_sets)
def test_every_selected_point_is_served_by_its_selection(
    grid: list[PointSamples], qualified: frozenset[str]
) -> None:
    ranges = decide_ranges(grid, qualified)

    for point in grid:
        decision = decide_point(point, qualified)
        serving = [item.candidate_id for item in ranges if point.tokens in item.tokens]
        if isinstance(decision, Selected):
            assert serving == [decision.candidate_id]
        for name in serving:
            assert is_not_slower(point, name, qualified)


@given(grid=grids(), qualified=qualified_sets, seed=st.integers(0, 9), factor=st.integers(1, 1000))
def test_order_and_unit_do_not_matter(
    grid: list[PointSamples], qualified: frozenset[str], seed: int, factor: int
) -> None:
    other = [scaled(shuffled(point, seed), factor) for point in grid]
    random.Random(seed).shuffle(other)

    assert decide_ranges(other, qualified) == decide_ranges(grid, qualified)
    for point in grid:
        again = decide_point(scaled(shuffled(point, seed), factor), qualified)
        assert again == decide_point(point, qualified)


@given(point=points())
def test_a_candidate_with_the_baselines_own_times_keeps_the_baseline(point: PointSamples) -> None:
    tied = dict.fromkeys(IDS, point.samples_ps[BASE])

    decision = decide_point(replace(point, samples_ps={BASE: tied["a"], **tied}), frozenset(IDS))

    assert isinstance(decision, KeptBaseline)


@given(point=points(), qualified=qualified_sets, slower=st.integers(0, 3_000))
def test_one_more_finalist_that_is_not_faster_makes_no_selection(
    point: PointSamples, qualified: frozenset[str], slower: int
) -> None:
    samples_ps = {**point.samples_ps, "e": tuple(t + slower for t in point.samples_ps[BASE])}
    replication_ps = {**point.replication_ps, "e": point.replication_ps[BASE]}
    more = replace(point, samples_ps=samples_ps, replication_ps=replication_ps)

    before = decide_point(point, qualified)
    after = decide_point(more, qualified | {"e"})

    if isinstance(after, Selected):
        assert isinstance(before, Selected)
        assert after.candidate_id == before.candidate_id
