"""The immutable table: kernel, structural key, range of counts.

A table answers from what a bundle says and from nothing else: there is no
nearest key and no nearest count.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType

from rltune.bundle.schema_v1 import Decision, Predicate, Range, Target
from rltune.core.shapes import ShapeKey
from rltune.runtime.reasons import BaselineKept, Clash, Hit

Decisions = Mapping[str, Mapping[ShapeKey, Decision]]
"""Decisions of one bundle by kernel id and structural key; read-only."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """What the bundles of one device say about one kernel and structural key.

    Attributes:
        firsts: first count of each row, ascending; what a lookup bisects.
        rows: (bundle, range, reason) of each selection, in the same order.
        baseline: what holds outside the rows.
    """

    firsts: tuple[int, ...]
    rows: tuple[Hit, ...]
    baseline: BaselineKept

    def lookup(self, count: int) -> Hit | BaselineKept:
        """The selection that holds for ``count``, or the baseline."""
        place = bisect_right(self.firsts, count) - 1
        if place >= 0 and count <= self.rows[place].tokens.last:
            return self.rows[place]
        return self.baseline


KernelTable = Mapping[ShapeKey, Entry | Clash]
"""All keys of one kernel on one device; read-only."""


def freeze(predicate: Predicate) -> Decisions:
    """Index the decisions of one bundle by kernel id and key."""
    index: dict[str, dict[ShapeKey, Decision]] = {}
    for decision in predicate.decisions:
        index.setdefault(decision.kernel, {})[decision.key] = decision
    return MappingProxyType({name: MappingProxyType(keys) for name, keys in index.items()})


def combine(kernel_id: str, bundles: Iterable[tuple[str, Decisions]]) -> KernelTable:
    """The table of one kernel from bundles that all fit the device and the source.

    Args:
        kernel_id: such as ``rms_norm/dx``.
        bundles: (path, decisions) of each bundle.
    """
    decisions: dict[ShapeKey, list[tuple[str, Decision]]] = {}
    for path, index in bundles:
        for key, decision in index.get(kernel_id, {}).items():
            decisions.setdefault(key, []).append((path, decision))
    return MappingProxyType({key: _entry(found) for key, found in decisions.items()})


def clashes(left: tuple[str, Decisions], right: tuple[str, Decisions]) -> Iterator[Clash]:
    """Every kernel and key that two bundles decide for the same counts."""
    for kernel_id in left[1].keys() & right[1].keys():
        keys = left[1][kernel_id].keys() & right[1][kernel_id].keys()
        for key in sorted(keys):
            pair = [(path, index[kernel_id][key]) for path, index in (left, right)]
            found = _first_clash(pair)
            if found is not None:
                yield found


def targets_meet(left: Target, right: Target) -> bool:
    """Whether some device fits both targets."""
    recorded = ((left.torch, right.torch), (left.unit, right.unit))
    return (
        left.kind == right.kind
        and left.device == right.device
        and bool({item.version for item in left.drivers} & {item.version for item in right.drivers})
        and left.compile_target == right.compile_target
        and (left.triton, left.ptxas) == (right.triton, right.ptxas)
        and dict(left.codegen_environment) == dict(right.codegen_environment)
        and not any(a.match and b.match and a.value != b.value for a, b in recorded)
    )


def _entry(found: list[tuple[str, Decision]]) -> Entry | Clash:
    clash = _first_clash(found)
    if clash is not None:
        return clash
    rows = sorted(
        (_hit(path, decision, item) for path, decision in found for item in decision.ranges),
        key=lambda hit: hit.tokens,
    )
    path, first = found[0]
    return Entry(
        firsts=tuple(hit.tokens.first for hit in rows),
        rows=tuple(rows),
        baseline=BaselineKept(bundle=path, launch=first.baseline, why=first.reason),
    )


def _hit(path: str, decision: Decision, item: Range) -> Hit:
    return Hit(bundle=path, tokens=item.tokens, launch=item.launch, why=decision.reason)


def _first_clash(found: list[tuple[str, Decision]]) -> Clash | None:
    for (path, decision), (other_path, other) in combinations(found, 2):
        ranges = any(a.tokens.overlaps(b.tokens) for a in decision.ranges for b in other.ranges)
        if ranges or decision.baseline != other.baseline:
            return Clash(kernel=decision.kernel, key=decision.key, bundles=(path, other_path))
    return None
