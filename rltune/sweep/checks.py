"""Further checks of an authentic bundle, against the sources and presets installed here.

None needs a GPU. Each yields findings; ``rltune verify`` passes them to
``verify_bundle``, which runs them only on a bundle whose signatures hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rltune.bundle.codec import BundleFile
from rltune.bundle.evidence import decode_evidence
from rltune.bundle.schema_v1 import Decision, Launch, Predicate, Program
from rltune.bundle.verdict import Finding
from rltune.core.fingerprint import source_fingerprint
from rltune.core.operator import KernelSpec, OperatorSpec
from rltune.core.shapes import ShapeKey
from rltune.errors import (
    BundleError,
    CoverageError,
    EnvironmentUnfitError,
    ProgramMismatchError,
    RltuneError,
    SourceError,
    StaleSourceError,
)
from rltune.runtime.sources import read_source
from rltune.sweep.outcomes import QUALIFIED_OUTCOME
from rltune.sweep.plan import plan_parts
from rltune.sweep.preset import built_in_presets, load_preset
from rltune.sweep.programs import CompileFailed, CompileOutcome, CompilePool, CompileRequest

_RESWEEP = "Sweep again from the installed source, or install the source of the bundle."


def _finding(
    error: type[RltuneError], where: str, expected: object, found: object, advice: str
) -> Finding:
    return Finding(
        code=error.code,
        exit_status=error.exit_status,
        where=where,
        expected=str(expected),
        found=str(found),
        advice=advice,
    )


def _kernels(operators: Sequence[OperatorSpec]) -> dict[str, KernelSpec]:
    return {kernel.kernel_id: kernel for spec in operators for kernel in spec.kernels}


def _launches(decision: Decision) -> Iterator[tuple[str, Launch]]:
    yield "baseline", decision.baseline
    for item in decision.ranges:
        yield f"{item.tokens.first}..{item.tokens.last}", item.launch


def check_sources(predicate: Predicate, operators: Sequence[OperatorSpec]) -> Iterator[Finding]:
    """Each kernel's source fingerprint equals the installed one's."""
    installed = _kernels(operators)
    for source in predicate.sources:
        if source.kernel not in installed:
            yield _finding(StaleSourceError, source.kernel, "an installed kernel", "none", _RESWEEP)
            continue
        try:
            found = source_fingerprint(installed[source.kernel], read_source)
        except SourceError as error:
            found = error.message
        if found != source.fingerprint:
            yield _finding(
                StaleSourceError,
                f"{source.kernel}: source fingerprint",
                source.fingerprint,
                found,
                _RESWEEP,
            )


def check_membership(predicate: Predicate, operators: Sequence[OperatorSpec]) -> Iterator[Finding]:
    """Each baseline is the installed rule's, and each selection is in the installed space."""
    installed = _kernels(operators)
    for decision in predicate.decisions:
        kernel = installed.get(decision.kernel)
        if kernel is None:
            continue  # check_sources names it
        baseline = kernel.baseline(decision.key)
        space = {baseline, *kernel.candidates(decision.key)}
        where = f"{decision.kernel} {decision.key}"
        if decision.baseline.launch_config != baseline:
            yield _finding(
                StaleSourceError,
                f"{where}: baseline",
                baseline.candidate_id,
                decision.baseline.candidate_id,
                _RESWEEP,
            )
        for item in decision.ranges:
            if item.launch.launch_config not in space:
                yield _finding(
                    StaleSourceError,
                    f"{where}: {item.tokens.first}..{item.tokens.last}",
                    "a launch config of the kernel's space",
                    item.launch.candidate_id,
                    _RESWEEP,
                )


def check_coverage(
    predicate: Predicate, operators: Sequence[OperatorSpec], preset_file: Path | None = None
) -> Iterator[Finding]:
    """Each kernel and key of a preset has a decision.

    The preset is that of ``preset_file``, else the built-in one of the bundle's name.
    Coverage of a preset that is neither is not judged.
    """
    if preset_file is None and predicate.provenance.preset not in built_in_presets():
        return
    preset = load_preset(str(preset_file or predicate.provenance.preset))
    decided = {(decision.kernel, decision.key) for decision in predicate.decisions}
    for part in plan_parts(preset, operators):
        if (part.kernel.kernel_id, part.key) not in decided:
            yield _finding(
                CoverageError,
                part.plan_id,
                f"a decision, as preset {preset.name} declares the case",
                "none",
                "Sweep the preset again.",
            )


