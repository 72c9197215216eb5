"""Small bundles for tests: valid ones, and the pieces to make wrong ones."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rltune.bundle.codec import build_body, encode_evidence, write_unsigned
from rltune.bundle.envelope import Envelope, Signature, encode_envelope
from rltune.bundle.fields import format_time
from rltune.bundle.schema_v1 import (
    PAYLOAD_TYPE,
    Blob,
    CompileTarget,
    Decision,
    Device,
    Driver,
    Launch,
    Predicate,
    Program,
    Provenance,
    Range,
    RecordedFact,
    Source,
    Target,
)
from rltune.bundle.signing import generate_key, key_id, load_private_key, sign_bundle, sign_payload
from rltune.bundle.trust import StreamRule, TrustedKey, TrustStore, write_trust_store
from rltune.core.launch import LaunchConfig
from rltune.core.shapes import ShapeKey, TokenRange

NOW = datetime(2026, 12, 1, 9, 30, tzinfo=UTC)
STREAM = "rltune/nvidia-h200/test"
EVIDENCE: dict[str, object] = {"parts": []}
PROGRAMS = (b"\x7fELF baseline", b"\x7fELF candidate")
BASELINE = LaunchConfig.of(BLOCK=1024, num_warps=4)
CANDIDATE = LaunchConfig.of(BLOCK=512, num_warps=2)
TARGET = Target(
    kind="cuda",
    device=Device(
        name="NVIDIA H200",
        compute_capability="9.0",
        multiprocessor_count=132,
        memory_bytes=150_000_000_000,
        partition="none",
    ),
    drivers=(Driver(version="580.159.04", evidence="evidence"),),
    compile_target=CompileTarget(backend="cuda", arch=90, warp_size=32),
    triton="3.7.1",
    ptxas="release 13.0, V13.0.48",
    codegen_environment={},
    torch=RecordedFact(value="2.13.0", match=False),
    unit=RecordedFact(value="GPU-0", match=False),
)


def body_blobs(
    programs: Sequence[bytes] = PROGRAMS, evidence: object = None
) -> tuple[tuple[Blob, ...], bytes]:
    """Index and body of the given programs, and evidence."""
    blobs = [
        (f"program-{hashlib.sha256(data).hexdigest()[:12]}", "program", data) for data in programs
    ]
    packed = encode_evidence(EVIDENCE if evidence is None else evidence)
    return build_body([*blobs, ("evidence", "evidence", packed)])  # type: ignore[list-item]


def programs_of(blobs: Iterable[Blob]) -> tuple[Program, ...]:
    """Programs for the program blobs."""
    programs = [
        Program(
            digest=blob.sha256,
            blob=blob.id,
            entry="_kernel",
            num_warps=4,
            num_ctas=1,
            shared_bytes=0,
            global_scratch_bytes=0,
        )
        for blob in blobs
        if blob.role == "program"
    ]
    return tuple(sorted(programs, key=lambda item: item.digest))


def launch(config: LaunchConfig, program: bytes) -> Launch:
    """A launch of ``program``."""
    return Launch(
        candidate_id=config.candidate_id,
        launch_config=config,
        program=hashlib.sha256(program).hexdigest(),
    )


def make_decision(kernel: str = "silu/forward", width: int = 4096) -> Decision:
    """A decision that selects ``CANDIDATE`` for 1 to 64 tokens."""
    return Decision(
        kernel=kernel,
        key=ShapeKey.of("bf16", {"hidden_size": width}),
        baseline=launch(BASELINE, PROGRAMS[0]),
        ranges=(Range(tokens=TokenRange(1, 64), launch=launch(CANDIDATE, PROGRAMS[1])),),
        reason="7 of 9 token counts faster by at least 2%",
    )


def make_predicate(
    *,
    blobs: tuple[Blob, ...] | None = None,
    stream: str = STREAM,
    sequence: int = 1,
    created: datetime = NOW - timedelta(days=1),
    not_after: datetime = NOW + timedelta(days=90),
    target: Target = TARGET,
    decisions: tuple[Decision, ...] | None = None,
    dirty: bool = False,
) -> Predicate:
    """A predicate over ``blobs`` (those of ``body_blobs()`` by default) that is consistent."""
    index = body_blobs()[0] if blobs is None else blobs
    chosen = (make_decision(),) if decisions is None else decisions
    kernels = sorted({item.kernel for item in chosen})
    return Predicate(
        stream=stream,
        sequence=sequence,
        created=format_time(created),
        not_after=format_time(not_after),
        target=target,
        sources=tuple(
            Source(kernel=name, fingerprint="a" * 64, space="b" * 64) for name in kernels
        ),
        decisions=chosen,
        programs=programs_of(index),
        blobs=index,
        body_size=sum(blob.size for blob in index),
        provenance=Provenance(
            commit="c" * 40,
            dirty=dirty,
            command=("rltune", "sweep"),
            versions={"rltune": "0.1.0"},
            preset="toy",
            preset_digest="d" * 64,
            plan_digest="e" * 64,
        ),
    )


def nothing_decided(**changes: Any) -> tuple[Predicate, bytes]:
    """Predicate and body of a bundle without decisions.

    It fits whatever sources are installed, so that only signatures, trust and form decide.
    """
    index, body = body_blobs(programs=())
    return make_predicate(blobs=index, decisions=(), **changes), body


def make_trust(
    keys: Iterable[Ed25519PrivateKey],
    *,
    stream: str = STREAM,
    threshold: int = 1,
    min_sequence: int = 0,
    now: datetime = NOW,
) -> TrustStore:
    """A trust store in memory that accepts ``keys`` for ``stream`` for a year around ``now``."""
    trusted = tuple(
        TrustedKey(
            key_id=key_id(key.public_key()),
            public_key=key.public_key(),
            not_before=now - timedelta(days=365),
            not_after=now + timedelta(days=365),
        )
        for key in keys
    )
    rule = StreamRule(
        stream=stream,
        key_ids=tuple(item.key_id for item in trusted),
        threshold=threshold,
        min_sequence=min_sequence,
    )
    return TrustStore(
        where=Path("trust.json"),
        expires=now + timedelta(days=365),
        keys=trusted,
        streams=(rule,),
    )


def make_bundle(
    tmp_path: Path,
    *,
    predicate: Predicate | None = None,
    body: bytes | None = None,
    now: datetime = NOW,
    signed: bool = True,
) -> tuple[Path, Path, Path]:
    """Write a small signed bundle, its trust folder and its key.

    Args:
        tmp_path: folder to write in.
        predicate: ``make_predicate()`` by default.
        body: the body that fits it; ``body_blobs()`` by default.
        now: instant around which the keys are valid for a year.
        signed: whether to sign it.

    Returns:
        Paths of bundle, trust folder and private key.
    """
    bundle_path, trust_dir, key_path = (
        tmp_path / name for name in ("b.rltune", "trust", "key.pem")
    )
    key = load_private_key(key_path, None) if key_path.exists() else generate_key(key_path, None)
    chosen = make_predicate() if predicate is None else predicate
    write_unsigned(bundle_path, chosen, body_blobs()[1] if body is None else body)
    if signed:
        sign_bundle(bundle_path, key)
    write_trust_store(trust_dir, make_trust([key], stream=chosen.stream, now=now))
    return bundle_path, trust_dir, key_path


def write_raw(
    path: Path,
    payload: bytes,
    body: bytes = b"",
    keys: Iterable[Ed25519PrivateKey] = (),
    *,
    payload_type: str = PAYLOAD_TYPE,
    signatures: Sequence[Signature] = (),
) -> Path:
    """Write any payload, validly signed by ``keys``, past every check of the writer."""
    made = [sign_payload(payload_type, payload, key) for key in keys]
    envelope = Envelope(payload=payload, payload_type=payload_type, signatures=(*signatures, *made))
    path.write_bytes(encode_envelope(envelope) + b"\n" + body)
    return path


def with_target(predicate: Predicate, **changes: object) -> Predicate:
    """The same predicate with another target."""
    return replace(predicate, target=replace(predicate.target, **changes))  # type: ignore[arg-type]


def damage(path: Path) -> None:
    """Flip a bit of the last byte of the body."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def open_descriptors() -> int:
    """How many descriptors this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))
