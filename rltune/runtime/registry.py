"""What was loaded: accepted bundles, and what became of every file found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rltune.bundle.codec import BundleFile
from rltune.bundle.schema_v1 import Predicate, Program
from rltune.errors import BundleError
from rltune.runtime.device import host_differences, probe_host_facts
from rltune.runtime.modes import Mode
from rltune.runtime.pins import Pin
from rltune.runtime.reasons import Clash
from rltune.runtime.table import Decisions


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LoadedBundle:
    """An accepted bundle.

    Attributes:
        path: its file.
        predicate: the signed content.
        decisions: its decisions by kernel and key; read-only.
        fingerprints: source fingerprint by kernel id; read-only.
        file: the open file, for programs.
    """

    path: str
    predicate: Predicate
    decisions: Decisions
    fingerprints: Mapping[str, str]
    file: BundleFile

    def read_program(self, digest: str) -> tuple[Program, bytes]:
        """A program and its bytes, checked against the signed digest.

        Raises:
            BundleError: the bundle has no such program, or its bytes were altered.
            OSError: the file cannot be read any more.
        """
        for program in self.predicate.programs:
            if program.digest == digest:
                blob = next(item for item in self.predicate.blobs if item.id == program.blob)
                return program, self.file.read_blob(blob)
        raise BundleError(f"{self.path}: no program {digest[:12]}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Accepted:
    """A bundle that is in use.

    Attributes:
        path: its file.
        stream: product, device class, channel.
        sequence: place in the stream.
    """

    path: str
    stream: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.path}: accepted, {self.stream} sequence {self.sequence}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """A bundle that is not in use.

    Attributes:
        path: its file.
        code: code of the error, such as ``RLT-TRUST-001``.
        reason: what is wrong with it.
    """

    path: str
    code: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: refused, {self.reason} [{self.code}]"


@dataclass(frozen=True, kw_only=True, slots=True)
class Superseded:
    """A valid bundle whose place another one takes.

    Attributes:
        path: its file.
        stream: product, device class, channel.
        sequence: place in the stream.
        by: file of the same stream with a higher sequence, or with the same payload.
    """

    path: str
    stream: str
    sequence: int
    by: str

    def __str__(self) -> str:
        return f"{self.path}: replaced by {self.by}, {self.stream} sequence {self.sequence}"


Finding = Accepted | Refused | Superseded
"""What became of one file that was found."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Registry:
    """All that was loaded; immutable.

    Attributes:
        mode: mode of the process.
        bundles: accepted bundles, in search order.
        findings: what became of each file, in search order.
        clashes: what two of the bundles both decide, so that neither does.
        pins: pinned kernels by variable.
    """

    mode: Mode
    bundles: tuple[LoadedBundle, ...]
    findings: tuple[Finding, ...]
    clashes: tuple[Clash, ...]
    pins: Mapping[str, Pin]

    def fitting_here(self) -> tuple[LoadedBundle, ...]:
        """The bundles that nothing known without a device speaks against."""
        host = probe_host_facts()
        return tuple(
            item for item in self.bundles if not host_differences(item.predicate.target, host)
        )
