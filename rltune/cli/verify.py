"""``rltune verify``: signature, trust, schema, digests, sources, coverage, programs."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from rltune.bundle.verify import Check, Refused, Verdict, verify_bundle
from rltune.cli.common import (
    OutputFormat,
    installed_operators,
    open_trust_store,
    print_json,
    read_instant,
    require_file,
)
from rltune.report import console


def verify(
    file: Annotated[Path, typer.Argument(help="The bundle.")],
    trust_dir: Annotated[
        Path | None, typer.Option(help="Trust store; RLTUNE_TRUST_DIR, /etc/rltune/trust.")
    ] = None,
    output: Annotated[OutputFormat, typer.Option("--format", help="Form of the verdict.")] = (
        OutputFormat.TEXT
    ),
    now: Annotated[
        str | None, typer.Option(help="Judge as of this UTC time, not the present.")
    ] = None,
    preset: Annotated[
        Path | None,
        typer.Option(
            help="TOML file whose cases must be decided. Default: the built-in preset swept."
        ),
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Compile each program again and compare digests.")
    ] = False,
    toolchain: Annotated[
        str, typer.Option(help="Python that holds the bundle's Triton, for --rebuild.")
    ] = sys.executable,
) -> None:
    """Check a bundle against its signatures and against the sources installed here.

    Needs no GPU and no network, and writes nothing but a compile cache that it removes.

    Example: rltune verify qwen3-8b.rltune --trust-dir trust --rebuild
    """
    require_file(file)
    if preset is not None:
        require_file(preset)
    verdict = verify_bundle(
        file,
        open_trust_store(trust_dir),
        read_instant(now),
        further_checks=checks(toolchain if rebuild else None, preset),
    )
    if output is OutputFormat.JSON:
        print_json(verdict_to_json(file, verdict))
    else:
        console.show_verdict(console.stdout(), str(file), verdict)
    if isinstance(verdict, Refused):
        raise typer.Exit(verdict.exit_status)


def checks(toolchain: str | None, preset: Path | None = None) -> tuple[Check, ...]:
    """What is checked beyond signatures, schema and digests, in order.

    Args:
        toolchain: Python to compile every program with again, or None not to.
        preset: TOML file whose coverage is judged, or None for the built-in one.
    """
    from rltune.sweep import checks as against

    operators = installed_operators()
    found: list[Check] = [
        lambda _, predicate: against.check_sources(predicate, operators),
        lambda _, predicate: against.check_membership(predicate, operators),
        lambda _, predicate: against.check_coverage(predicate, operators, preset),
        against.check_evidence,
    ]
    if toolchain is not None:
        found.append(lambda _, predicate: against.check_rebuild(predicate, operators, toolchain))
    return tuple(found)


def verdict_to_json(file: Path, verdict: Verdict) -> dict[str, object]:
    """The JSON document that stands for a verdict."""
    if isinstance(verdict, Refused):
        return {
            "file": str(file),
            "verdict": "refused",
            "exit_status": verdict.exit_status,
            "findings": [asdict(item) for item in verdict.findings],
        }
    predicate = verdict.predicate
    return {
        "file": str(file),
        "verdict": "verified",
        "exit_status": 0,
        "stream": predicate.stream,
        "sequence": predicate.sequence,
        "created": predicate.created,
        "not_after": predicate.not_after,
        "payload_digest": verdict.payload_digest,
        "signer_key_ids": list(verdict.signer_key_ids),
        "notes": list(verdict.notes),
    }
