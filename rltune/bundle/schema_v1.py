"""Bundle format v1: the signed statement as frozen dataclasses.

Released schemas are never edited: a new version is a new module and a new
branch in ``codec.py``. Field by field the normative text is
``docs/bundle-format.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from rltune.core.launch import LaunchConfig
from rltune.core.shapes import ShapeKey, TokenRange

FORMAT = "rltune-bundle/1"
PREDICATE_TYPE = "urn:rltune:predicate/bundle/v1"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
SUBJECT_NAME = "body"

BlobRole = Literal["program", "evidence"]
TargetKind = Literal["cuda", "interpreter"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Blob:
    """One run of bytes in the body; blobs lie back to back in index order.

    Attributes:
        id: unique within the bundle, such as ``program-3fa9c1d2e4b7`` or ``evidence``.
        role: ``program`` (a raw cubin) or ``evidence`` (one zstd frame of canonical JSON).
        offset: first byte, counted from the start of the body.
        size: length in bytes.
        sha256: hex digest of the bytes.
    """

    id: str
    role: BlobRole
    offset: int
    size: int
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """A compiled binary and what a launcher must know about it.

    Attributes:
        digest: hex sha256 of the binary; programs are referred to by it.
        blob: id of the blob that holds it.
        entry: name of the kernel function in the binary.
        num_warps: warps per program as compiled (block size is 32 times this).
        num_ctas: programs per cluster.
        shared_bytes: dynamic shared memory of a launch.
        global_scratch_bytes: scratch per program; 0 for every program that loads.
    """

    digest: str
    blob: str
    entry: str
    num_warps: int
    num_ctas: int
    shared_bytes: int
    global_scratch_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Launch:
    """A launch config with the program it compiles to.

    Attributes:
        candidate_id: ``LaunchConfig.candidate_id`` of the config.
        launch_config: the knobs.
        program: digest of the program for this kernel, key and target.
    """

    candidate_id: str
    launch_config: LaunchConfig
    program: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """What the sweep decided for a range of token counts: a launch other than the baseline.

    Attributes:
        tokens: the counts it holds for.
        launch: the selected launch.
    """

    tokens: TokenRange
    launch: Launch


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """All decisions for one kernel and structural key.

    Attributes:
        kernel: kernel id, such as ``rms_norm/forward``.
        key: structural key.
        baseline: the fixed launch; used for every count outside ``ranges``.
        ranges: disjoint, ascending; empty where the baseline is kept throughout.
        reason: why the ranges are what they are, one short text, such as
            ``3 of 9 token counts faster by at least 2%`` or ``same program``.
    """

    kernel: str
    key: ShapeKey
    baseline: Launch
    ranges: tuple[Range, ...]
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """Identity of one kernel's source.

    Attributes:
        kernel: kernel id.
        fingerprint: hex digest over JIT closure, grid, argument binding and constexprs.
        space: hex digest over the candidate ids of every swept key.
    """

    kernel: str
    fingerprint: str
    space: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """Device model. All fields are matched exactly.

    Attributes:
        name: the driver's name, such as ``NVIDIA H200``; ``Triton interpreter`` without a GPU.
        compute_capability: such as ``9.0``; ``none`` on the interpreter.
        multiprocessor_count: streaming multiprocessors; 0 on the interpreter.
        memory_bytes: total device memory; 0 on the interpreter.
        partition: MIG profile, or ``none``.
    """

    name: str
    compute_capability: str
    multiprocessor_count: int
    memory_bytes: int
    partition: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Driver:
    """A driver the bundle was qualified under.

    Attributes:
        version: such as ``580.159.04``; ``none`` on the interpreter.
        evidence: id of the evidence blob of that qualification.
    """

    version: str
    evidence: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedFact:
    """A fact recorded always and matched only where ``match`` says so.

    Attributes:
        value: what the sweep saw.
        match: whether a loader requires the same.
    """

    value: str
    match: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class CompileTarget:
    """What the programs were compiled for.

    Attributes:
        backend: ``cuda``.
        arch: such as 90.
        warp_size: threads per warp.
    """

    backend: str
    arch: int
    warp_size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """Where the bundle may load.

    Attributes:
        kind: ``cuda``, or ``interpreter``, which never loads on a GPU.
        device: device model.
        drivers: drivers it was qualified under, at least one.
        compile_target: what the programs were compiled for.
        triton: Triton version, matched exactly.
        ptxas: ``bundled`` (Triton's version names it), or ``custom:`` and the digest of a
            replacement; matched exactly.
        codegen_environment: code-generation variables that change values and were set.
        torch: torch version.
        unit: identity of the single device (UUID).
    """

    kind: TargetKind
    device: Device
    drivers: tuple[Driver, ...]
    compile_target: CompileTarget
    triton: str
    ptxas: str
    codegen_environment: Mapping[str, str]
    torch: RecordedFact
    unit: RecordedFact


@dataclass(frozen=True, kw_only=True, slots=True)
class Provenance:
    """Who made the bundle, from what, how.

    Attributes:
        commit: source commit, or ``unknown``.
        dirty: whether the tree had uncommitted changes, or was no checkout.
        command: the command line.
        versions: rltune, python, torch, triton, by name.
        preset: preset name.
        preset_digest: hex digest of the preset as parsed.
        plan_digest: hex digest of the sweep's plan.
    """

    commit: str
    dirty: bool
    command: tuple[str, ...]
    versions: Mapping[str, str]
    preset: str
    preset_digest: str
    plan_digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Predicate:
    """The signed content. ``docs/bundle-format.md`` states each field's rule.

    Attributes:
        stream: ``product/device class/channel``, such as ``rltune/nvidia-h200/main``.
        sequence: grows with each bundle of a stream.
        created: RFC 3339 UTC time, such as ``2026-12-01T09:30:00Z``.
        not_after: RFC 3339 UTC time after which ``verify`` refuses.
        target: where it may load.
        sources: one per kernel, ascending by kernel id.
        decisions: one per kernel and key, ascending.
        programs: every program referred to, ascending by digest.
        blobs: index of the body.
        body_size: length of the body in bytes.
        provenance: who, what, when.
    """

    stream: str
    sequence: int
    created: str
    not_after: str
    target: Target
    sources: tuple[Source, ...]
    decisions: tuple[Decision, ...]
    programs: tuple[Program, ...]
    blobs: tuple[Blob, ...]
    body_size: int
    provenance: Provenance
