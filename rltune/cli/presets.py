"""``rltune presets``: the built-in presets, and what a sweep of one would try."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rltune.bundle.codec import BundleFile
from rltune.bundle.schema_v1 import Predicate
from rltune.bundle.verdict import Finding, Refused
from rltune.bundle.verify import verify_bundle
from rltune.cli.common import (
    OutputFormat,
    installed_operators,
    open_trust_store,
    print_json,
    read_instant,
    require_file,
)
from rltune.errors import CoverageError, UsageError
from rltune.runtime.device import INTERPRETER_COMPILE_TARGET

if TYPE_CHECKING:
    from rltune.sweep.plan import KernelPlan
    from rltune.sweep.preset import Preset
    from rltune.sweep.tally import Outcomes

Row = dict[str, str | int | None]


def presets(
    name: Annotated[
        str,
        typer.Argument(help="Preset to lay out: built-in name or TOML file; lists all if none."),
    ] = "",
    bundle: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Count distinct and qualified programs by this bundle's evidence. A bundle that "
            "does not verify against the trust store is refused, as by rltune verify.",
        ),
    ] = None,
    trust_dir: Annotated[
        Path | None,
        typer.Option(help="Trust store for --bundle; RLTUNE_TRUST_DIR, /etc/rltune/trust."),
    ] = None,
    compile_all: Annotated[
        bool,
        typer.Option(
            "--compile",
            help="Count distinct programs by compiling every candidate for sm_90; needs no GPU.",
        ),
    ] = False,
    output: Annotated[OutputFormat, typer.Option("--format", help="Form of the answer.")] = (
        OutputFormat.TEXT
    ),
) -> None:
    """List the built-in presets, or lay out the kernels and candidates of one.

    One row a kernel and structural key: candidates, qualification inputs and measured
    token counts. With --bundle or --compile also distinct programs, the baseline's
    included: "programs" are those that compiled, "same_order" those that add in the
    baseline's order, "qualified" those whose bytes are the baseline's, which only a
    sweep on a GPU tells. "-" stands for what is not known.

    Example: rltune presets qwen3-8b --bundle qwen3-8b.rltune --trust-dir trust
    """
    from rltune.report import console

    _check_usage(name, bundle, trust_dir, compile_all=compile_all)
    rows = _layout(name, bundle, trust_dir, compile_all=compile_all) if name else _list()
    if output is OutputFormat.JSON:
        print_json(rows)
    else:
        console.show_rows(console.stdout(), rows)


def _check_usage(
    name: str, bundle: Path | None, trust_dir: Path | None, *, compile_all: bool
) -> None:
    if bundle is not None and compile_all:
        raise UsageError(
            "--bundle and --compile both say what to count by", advice="Give one of them."
        )
    if not name and (bundle is not None or compile_all):
        raise UsageError("--bundle and --compile count for one preset", advice="Name a preset.")
    if trust_dir is not None and bundle is None:
        raise UsageError("--trust-dir is what --bundle is verified against, and there is none")


def _list() -> list[Row]:
    from rltune.sweep.preset import built_in_presets, load_preset

    return [{"preset": name, "summary": load_preset(name).summary} for name in built_in_presets()]


def _layout(
    name: str, bundle: Path | None, trust_dir: Path | None, *, compile_all: bool
) -> list[Row]:
    from rltune.sweep.plan import plan_parts
    from rltune.sweep.preset import load_preset

    preset = load_preset(name)
    parts = plan_parts(preset, installed_operators())
    counts: Mapping[str, Row] = {}
    if bundle is not None:
        counts = _count_by_bundle(preset, parts, bundle, trust_dir)
    elif compile_all:
        counts = _count_by_compiling(preset, parts)
    unknown = dict.fromkeys(next(iter(counts.values()), {}))
    return [
        {
            "kernel": part.kernel.kernel_id,
            "key": str(part.key),
            "candidates": len(part.candidates),
            "qualification": len(part.qualification),
            "measurement": len(part.measurement),
            **counts.get(part.plan_id, unknown),
        }
        for part in parts
    ]


def _count_by_compiling(preset: Preset, parts: Sequence[KernelPlan]) -> dict[str, Row]:
    from rltune.report.console import stderr
    from rltune.report.progress import ProgressObserver
    from rltune.sweep.outcomes import count_programs
    from rltune.sweep.tally import compile_outcomes

    with ProgressObserver(stderr()) as observer:
        observer.note(f"{preset.name}: {len(parts)} kernels and keys")
        found = compile_outcomes(parts, INTERPRETER_COMPILE_TARGET, observer)
    rows: dict[str, Row] = {}
    for plan_id, outcomes in found.items():
        counts = count_programs(outcomes.values())
        rows[plan_id] = {
            "programs": counts.programs,
            "same_order": counts.same_order,
            "qualified": None,
        }
    return rows


def _count_by_bundle(
    preset: Preset, parts: Sequence[KernelPlan], file: Path, trust_dir: Path | None
) -> dict[str, Row]:
    from rltune.sweep.outcomes import count_programs

    predicate, found = _verified_outcomes(file, trust_dir)
    common = [part for part in parts if part.plan_id in found]
    if not common:
        raise CoverageError(
            f"{file}: expected evidence of kernels and keys of preset {preset.name}, found none; "
            f"the bundle was made for preset {predicate.provenance.preset}",
            advice="Name a bundle that was swept for this preset.",
        )
    _note_differences(file, predicate, preset, common, found)
    rows: dict[str, Row] = {}
    for part in common:
        counts = count_programs(found[part.plan_id].values())
        rows[part.plan_id] = {"programs": counts.programs, "qualified": counts.qualified}
    return rows


def _verified_outcomes(file: Path, trust_dir: Path | None) -> tuple[Predicate, Outcomes]:
    """Content and outcomes of a bundle; ends the command with a verdict that refuses it."""
    from rltune.report import console
    from rltune.sweep.checks import check_evidence
    from rltune.sweep.tally import evidence_outcomes

    found: Outcomes = {}

    def collect(bundle: BundleFile, predicate: Predicate) -> Iterable[Finding]:
        findings = list(check_evidence(bundle, predicate))
        if not findings:
            found.update(evidence_outcomes(bundle, predicate))
        return findings

    require_file(file)
    now = read_instant(None)
    verdict = verify_bundle(file, open_trust_store(trust_dir), now, further_checks=[collect])
    if isinstance(verdict, Refused):
        console.show_verdict(console.stderr(), str(file), verdict)
        raise typer.Exit(verdict.exit_status)
    return verdict.predicate, found


def _note_differences(
    file: Path, predicate: Predicate, preset: Preset, parts: Sequence[KernelPlan], found: Outcomes
) -> None:
    """Say on standard error which counts are not of what is installed here."""
    from rltune.sweep.tally import stale_kernels

    kernel_ids = {part.kernel.kernel_id for part in parts}
    stale = stale_kernels(predicate, kernel_ids, installed_operators())
    other = {
        part.kernel.kernel_id
        for part in parts
        if set(found[part.plan_id]) != {item.candidate_id for item in part.candidates}
    }
    for what, kernels in (
        ("another source than is installed here", stale),
        (f"other candidates than preset {preset.name} lays out here", other),
    ):
        if kernels:
            typer.echo(f"{file}: counts are of {what}: {', '.join(sorted(kernels))}", err=True)
