"""Between the statement of format v1 and its JSON; decoding is strict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass
from dataclasses import fields as dataclass_fields
from typing import cast, get_args

from rltune.bundle.fields import Fields
from rltune.bundle.schema_v1 import (
    FORMAT,
    PREDICATE_TYPE,
    STATEMENT_TYPE,
    SUBJECT_NAME,
    Blob,
    BlobRole,
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
    TargetKind,
)
from rltune.core.canonical import decode, encode
from rltune.core.launch import LaunchConfig
from rltune.core.shapes import ShapeKey, TokenRange
from rltune.errors import BundleError


@dataclass(frozen=True, kw_only=True, slots=True)
class Statement:
    """The in-toto statement that is signed.

    Attributes:
        body_sha256: hex digest of the body, the statement's one subject.
        predicate: what is said about it.
    """

    body_sha256: str
    predicate: Predicate


def encode_statement(statement: Statement) -> bytes:
    """The payload: canonical JSON of the statement.

    Raises:
        BundleError: a value has no canonical form.
    """
    return encode(
        {
            "_type": STATEMENT_TYPE,
            "predicateType": PREDICATE_TYPE,
            "subject": [{"name": SUBJECT_NAME, "digest": {"sha256": statement.body_sha256}}],
            "predicate": predicate_to_json(statement.predicate),
        }
    )


def decode_statement(payload: bytes) -> Statement:
    """Decode a payload whose signature was checked.

    Raises:
        BundleError: it is not the canonical JSON of a statement; names the JSON path.
    """
    fields = Fields(
        decode(payload, "payload"), "payload", ("_type", "predicateType", "subject", "predicate")
    )
    fields.choice("_type", (STATEMENT_TYPE,))
    fields.choice("predicateType", (PREDICATE_TYPE,))
    subjects = [_subject(item, where) for item, where in fields.items("subject")]
    if len(subjects) != 1:
        raise BundleError(f"{fields.path('subject')}: expected one entry, got {len(subjects)}")
    return Statement(
        body_sha256=subjects[0],
        predicate=predicate_from_json(fields.raw("predicate"), fields.path("predicate")),
    )


def _subject(value: object, where: str) -> str:
    fields = Fields(value, where, ("name", "digest"))
    fields.choice("name", (SUBJECT_NAME,))
    return Fields(fields.raw("digest"), fields.path("digest"), ("sha256",)).sha256("sha256")


_PREDICATE = (
    "format", "stream", "sequence", "created", "not_after", "target", "sources", "decisions",
    "programs", "blobs", "body_size", "provenance",
)  # fmt: skip


def predicate_from_json(value: object, where: str) -> Predicate:
    """Decode what :func:`predicate_to_json` wrote.

    Raises:
        BundleError: a field is missing, unknown or of another type; names the JSON path.
    """
    fields = Fields(value, where, _PREDICATE)
    fields.choice("format", (FORMAT,))
    launches: dict[str, Launch] = {}
    return Predicate(
        stream=fields.stream("stream"),
        sequence=fields.integer("sequence"),
        created=fields.time("created"),
        not_after=fields.time("not_after"),
        target=_target(fields.raw("target"), fields.path("target")),
        sources=tuple(_source(*item) for item in fields.items("sources")),
        decisions=tuple(_decision(*item, launches) for item in fields.items("decisions")),
        programs=tuple(_program(*item) for item in fields.items("programs")),
        blobs=tuple(_blob(*item) for item in fields.items("blobs")),
        body_size=fields.integer("body_size"),
        provenance=_provenance(fields.raw("provenance"), fields.path("provenance")),
    )


def _target(value: object, where: str) -> Target:
    names = (
        "kind", "device", "drivers", "compile_target", "triton", "ptxas",
        "codegen_environment", "torch", "unit",
    )  # fmt: skip
    fields = Fields(value, where, names)
    return Target(
        kind=cast("TargetKind", fields.choice("kind", get_args(TargetKind))),
        device=_device(fields.raw("device"), fields.path("device")),
        drivers=tuple(_driver(*item) for item in fields.items("drivers")),
        compile_target=_compile_target(fields.raw("compile_target"), fields.path("compile_target")),
        triton=fields.text("triton"),
        ptxas=fields.text("ptxas"),
        codegen_environment=fields.text_map("codegen_environment"),
        torch=_recorded(fields.raw("torch"), fields.path("torch")),
        unit=_recorded(fields.raw("unit"), fields.path("unit")),
    )


def _device(value: object, where: str) -> Device:
    names = ("name", "compute_capability", "multiprocessor_count", "memory_bytes", "partition")
    fields = Fields(value, where, names)
    return Device(
        name=fields.text("name"),
        compute_capability=fields.text("compute_capability"),
        multiprocessor_count=fields.integer("multiprocessor_count"),
        memory_bytes=fields.integer("memory_bytes"),
        partition=fields.text("partition"),
    )


def _driver(value: object, where: str) -> Driver:
    fields = Fields(value, where, ("version", "evidence"))
    return Driver(version=fields.text("version"), evidence=fields.text("evidence"))


def _compile_target(value: object, where: str) -> CompileTarget:
    fields = Fields(value, where, ("backend", "arch", "warp_size"))
    return CompileTarget(
        backend=fields.text("backend"),
        arch=fields.integer("arch", 1),
        warp_size=fields.integer("warp_size", 1),
    )


def _recorded(value: object, where: str) -> RecordedFact:
    fields = Fields(value, where, ("value", "match"))
    return RecordedFact(value=fields.text("value"), match=fields.boolean("match"))


def _source(value: object, where: str) -> Source:
    fields = Fields(value, where, ("kernel", "fingerprint", "space"))
    return Source(
        kernel=fields.text("kernel"),
        fingerprint=fields.sha256("fingerprint"),
        space=fields.sha256("space"),
    )


def _decision(value: object, where: str, launches: dict[str, Launch]) -> Decision:
    fields = Fields(value, where, ("kernel", "key", "baseline", "ranges", "reason"))
    return Decision(
        kernel=fields.text("kernel"),
        key=ShapeKey.from_json(fields.raw("key"), fields.path("key")),
        baseline=_launch(fields.raw("baseline"), fields.path("baseline"), launches),
        ranges=tuple(_range(*item, launches) for item in fields.items("ranges")),
        reason=fields.text("reason"),
    )


def _range(value: object, where: str, launches: dict[str, Launch]) -> Range:
    fields = Fields(value, where, ("tokens", "launch"))
    tokens = Fields(fields.raw("tokens"), fields.path("tokens"), ("first", "last"))
    first = tokens.integer("first", 1)
    return Range(
        tokens=TokenRange(first, tokens.integer("last", first)),
        launch=_launch(fields.raw("launch"), fields.path("launch"), launches),
    )


def _launch(value: object, where: str, launches: dict[str, Launch]) -> Launch:
    """Decode a launch; one that was decoded before is looked up by its text."""
    text = repr(value)
    if text not in launches:
        launches[text] = _new_launch(value, where)
    return launches[text]


def _new_launch(value: object, where: str) -> Launch:
    fields = Fields(value, where, ("candidate_id", "launch_config", "program"))
    config = LaunchConfig.from_json(fields.raw("launch_config"), fields.path("launch_config"))
    fields.choice("candidate_id", (config.candidate_id,))
    return Launch(
        candidate_id=config.candidate_id, launch_config=config, program=fields.sha256("program")
    )


def _program(value: object, where: str) -> Program:
    names = (
        "digest", "blob", "entry", "num_warps", "num_ctas", "shared_bytes",
        "global_scratch_bytes",
    )  # fmt: skip
    fields = Fields(value, where, names)
    return Program(
        digest=fields.sha256("digest"),
        blob=fields.text("blob"),
        entry=fields.text("entry"),
        num_warps=fields.integer("num_warps", 1),
        num_ctas=fields.integer("num_ctas", 1),
        shared_bytes=fields.integer("shared_bytes"),
        global_scratch_bytes=fields.integer("global_scratch_bytes"),
    )


def _blob(value: object, where: str) -> Blob:
    fields = Fields(value, where, ("id", "role", "offset", "size", "sha256"))
    return Blob(
        id=fields.text("id"),
        role=cast("BlobRole", fields.choice("role", get_args(BlobRole))),
        offset=fields.integer("offset"),
        size=fields.integer("size", 1),
        sha256=fields.sha256("sha256"),
    )


def _provenance(value: object, where: str) -> Provenance:
    names = (
        "commit", "dirty", "command", "versions", "preset", "preset_digest", "plan_digest",
    )  # fmt: skip
    fields = Fields(value, where, names)
    return Provenance(
        commit=fields.text("commit"),
        dirty=fields.boolean("dirty"),
        command=fields.texts("command"),
        versions=fields.text_map("versions"),
        preset=fields.text("preset"),
        preset_digest=fields.sha256("preset_digest"),
        plan_digest=fields.sha256("plan_digest"),
    )


def predicate_to_json(predicate: Predicate) -> dict[str, object]:
    """The JSON object of a predicate; its fields are those of the dataclasses."""
    return {"format": FORMAT, **_object(predicate)}


def _object(value: object) -> dict[str, object]:
    if not is_dataclass(value):
        raise BundleError(f"{type(value).__name__} has no place in a predicate")
    return {field.name: _json(getattr(value, field.name)) for field in dataclass_fields(value)}


def _json(value: object) -> object:
    if isinstance(value, LaunchConfig | ShapeKey):
        return value.to_json()
    if isinstance(value, tuple):
        return [_json(item) for item in value]
    if isinstance(value, Mapping):
        return dict(value)
    return value if isinstance(value, str | int) else _object(value)