def check_evidence(bundle: BundleFile, predicate: Predicate) -> Iterator[Finding]:
    """Each decision has its evidence, and each selected candidate qualified there."""
    blobs = {blob.id: blob for blob in predicate.blobs}
    for driver in predicate.target.drivers:
        document = decode_evidence(bundle.read_blob(blobs[driver.evidence]))
        outcomes = _outcomes(document, driver.evidence)
        for decision in predicate.decisions:
            where = f"{driver.evidence}: {decision.kernel} {decision.key}"
            known = outcomes.get((decision.kernel, str(decision.key)))
            if known is None:
                yield _finding(BundleError, where, "evidence of the decision", "none", _RESWEEP)
                continue
            for item in decision.ranges:
                found = known.get(item.launch.candidate_id, "nothing")
                if found != QUALIFIED_OUTCOME:
                    yield _finding(
                        BundleError,
                        f"{where}: {item.launch.candidate_id}",
                        QUALIFIED_OUTCOME,
                        found,
                        _RESWEEP,
                    )


def _outcomes(document: object, where: str) -> dict[tuple[str, str], Mapping[str, str]]:
    """Outcome by candidate id, by kernel and key."""
    found: dict[tuple[str, str], Mapping[str, str]] = {}
    for part in _list(document, "parts", where):
        key = ShapeKey.from_json(_field(part, "key", where), f"{where}.key")
        found[str(_field(part, "kernel", where)), str(key)] = {
            str(_field(row, "candidate_id", where)): str(_field(row, "outcome", where))
            for row in _list(part, "candidates", where)
        }
    return found


def _field(value: object, name: str, where: str) -> Any:
    if not isinstance(value, dict) or name not in value:
        raise BundleError(f"{where}: expected an object with {name}")
    return value[name]


def _list(value: object, name: str, where: str) -> list[Any]:
    found = _field(value, name, where)
    if not isinstance(found, list):
        raise BundleError(f"{where}.{name}: expected a list")
    return found


def check_rebuild(
    predicate: Predicate, operators: Sequence[OperatorSpec], python: str
) -> Iterator[Finding]:
    """Each shipped program, compiled again from the installed source, has the same digest.

    Args:
        predicate: the authentic content.
        operators: the installed operators.
        python: interpreter that holds the bundle's Triton.

    Raises:
        EnvironmentUnfitError: that interpreter holds another Triton, or none.
    """
    installed = _kernels(operators)
    wanted: dict[CompileRequest, list[tuple[str, Launch]]] = {}
    for decision in predicate.decisions:
        if decision.kernel not in installed:
            continue  # check_sources names it
        for name, launch in _launches(decision):
            request = CompileRequest(
                kernel=installed[decision.kernel],
                key=decision.key,
                launch_config=launch.launch_config,
                target=predicate.target.compile_target,
            )
            where = f"{decision.kernel} {decision.key}: {name}"
            wanted.setdefault(request, []).append((where, launch))
    with CompilePool(python=python) as pool:
        if pool.triton != predicate.target.triton:
            raise EnvironmentUnfitError(
                f"{python}: expected Triton {predicate.target.triton}, which made the bundle, "
                f"found {pool.triton}",
                advice="Name an interpreter that holds it with --toolchain.",
            )
        programs = {program.digest: program for program in predicate.programs}
        for request, outcome in pool.compile_all(list(wanted)):
            yield from _compare(outcome, wanted[request], programs)


def _compare(
    outcome: CompileOutcome,
    shipped: Iterable[tuple[str, Launch]],
    programs: Mapping[str, Program],
) -> Iterator[Finding]:
    advice = "The program was not made from this source by this toolchain: do not use it."
    for where, launch in shipped:
        program = programs[launch.program]
        if isinstance(outcome, CompileFailed):
            yield _finding(ProgramMismatchError, where, launch.program, outcome.reason, advice)
            continue
        fields = (
            "digest",
            "entry",
            "num_warps",
            "num_ctas",
            "shared_bytes",
            "global_scratch_bytes",
        )
        for name in fields:
            rebuilt, signed = getattr(outcome, name), getattr(program, name)
            if rebuilt != signed:
                yield _finding(
                    ProgramMismatchError, f"{where}: program {name}", rebuilt, signed, advice
                )
