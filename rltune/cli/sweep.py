"""``rltune sweep``: tune a preset on the device that is here, and write a bundle."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rltune.bundle.codec import BundleFile
from rltune.bundle.schema_v1 import Predicate, Provenance, Target
from rltune.cli.common import installed_operators
from rltune.errors import BundleError, EnvironmentUnfitError, NothingSelectedError
from rltune.runtime.device import DeviceFacts, probe_device, probe_host_facts

if TYPE_CHECKING:
    from rltune.sweep.run import SweepResult

SPECS = "rltune_kernels:operator_specs"
_ADVICE = "Run `rltune sweep --resume` to go on where it stopped."


def sweep(
    preset: Annotated[
        str,
        typer.Option(
            help="Built-in preset or TOML file. Default: qwen3-8b on a GPU, smoke without one."
        ),
    ] = "",
    output: Annotated[
        Path | None,
        typer.Option(
            help="File or folder to write to. Default: artifacts/TARGET/PRESET-DIGEST.rltune."
        ),
    ] = None,
    key: Annotated[
        Path | None, typer.Option(help="Private key; signs the bundle and verifies the result.")
    ] = None,
    trust_dir: Annotated[
        Path | None, typer.Option(help="Trust store that the signed bundle is verified against.")
    ] = None,
    stream: Annotated[
        str, typer.Option(help="Stream. Default: rltune/DEVICE/main.", metavar="P/D/C")
    ] = "",
    sequence: Annotated[
        int, typer.Option(help="Sequence number. Default: one more than beside the output.", min=0)
    ] = 0,
    valid_days: Annotated[int, typer.Option(help="Days until the bundle expires.", min=1)] = 365,
    work_dir: Annotated[Path, typer.Option(help="Where journals and programs lie.")] = Path(
        ".rltune/sweep"
    ),
    resume: Annotated[bool, typer.Option(help="Go on with the journal of this plan.")] = False,
    require_selection: Annotated[
        bool, typer.Option(help="Exit 20 if every kernel keeps its baseline.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Name dropped candidates.")] = (
        False
    ),
) -> None:
    """Tune every kernel of a preset on this device and write a bundle.

    Without a GPU the target is the Triton interpreter: the whole pipeline runs, and
    the bundle can never load on a GPU.

    Example: rltune sweep --preset qwen3-8b --key key.pem --trust-dir trust
    """
    from rltune.report.console import stderr
    from rltune.report.progress import ProgressObserver
    from rltune.sweep.preset import load_preset
    from rltune.sweep.run import EVIDENCE_BLOB, make_plan, open_journal, run_sweep

    facts = probe_target()
    chosen = load_preset(preset or ("smoke" if facts.kind == "interpreter" else "qwen3-8b"))
    target = facts.to_target(evidence=EVIDENCE_BLOB)
    plan = make_plan(chosen, installed_operators(), target)
    digest = plan.digest()
    folder = work_dir / digest[:12]
    console = stderr()
    console.print(
        f"{chosen.name} on {facts.device.name}: {len(plan.parts)} kernels and keys, "
        f"{sum(len(part.launches) for part in plan.parts)} launch configs; journal in {folder}",
        highlight=False,
        soft_wrap=True,
    )
    journal_path = folder / "journal.jsonl"
    if journal_path.exists() and not resume:
        console.print(f"starting anew; {_ADVICE}", highlight=False, soft_wrap=True)
    with (
        open_journal(journal_path, digest, resume=resume) as journal,
        ProgressObserver(console, verbose=verbose) as observer,
    ):
        result = run_sweep(plan, facts, journal, folder, observer, specs=SPECS)
        provenance = make_provenance(chosen.name, chosen.digest(), digest)
        path = _write(result, provenance, output, target, stream, sequence, valid_days)
    _sign_and_show(path, key, trust_dir)
    if require_selection and not any(item.ranges for item in result.decisions):
        raise NothingSelectedError(
            f"{path}: every kernel keeps its baseline", advice="The bundle was written."
        )


def probe_target() -> DeviceFacts:
    """Facts of the device to sweep: the first GPU, or the interpreter where there is none.

    Raises:
        EnvironmentUnfitError: torch or Triton is missing, or the driver lists a GPU
            that torch cannot use.
    """
    try:
        import torch
    except ImportError as error:
        raise EnvironmentUnfitError(
            f"torch is not installed: {error}", advice="Install rltune[torch]."
        ) from None
    if torch.cuda.is_available():
        return probe_device(0)
    models = probe_host_facts().models
    if models:
        raise EnvironmentUnfitError(
            f"expected torch to use the GPU that the driver lists ({models[0][0]}), "
            f"found torch {torch.__version__} without CUDA",
            advice="Install a CUDA build of torch, or hide the GPU with CUDA_VISIBLE_DEVICES=.",
        )
    return probe_device(None)


def make_provenance(preset: str, preset_digest: str, plan_digest: str) -> Provenance:
    """Who made this, from what, how."""
    from rltune.sweep.provenance import source_commit, versions

    commit, dirty = source_commit(os.environ)
    return Provenance(
        commit=commit,
        dirty=dirty,
        command=("rltune", *sys.argv[1:]),
        versions=versions(),
        preset=preset,
        preset_digest=preset_digest,
        plan_digest=plan_digest,
    )


def device_slug(name: str) -> str:
    """A device name as a file name, such as ``nvidia-h200``."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _write(
    result: SweepResult,
    provenance: Provenance,
    output: Path | None,
    target: Target,
    stream: str,
    sequence: int,
    valid_days: int,
) -> Path:
    from rltune.sweep.statement import write_statement

    slug = device_slug(target.device.name)
    chosen = stream or f"rltune/{slug}/main"
    named = output is not None and output.suffix == ".rltune"
    default = Path("artifacts") / slug
    folder = default if output is None else output.parent if named else output
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{provenance.preset}-{provenance.plan_digest[:12]}.partial"
    write_statement(
        partial,
        result,
        provenance,
        stream=chosen,
        sequence=sequence or next_sequence(folder, chosen),
        valid_days=valid_days,
    )
    path = (
        output
        if output and named
        else folder / f"{provenance.preset}-{_payload_digest(partial)[:12]}.rltune"
    )
    partial.replace(path)
    return path


