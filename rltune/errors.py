"""One tree of errors. Each has a stable code, an exit status and advice.

A message says what failed, where, what was expected and what was found; the
advice says what to do next. Standard library only, open to every room.
"""

from __future__ import annotations

from typing import ClassVar


class RltuneError(Exception):
    """Base of every error this project raises on purpose.

    Attributes:
        code: stable identifier, such as ``RLT-BUNDLE-003``.
        exit_status: what the command line exits with.
        advice: one sentence on what to do next; may be empty.
    """

    code: ClassVar[str] = "RLT-000"
    exit_status: ClassVar[int] = 70

    def __init__(self, message: str, *, advice: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.advice = advice

    def __str__(self) -> str:
        text = f"{self.message} [{self.code}]"
        return f"{text} {self.advice}" if self.advice else text


class UsageError(RltuneError):
    """The caller asked for something that does not exist or contradicts itself."""

    code = "RLT-USAGE-001"
    exit_status = 2


class PresetError(UsageError):
    """A preset file is malformed; the message names file and field."""

    code = "RLT-PRESET-001"


class EnvironmentUnfitError(RltuneError):
    """No device, no toolchain, or one that does not fit."""

    code = "RLT-ENV-001"
    exit_status = 3


class DriverError(EnvironmentUnfitError):
    """A call of the GPU driver failed; the message names call and status."""

    code = "RLT-ENV-002"


class TrustError(RltuneError):
    """The signature or the trust store does not allow this bundle."""

    code = "RLT-TRUST-001"
    exit_status = 10


class TrustStoreError(TrustError):
    """The trust store itself is unreadable, malformed or writable by others."""

    code = "RLT-TRUST-002"


class KeyFileError(TrustError):
    """A key file is unreadable, of another kind, or readable by others."""

    code = "RLT-TRUST-003"


class BundleError(RltuneError):
    """The file is not a well-formed bundle; the message names the JSON path."""

    code = "RLT-BUNDLE-001"
    exit_status = 11


class BlobDigestError(BundleError):
    """Bytes of the body differ from the digest that was signed for them."""

    code = "RLT-BUNDLE-002"


class StaleSourceError(RltuneError):
    """The kernel source differs from the one the bundle was made from."""

    code = "RLT-STALE-001"
    exit_status = 12


class SourceError(StaleSourceError):
    """A kernel's source cannot be read or has a form that has no fingerprint."""

    code = "RLT-STALE-002"


class TargetMismatchError(RltuneError):
    """The bundle is for another device, driver or toolchain."""

    code = "RLT-TARGET-001"
    exit_status = 13


class CoverageError(RltuneError):
    """The bundle lacks cases that the preset declares."""

    code = "RLT-COVERAGE-001"
    exit_status = 14


class ProgramMismatchError(RltuneError):
    """A program compiled again from source differs from the shipped one."""

    code = "RLT-PROGRAM-001"
    exit_status = 15


class BytesDifferError(RltuneError):
    """Output bytes differ from those that were recorded or from the baseline."""

    code = "RLT-BYTES-001"
    exit_status = 16


class NothingSelectedError(RltuneError):
    """Every kernel keeps its baseline, and a selection was required."""

    code = "RLT-SELECT-001"
    exit_status = 20


class BaselineError(EnvironmentUnfitError):
    """The baseline launch cannot run here, so there is nothing to compare with."""

    code = "RLT-SWEEP-001"


class JournalError(RltuneError):
    """A journal is not of this plan, or was altered."""

    code = "RLT-JOURNAL-001"
    exit_status = 11


class OperatorArgumentError(RltuneError, ValueError):
    """An operator was called with a shape, dtype, device or layout it refuses."""

    code = "RLT-OP-001"
    exit_status = 2


class OverlapError(RltuneError):
    """Two bundles of different streams decide the same kernel, key and range."""

    code = "RLT-LOAD-001"
    exit_status = 11
