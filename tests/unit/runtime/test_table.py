"""The table: what a lookup may and may not return."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltune.bundle.schema_v1 import Decision, Launch, Range
from rltune.core.launch import LaunchConfig
from rltune.core.shapes import ShapeKey, TokenRange
from rltune.runtime.reasons import BaselineKept, Clash, Hit
from rltune.runtime.table import clashes, combine

KERNEL = "toy/forward"


def key_of(width: int, dtype: str = "bf16") -> ShapeKey:
    return ShapeKey.of(dtype, {"hidden_size": width})


def launch_of(block: int) -> Launch:
    config = LaunchConfig.of(BLOCK=block, num_warps=4)
    return Launch(candidate_id=config.candidate_id, launch_config=config, program="ab" * 32)


BASELINE = launch_of(1024)


def decision_of(key: ShapeKey, ranges: list[tuple[int, int]]) -> Decision:
    return Decision(
        kernel=KERNEL,
        key=key,
        baseline=BASELINE,
        ranges=tuple(
            Range(tokens=TokenRange(first, last), launch=launch_of(first)) for first, last in ranges
        ),
        reason="measured",
    )


def decisions_of(*decisions: Decision):
    return {KERNEL: {decision.key: decision for decision in decisions}}


edges = st.lists(st.integers(1, 400), min_size=2, max_size=12, unique=True).map(
    lambda numbers: list(zip(*[iter(sorted(numbers)[: len(numbers) // 2 * 2])] * 2, strict=True))
)
widths = st.integers(1, 6)


@given(st.dictionaries(widths, edges, max_size=4), widths, st.integers(0, 420))
def test_lookup_never_returns_a_launch_for_a_key_or_count_not_in_the_bundle(space, width, count):
    decisions = decisions_of(*(decision_of(key_of(w), ranges) for w, ranges in space.items()))
    table = combine(KERNEL, [("a.rltune", decisions)])
    entry = table.get(key_of(width))
    if width not in space:
        assert entry is None
        return
    assert not isinstance(entry, Clash)
    assert entry is not None
    found = entry.lookup(count)
    holding = [(first, last) for first, last in space[width] if first <= count <= last]
    if isinstance(found, Hit):
        assert [(found.tokens.first, found.tokens.last)] == holding
        assert found.launch == launch_of(found.tokens.first)
    else:
        assert holding == []
        assert found == BaselineKept(bundle="a.rltune", launch=BASELINE, why="measured")


def test_other_dtype_is_another_key():
    table = combine(KERNEL, [("a.rltune", decisions_of(decision_of(key_of(64), [(1, 9)])))])
    assert key_of(64, "fp16") not in table


def test_other_kernel_is_not_in_the_table():
    assert not combine("toy/backward", [("a", decisions_of(decision_of(key_of(64), [(1, 9)])))])


def test_table_is_read_only():
    table = combine(KERNEL, [("a", decisions_of(decision_of(key_of(64), [(1, 9)])))])
    with pytest.raises(TypeError):
        table[key_of(65)] = table[key_of(64)]  # type: ignore[index]


def test_disjoint_bundles_combine():
    left = decisions_of(decision_of(key_of(64), [(1, 4)]), decision_of(key_of(32), []))
    right = decisions_of(decision_of(key_of(64), [(5, 9)]))
    entry = combine(KERNEL, [("left", left), ("right", right)])[key_of(64)]
    assert not isinstance(entry, Clash)
    assert [entry.lookup(count).bundle for count in (4, 5, 10)] == ["left", "right", "left"]
    assert isinstance(entry.lookup(10), BaselineKept)
    assert list(clashes(("left", left), ("right", right))) == []


def test_overlap_names_both_and_decides_nothing():
    left = decisions_of(decision_of(key_of(64), [(1, 5)]), decision_of(key_of(32), [(1, 5)]))
    right = decisions_of(decision_of(key_of(64), [(5, 9)]))
    expected = Clash(kernel=KERNEL, key=key_of(64), bundles=("left", "right"))
    table = combine(KERNEL, [("left", left), ("right", right)])
    assert table[key_of(64)] == expected
    assert not isinstance(table[key_of(32)], Clash)
    assert list(clashes(("left", left), ("right", right))) == [expected]
    assert str(expected) == "left and right both decide toy/forward for bf16,hidden_size=64"


def test_bundles_with_other_baselines_clash_even_without_ranges():
    left = decision_of(key_of(64), [])
    right = replace(left, baseline=launch_of(512))
    found = combine(KERNEL, [("l", decisions_of(left)), ("r", decisions_of(right))])
    assert isinstance(found[key_of(64)], Clash)
