"""The Markdown table of a comparison."""

from __future__ import annotations

from collections.abc import Sequence

from tools.peers.results import CaseResult, Outcome

COLUMNS = {
    "tuned": "ours tuned",
    "fixed": "ours fixed",
    "torch": "torch",
    "compile": "torch.compile",
    "liger": "Liger",
}
"""Heading of each implementation in the table."""

ABSENT = "-"
_UNSERVED = "\\*"
_NOTE = f"{_UNSERVED} the bundle does not decide every launch of this case."


def render(results: Sequence[CaseResult]) -> str:
    """One line a case: microseconds per call, graph / eager; the best of a line in bold."""
    lines = [
        "| operator | phase | shape | " + " | ".join(COLUMNS.values()) + " |",
        "|---" * (3 + len(COLUMNS)) + "|",
    ]
    lines += [_line(case) for case in results]
    shown = [case.implementations.get("tuned") for case in results]
    if any(item is not None and _is_unserved(item) for item in shown):
        lines += ["", _NOTE]
    return "\n".join(lines)


def microseconds(nanoseconds: int) -> str:
    """Three significant digits, whole microseconds from 100 on."""
    value = nanoseconds / 1000
    if round(value, 2) < 10:
        return f"{value:.2f}"
    return f"{value:.1f}" if round(value, 1) < 100 else f"{value:.0f}"


def _line(case: CaseResult) -> str:
    shown = {name: case.implementations.get(name) for name in COLUMNS}
    timed = [item for item in shown.values() if item is not None and item.status == "ok"]
    best = (
        min((item.graph_ns.median for item in timed if item.graph_ns), default=None),
        min((item.eager_ns.median for item in timed if item.eager_ns), default=None),
    )
    cells = [_cell(name, item, best) for name, item in shown.items()]
    return f"| {case.operator} | {case.phase} | {case.shape} | " + " | ".join(cells) + " |"


def _cell(name: str, item: Outcome | None, best: tuple[int | None, int | None]) -> str:
    if item is None:
        return ABSENT
    if item.status != "ok":
        return item.status
    figures = []
    for spread, least in zip((item.graph_ns, item.eager_ns), best, strict=True):
        if spread is None:
            figures.append(ABSENT)
        elif spread.median == least:
            figures.append(f"**{microseconds(spread.median)}**")
        else:
            figures.append(microseconds(spread.median))
    mark = _UNSERVED if name == "tuned" and _is_unserved(item) else ""
    return " / ".join(figures) + mark


def _is_unserved(item: Outcome) -> bool:
    return item.status == "ok" and not item.served
