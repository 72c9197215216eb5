"""Accept or refuse the bundles that were found; freeze what they decide.

In mode ``load`` a bundle that is refused costs one warning and leaves the fixed
launch. In mode ``strict`` it is an error, here and never later. Only signatures
and the signed statement are read; a program's bytes are read and hashed when
the program is needed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from types import MappingProxyType

from rltune.bundle.codec import BundleFile
from rltune.bundle.trust import (
    TrustStore,
    find_trust_store,
    load_trust_store,
    running_privileged,
)
from rltune.bundle.verify import check_signatures
from rltune.errors import (
    BundleError,
    EnvironmentUnfitError,
    OverlapError,
    RltuneError,
    TargetMismatchError,
    TrustStoreError,
)
from rltune.runtime.device import host_differences, probe_host_facts
from rltune.runtime.modes import read_mode
from rltune.runtime.pins import Pin, read_pins
from rltune.runtime.reasons import Clash
from rltune.runtime.registry import (
    Accepted,
    Finding,
    LoadedBundle,
    Refused,
    Registry,
    Superseded,
)
from rltune.runtime.search import Found, find_bundles
from rltune.runtime.table import clashes, freeze, targets_meet

_log = logging.getLogger("rltune")


def load_registry(environ: Mapping[str, str]) -> Registry:
    """Find, verify and freeze.

    Args:
        environ: environment variables.

    Raises:
        UsageError: ``RLTUNE_MODE`` or a pin cannot be understood.
        RltuneError: in strict mode, the first reason not to use a bundle.
    """
    mode = read_mode(environ)
    nothing = MappingProxyType[str, Pin]({})
    if mode == "off":
        return Registry(mode=mode, bundles=(), findings=(), clashes=(), pins=nothing)
    pins = read_pins(environ)
    found = find_bundles(environ, secure=running_privileged())
    loaded, findings = _accept_all(found, environ, strict=mode == "strict")
    bundles, superseded = _keep_highest(loaded)
    findings = tuple(superseded.get(item.path, item) for item in findings)
    met = _clashes(bundles, strict=mode == "strict")
    registry = Registry(mode=mode, bundles=bundles, findings=findings, clashes=met, pins=pins)
    if mode == "strict":
        _require_fitting(registry)
    return registry


def _accept_all(
    found: tuple[Found, ...], environ: Mapping[str, str], *, strict: bool
) -> tuple[tuple[LoadedBundle, ...], tuple[Finding, ...]]:
    loaded: list[LoadedBundle] = []
    findings: list[Finding] = []
    trust: TrustStore | None = None
    for place in found:
        try:
            if trust is None:
                trust = _load_trust(environ)
            bundle = _accept(place, trust)
        except RltuneError as error:
            if strict:
                raise
            findings.append(Refused(path=place.path, code=error.code, reason=error.message))
            _log.warning("%s: bundle refused, the fixed launch is used: %s", place.path, error)
        else:
            loaded.append(bundle)
            predicate = bundle.predicate
            findings.append(
                Accepted(path=bundle.path, stream=predicate.stream, sequence=predicate.sequence)
            )
    return tuple(loaded), tuple(findings)


def _load_trust(environ: Mapping[str, str]) -> TrustStore:
    directory = find_trust_store(None, environ)
    if directory is None:
        raise TrustStoreError(
            "no trust store was found, so no bundle can be accepted",
            advice="Set RLTUNE_TRUST_DIR or install /etc/rltune/trust.",
        )
    return load_trust_store(directory)


def _accept(place: Found, trust: TrustStore) -> LoadedBundle:
    if place.problem:
        raise BundleError(f"{place.path}: {place.problem}")
    file = BundleFile.open(Path(place.path))
    try:
        predicate = check_signatures(file, trust, datetime.now(UTC))
    except RltuneError:
        file.close()
        raise
    return LoadedBundle(
        path=place.path,
        predicate=predicate,
        decisions=freeze(predicate),
        fingerprints=MappingProxyType(
            {item.kernel: item.fingerprint for item in predicate.sources}
        ),
        file=file,
    )


def _keep_highest(
    loaded: tuple[LoadedBundle, ...],
) -> tuple[tuple[LoadedBundle, ...], dict[str, Finding]]:
    kept: list[LoadedBundle] = []
    superseded: dict[str, Finding] = {}
    for bundle in loaded:
        by = next((other for other in loaded if _replaces(other, bundle, loaded)), None)
        if by is None:
            kept.append(bundle)
            continue
        superseded[bundle.path] = Superseded(
            path=bundle.path,
            stream=bundle.predicate.stream,
            sequence=bundle.predicate.sequence,
            by=by.path,
        )
    return tuple(kept), superseded


def _replaces(other: LoadedBundle, bundle: LoadedBundle, order: tuple[LoadedBundle, ...]) -> bool:
    if other.file.payload_digest == bundle.file.payload_digest:
        return order.index(other) < order.index(bundle)  # one bundle at two places
    return (
        other.predicate.stream == bundle.predicate.stream
        and other.predicate.sequence > bundle.predicate.sequence
    )


def _clashes(bundles: tuple[LoadedBundle, ...], *, strict: bool) -> tuple[Clash, ...]:
    met: list[Clash] = []
    for left, right in combinations(bundles, 2):
        if not targets_meet(left.predicate.target, right.predicate.target):
            continue
        found = [
            clash
            for clash in clashes((left.path, left.decisions), (right.path, right.decisions))
            if left.fingerprints.get(clash.kernel) == right.fingerprints.get(clash.kernel)
        ]
        if not found:
            continue
        text = f"{found[0]}, and {len(found) - 1} more" if len(found) > 1 else str(found[0])
        if strict:
            raise OverlapError(text, advice="Remove one of the two bundles.")
        _log.warning("%s: neither decides it, the fixed launch is used", text)
        met += found
    return tuple(met)


def _require_fitting(registry: Registry) -> None:
    if not registry.bundles:
        raise EnvironmentUnfitError(
            "RLTUNE_MODE=strict, and no bundle was found",
            advice="Name one in RLTUNE_BUNDLE_PATH, or use RLTUNE_MODE=load.",
        )
    if registry.fitting_here():
        return
    host = probe_host_facts()
    lines = [
        f"{bundle.path}: {'; '.join(map(str, host_differences(bundle.predicate.target, host)))}"
        for bundle in registry.bundles
    ]
    raise TargetMismatchError(
        f"RLTUNE_MODE=strict, and no bundle is for this machine: {' | '.join(lines)}",
        advice="Install a bundle for this machine, or use RLTUNE_MODE=load.",
    )
