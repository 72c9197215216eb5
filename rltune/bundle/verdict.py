"""The result of verifying: a value, not an exception."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rltune.bundle.schema_v1 import Predicate
from rltune.errors import RltuneError

EXIT_ORDER = (11, 10, 12, 13, 14, 15, 16)
"""Exit statuses of findings; the one that stands first decides."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One reason to refuse a bundle.

    Attributes:
        code: stable code, such as ``RLT-TRUST-001``.
        exit_status: exit status it stands for, one of ``EXIT_ORDER``.
        where: file, JSON path, kernel or blob.
        expected: what should be there.
        found: what is there.
        advice: what to do next; may be empty.
    """

    code: str
    exit_status: int
    where: str
    expected: str
    found: str
    advice: str = ""

    @classmethod
    def of(cls, error: RltuneError, where: str, expected: str) -> Finding:
        """The finding an error stands for.

        Args:
            error: what was raised.
            where: the file; not repeated in ``found``.
            expected: what should have been there.
        """
        return cls(
            code=error.code,
            exit_status=error.exit_status,
            where=where,
            expected=expected,
            found=error.message.removeprefix(f"{where}: "),
            advice=error.advice,
        )

    def __str__(self) -> str:
        return f"{self.where}: expected {self.expected}; found {self.found}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Verified:
    """The bundle is what its signers signed, and they may sign it.

    Attributes:
        predicate: the signed content.
        payload_digest: hex sha256 of the payload.
        signer_key_ids: keys whose signatures count, ascending.
        notes: what a reader should know and nothing is refused for.
    """

    predicate: Predicate
    payload_digest: str
    signer_key_ids: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Refused:
    """The bundle is not to be used.

    Attributes:
        findings: why, at least one, the deciding one first.
    """

    findings: tuple[Finding, ...]

    @property
    def exit_status(self) -> int:
        """Exit status of the deciding finding."""
        return self.findings[0].exit_status


Verdict = Verified | Refused


def refuse(findings: Iterable[Finding]) -> Refused:
    """A refusal, with its findings in the order in which they decide."""
    return Refused(
        findings=tuple(sorted(findings, key=lambda item: EXIT_ORDER.index(item.exit_status)))
    )
