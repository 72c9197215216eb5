"""Bundles and verdicts on a terminal; plain lines where there is none."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rltune.bundle.schema_v1 import Decision, Predicate
from rltune.bundle.verify import Refused, Verdict, Verified

_PLAIN_WIDTH = 200


def stdout() -> Console:
    """Console for data."""
    return _console(sys.stdout.isatty(), stderr=False)


def stderr() -> Console:
    """Console for prose."""
    return _console(sys.stderr.isatty(), stderr=True)


def _console(is_terminal: bool, *, stderr: bool) -> Console:  # noqa: FBT001 - private
    width = None if is_terminal else _PLAIN_WIDTH
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


def show_verdict(console: Console, file: str, verdict: Verdict) -> None:
    """Print a verdict with its facts or findings.

    Args:
        console: where to write.
        file: the bundle's path.
        verdict: the result.
    """
    if isinstance(verdict, Refused):
        _show_refused(console, file, verdict)
    else:
        _show_verified(console, file, verdict)


def _show_verified(console: Console, file: str, verdict: Verified) -> None:
    predicate = verdict.predicate
    _line(console, Text.assemble((f"{file}: verified", "bold green")))
    for name, value in (
        ("stream", f"{predicate.stream}, sequence {predicate.sequence}"),
        ("target", _target(predicate)),
        ("not after", predicate.not_after),
        ("payload", f"sha256 {verdict.payload_digest}"),
        *(("signed by", key_id) for key_id in verdict.signer_key_ids),
        *(("note", note) for note in verdict.notes),
    ):
        _line(console, Text(f"  {name:10} {value}"))


def _show_refused(console: Console, file: str, verdict: Refused) -> None:
    _line(console, Text.assemble((f"{file}: refused", "bold red")))
    for finding in verdict.findings:
        _line(console, Text(f"  [{finding.code}] {finding.where}"))
        _line(console, Text(f"    expected {finding.expected}"))
        _line(console, Text(f"    found    {finding.found}"))
        if finding.advice:
            _line(console, Text(f"    {finding.advice}"))


def show_predicate(console: Console, predicate: Predicate, payload_digest: str) -> None:
    """Print what a bundle says: facts, then one row per kernel, key and range.

    Args:
        console: where to write.
        predicate: the content.
        payload_digest: hex sha256 of the payload.
    """
    provenance = predicate.provenance
    dirty = ", uncommitted changes" if provenance.dirty else ""
    for name, value in (
        ("stream", f"{predicate.stream}, sequence {predicate.sequence}"),
        ("created", f"{predicate.created}, not after {predicate.not_after}"),
        ("target", _target(predicate)),
        ("preset", provenance.preset),
        ("commit", f"{provenance.commit}{dirty}"),
        ("programs", f"{len(predicate.programs)} in {predicate.body_size} bytes of body"),
        ("payload", f"sha256 {payload_digest}"),
    ):
        _line(console, Text(f"{name:10} {value}"))
    table = Table("kernel", "key", "tokens", "candidate", "reason", box=None, pad_edge=False)
    for decision in predicate.decisions:
        for row in _rows(decision):
            table.add_row(*map(Text, row))
    console.print(table)


def _rows(decision: Decision) -> Iterator[tuple[str, str, str, str, str]]:
    key = str(decision.key)
    for item in decision.ranges:
        tokens = f"{item.tokens.first}-{item.tokens.last}"
        yield decision.kernel, key, tokens, item.launch.candidate_id, decision.reason
    tokens = "other" if decision.ranges else "all"
    candidate = f"baseline {decision.baseline.candidate_id}"
    yield decision.kernel, key, tokens, candidate, "" if decision.ranges else decision.reason


def show_rows(console: Console, rows: Sequence[Mapping[str, str | int | None]]) -> None:
    """Print rows of equal fields as a table under the fields' names.

    Args:
        console: where to write.
        rows: text stands on the left of its column, numbers on the right; None is ``-``.
    """
    table = Table(box=None, pad_edge=False)
    for name in rows[0] if rows else ():
        text = any(isinstance(row[name], str) for row in rows)
        table.add_column(name, justify="left" if text else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text("-" if value is None else str(value)) for value in row.values()))
    console.print(table)


def warn_unverified(console: Console, doubt: str) -> None:
    """Say loudly that what was shown is not to be believed.

    Args:
        console: where to write.
        doubt: why it is not verified.
    """
    _line(console, Text.assemble(("NOT VERIFIED: anyone can have written this.", "bold red")))
    _line(console, Text(f"  {doubt}"))


def _target(predicate: Predicate) -> str:
    target = predicate.target
    drivers = ", ".join(driver.version for driver in target.drivers)
    return f"{target.kind}: {target.device.name}, driver {drivers}, Triton {target.triton}"


def _line(console: Console, text: Text) -> None:
    console.print(text, soft_wrap=True)
