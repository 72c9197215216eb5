"""The result file: medians over samples within a process, then over processes."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rltune.errors import UsageError
from tools.peers.cases import DTYPE, Case

FORMAT = "rltune-peers/1"

Status = Literal["ok", "wrong", "failed"]
_STATUSES: tuple[Status, ...] = ("ok", "wrong", "failed")  # from good to bad
_CASE_FIELDS = {"operator", "phase", "shape", "axes", "dtype", "implementations"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """Nanoseconds per call: median, least and largest of the processes' medians."""

    median: int
    min: int
    max: int

    @classmethod
    def of(cls, samples: Iterable[Sequence[int]]) -> Spread | None:
        """The spread of samples grouped by process; None if there are none."""
        medians = [statistics.median(group) for group in samples if group]
        if not medians:
            return None
        return cls(
            median=round(statistics.median(medians)),
            min=round(min(medians)),
            max=round(max(medians)),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """One implementation of one case.

    Attributes:
        status: ``ok``; ``wrong``: too far from the oracle, so not timed; ``failed``: it raised.
        note: what was said of it, or ``""``.
        max_ulp: largest error of all processes; None if not finite or not measured.
        processes: processes that measured it.
        sets: rotating input sets.
        launches: launches of a call by our launcher.
        bound_launches: how many of them ran a program of a bundle.
        graph_ns: device time; None if there is none.
        eager_ns: wall time; None if there is none.
    """

    status: Status
    note: str
    max_ulp: float | None
    processes: int
    sets: int
    launches: int
    bound_launches: int
    graph_ns: Spread | None
    eager_ns: Spread | None

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]]) -> Outcome:
        """What several processes said of one implementation; the worst status counts."""
        errors = [row["max_ulp"] for row in rows if "max_ulp" in row]
        last = rows[-1]
        return cls(
            status=max((row["status"] for row in rows), key=_STATUSES.index),
            note=next((row["note"] for row in rows if row["note"]), ""),
            max_ulp=max(errors, default=None),
            processes=len(rows),
            sets=last.get("sets", 0),
            launches=last.get("launches", 0),
            bound_launches=min(row.get("bound_launches", 0) for row in rows),
            graph_ns=Spread.of(row.get("graph_ns", ()) for row in rows),
            eager_ns=Spread.of(row.get("eager_ns", ()) for row in rows),
        )

    @property
    def served(self) -> bool:
        """Whether every launch ran a program of a bundle."""
        return 0 < self.launches == self.bound_launches

    def to_json(self) -> dict[str, object]:
        """The JSON object that stands for this outcome."""
        data: dict[str, object] = {name: getattr(self, name) for name in self.__slots__}
        for name in ("graph_ns", "eager_ns"):
            spread = getattr(self, name)
            data[name] = (
                None if spread is None else {key: getattr(spread, key) for key in Spread.__slots__}
            )
        return data

    @classmethod
    def from_json(cls, data: Any, where: str) -> Outcome:
        """Read what :meth:`to_json` wrote.

        Raises:
            UsageError: it is no such object; the message says where.
        """
        _fields(data, set(cls.__slots__), where)
        if data["status"] not in _STATUSES:
            raise UsageError(f"{where}.status: expected {_STATUSES}, got {data['status']!r}")
        spreads = {
            name: _spread(data[name], f"{where}.{name}") for name in ("graph_ns", "eager_ns")
        }
        return cls(**{**data, **spreads})


@dataclass(frozen=True, kw_only=True, slots=True)
class CaseResult:
    """One case: its outcome for each implementation that was measured."""

    operator: str
    phase: str
    shape: str
    axes: Mapping[str, int]
    implementations: Mapping[str, Outcome]

    def to_json(self) -> dict[str, object]:
        """The JSON object that stands for this case."""
        return {
            "operator": self.operator,
            "phase": self.phase,
            "shape": self.shape,
            "axes": dict(self.axes),
            "dtype": DTYPE,
            "implementations": {
                name: outcome.to_json() for name, outcome in self.implementations.items()
            },
        }

    @classmethod
    def from_json(cls, data: Any, where: str) -> CaseResult:
        """Read what :meth:`to_json` wrote.

        Raises:
            UsageError: it is no such object; the message says where.
        """
        _fields(data, _CASE_FIELDS, where)
        found = data["implementations"]
        if not isinstance(found, dict):
            raise UsageError(f"{where}.implementations: expected an object, got {found!r}")
        return cls(
            operator=data["operator"],
            phase=data["phase"],
            shape=data["shape"],
            axes=data["axes"],
            implementations={
                name: Outcome.from_json(item, f"{where}.implementations.{name}")
                for name, item in found.items()
            },
        )


def collect(cases: Sequence[Case], rows: Sequence[Mapping[str, Any]]) -> tuple[CaseResult, ...]:
    """Sum up the rows of all processes; cases without a row are left out."""
    grouped: dict[str, dict[str, list[Mapping[str, Any]]]] = {}
    for row in rows:
        grouped.setdefault(row["case"], {}).setdefault(row["implementation"], []).append(row)
    return tuple(
        CaseResult(
            operator=case.operator,
            phase=case.phase,
            shape=case.shape,
            axes=case.axes,
            implementations={
                name: Outcome.of(found) for name, found in sorted(grouped[case.name].items())
            },
        )
        for case in cases
        if case.name in grouped
    )


def problems(results: Sequence[CaseResult]) -> list[str]:
    """One line for each implementation that is wrong, failed or lacks a figure."""
    return [
        f"{case.operator} {case.phase} {case.shape}: {name} {outcome.status}: {outcome.note}"
        for case in results
        for name, outcome in case.implementations.items()
        if outcome.status != "ok" or outcome.note
    ]


def write(path: Path, facts: Mapping[str, object], results: Sequence[CaseResult]) -> None:
    """Write a result file: the format, what was measured on, and every case."""
    document = {"format": FORMAT, **facts, "cases": [item.to_json() for item in results]}
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def read(path: Path) -> tuple[CaseResult, ...]:
    """The cases of a result file.

    Raises:
        UsageError: there is no such file, or it is of another format.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: cannot be read as JSON: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise UsageError(f"{path}: expected format {FORMAT!r}")
    cases = document.get("cases")
    if not isinstance(cases, list):
        raise UsageError(f"{path}: $.cases: expected a list")
    return tuple(
        CaseResult.from_json(item, f"{path}: $.cases[{index}]") for index, item in enumerate(cases)
    )


def _fields(data: Any, expected: set[str], where: str) -> None:
    if not isinstance(data, dict) or set(data) != expected:
        found = sorted(data) if isinstance(data, dict) else type(data).__name__
        raise UsageError(f"{where}: expected the fields {sorted(expected)}, got {found}")


def _spread(data: Any, where: str) -> Spread | None:
    if data is None:
        return None
    _fields(data, set(Spread.__slots__), where)
    for name, value in data.items():
        if type(value) is not int or value < 0:
            raise UsageError(f"{where}.{name}: expected whole nanoseconds, got {value!r}")
    return Spread(**data)