def _payload_digest(path: Path) -> str:
    with BundleFile.open(path) as bundle:
        return bundle.payload_digest


def next_sequence(folder: Path, stream: str) -> int:
    """One more than the highest sequence of ``stream`` among the bundles of a folder."""
    return 1 + max(
        (
            found.sequence
            for found in _predicates(sorted(folder.glob("*.rltune")))
            if found.stream == stream
        ),
        default=0,
    )


def _predicates(paths: Sequence[Path]) -> list[Predicate]:
    """Contents of the readable bundles; a damaged one has no number to respect."""
    found = []
    for path in paths:
        try:
            with BundleFile.open(path) as bundle:
                found.append(bundle.decode_predicate())
        except BundleError:
            continue
    return found


def _sign_and_show(path: Path, key: Path | None, trust_dir: Path | None) -> None:
    """Sign if there is a key, verify if there is a trust store, show, and print the exports."""
    from rltune.bundle.signing import load_private_key, sign_bundle
    from rltune.cli.show import show
    from rltune.cli.verify import verify

    if key is None:
        typer.echo(f"{path}: written, unsigned; next: rltune sign {path} --key KEY", err=True)
        return
    sign_bundle(path, load_private_key(key, None))
    show(path, trust_dir=trust_dir)
    if trust_dir is None:
        typer.echo(f"{path}: signed; verify it with --trust-dir", err=True)
        return
    verify(path, trust_dir=trust_dir)
    typer.echo(f"export RLTUNE_BUNDLE_PATH={shlex.quote(str(path.resolve()))}")
    typer.echo(f"export RLTUNE_TRUST_DIR={shlex.quote(str(trust_dir.resolve()))}")
