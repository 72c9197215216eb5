"""Real bundles and trust stores for the runtime's tests."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rltune.bundle.codec import build_body, encode_evidence, write_unsigned
from rltune.bundle.schema_v1 import (
    Blob,
    Decision,
    Launch,
    Predicate,
    Program,
    Provenance,
    Range,
    Source,
    Target,
)
from rltune.bundle.signing import key_id, sign_bundle
from rltune.bundle.trust import StreamRule, TrustedKey, TrustStore, write_trust_store
from rltune.core.launch import LaunchConfig
from rltune.core.operator import KernelSpec
from rltune.core.shapes import ShapeKey, TokenRange
from rltune.runtime.device import probe_device
from rltune.runtime.sources import installed_fingerprint

STREAM = "rltune/test/main"


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What a test's bundle says about one kernel and key."""

    kernel: KernelSpec
    key: ShapeKey
    ranges: tuple[tuple[int, int, LaunchConfig], ...] = ()


def write_trust(
    directory: Path, key: Ed25519PrivateKey, streams: Sequence[str] = (STREAM,), **others: object
) -> Path:
    """Write a trust store that accepts ``key`` for ``streams``."""
    public = key.public_key()
    name = key_id(public)
    store = TrustStore(
        where=directory,
        expires=datetime(2100, 1, 1, tzinfo=UTC),
        keys=(
            TrustedKey(
                key_id=name,
                public_key=public,
                not_before=datetime(2020, 1, 1, tzinfo=UTC),
                not_after=datetime(2100, 1, 1, tzinfo=UTC),
            ),
        ),
        streams=tuple(
            StreamRule(stream=stream, key_ids=(name,), threshold=1, min_sequence=1)
            for stream in streams
        ),
    )
    write_trust_store(directory, replace(store, **others))  # type: ignore[arg-type]
    return directory


def interpreter_target() -> Target:
    return probe_device(None).to_target(evidence="evidence")


def write_bundle(
    path: Path,
    key: Ed25519PrivateKey | None,
    choices: Sequence[Choice],
    *,
    target: Target | None = None,
    stream: str = STREAM,
    sequence: int = 1,
    fingerprint: str = "",
) -> Path:
    """Write a bundle signed by ``key``; its programs are made-up bytes."""
    binaries = {
        config.candidate_id: f"program {config.candidate_id}".encode()
        for choice in choices
        for config in (choice.kernel.baseline(choice.key), *(item[2] for item in choice.ranges))
    }
    blobs = [("evidence", "evidence", encode_evidence({}))]
    blobs += [(f"program-{name}", "program", data) for name, data in binaries.items()]
    index, body = build_body(blobs)  # type: ignore[arg-type]
    kernels = {choice.kernel.kernel_id: choice.kernel for choice in choices}
    predicate = Predicate(
        stream=stream,
        sequence=sequence,
        created="2026-01-01T00:00:00Z",
        not_after="2036-01-01T00:00:00Z",
        target=target or interpreter_target(),
        sources=tuple(
            Source(
                kernel=name,
                fingerprint=fingerprint or installed_fingerprint(kernels[name]),
                space="0" * 64,
            )
            for name in sorted(kernels)
        ),
        decisions=tuple(sorted(map(_decision, choices), key=lambda item: (item.kernel, item.key))),
        programs=tuple(sorted(_programs(index), key=lambda item: item.digest)),
        blobs=index,
        body_size=len(body),
        provenance=Provenance(
            commit="unknown",
            dirty=True,
            command=("test",),
            versions={"rltune": "0.1.0"},
            preset="test",
            preset_digest="0" * 64,
            plan_digest="0" * 64,
        ),
    )
    write_unsigned(path, predicate, body)
    if key is not None:
        sign_bundle(path, key)
    return path


def _decision(choice: Choice) -> Decision:
    return Decision(
        kernel=choice.kernel.kernel_id,
        key=choice.key,
        baseline=_launch(choice.kernel.baseline(choice.key)),
        ranges=tuple(
            Range(tokens=TokenRange(first, last), launch=_launch(config))
            for first, last, config in choice.ranges
        ),
        reason="faster by 5%",
    )


def _launch(config: LaunchConfig) -> Launch:
    digest = hashlib.sha256(f"program {config.candidate_id}".encode()).hexdigest()
    return Launch(candidate_id=config.candidate_id, launch_config=config, program=digest)


def _programs(index: Sequence[Blob]) -> list[Program]:
    return [
        Program(
            digest=blob.sha256,
            blob=blob.id,
            entry="entry",
            num_warps=4,
            num_ctas=1,
            shared_bytes=0,
            global_scratch_bytes=0,
        )
        for blob in index
        if blob.role == "program"
    ]
