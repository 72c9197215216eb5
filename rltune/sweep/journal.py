"""Journal of a sweep: append-only, fsynced, hash-chained to its plan.

One canonical JSON object a line. ``prev`` is the sha256 of the line before
(the plan's digest in the first), ``digest`` the sha256 of the line without
that field, so an altered, lost or exchanged line is found, the last included.
A last line without its newline was torn by a crash: it is cut off, and its
item is done again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from rltune.core.canonical import decode, encode
from rltune.errors import BundleError, EnvironmentUnfitError, JournalError

Key = tuple[str, str]
"""Kind and key of a record, such as ("qualify", "rms_norm/dx bf16,width=4096 w8,s1")."""

Body = Mapping[str, object]
"""Integers, text, booleans, None, lists and objects of these. Times are integers."""

_FIELDS = frozenset({"seq", "prev", "kind", "key", "body", "digest"})


@dataclass(frozen=True, kw_only=True, slots=True)
class _Chain:
    """What a valid prefix of a journal holds.

    Attributes:
        records: bodies by kind and key, in the order of their lines.
        head: what the next line's ``prev`` must be.
        size: bytes of the complete lines.
    """

    records: dict[Key, Body]
    head: str
    size: int


class Journal:
    """A journal open for appending. One writer at a time; use as a context manager."""

    def __init__(self, path: Path, descriptor: int, chain: _Chain) -> None:
        self._path = path
        self._descriptor = descriptor
        self._records = chain.records
        self._head = chain.head
        self._size = chain.size

    @classmethod
    def create(cls, path: Path, plan_digest: str) -> Journal:
        """Start the journal of a plan.

        Raises:
            JournalError: the file exists.
            EnvironmentUnfitError: the file cannot be created.
        """
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            raise JournalError(
                f"{path}: the journal exists", advice="Resume it, or name another file."
            ) from None
        except OSError as error:
            raise _unfit(path, "cannot be created", error) from error
        try:
            _lock(path, descriptor)
            _sync_directory(path)
        except OSError as error:
            os.close(descriptor)
            raise _unfit(path, "cannot be made durable", error) from error
        except BaseException:
            os.close(descriptor)
            raise
        return cls(path, descriptor, _Chain(records={}, head=plan_digest, size=0))

    @classmethod
    def resume(cls, path: Path, plan_digest: str) -> Journal:
        """Open the journal of a plan again; a torn last line is cut off.

        Raises:
            JournalError: the journal is of another plan, was altered, or has another
                writer; the message names the line.
            EnvironmentUnfitError: the file cannot be opened or read.
        """
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_APPEND)
        except OSError as error:
            raise _unfit(path, "cannot be opened", error) from error
        try:
            _lock(path, descriptor)
            chain = _verify(path, path.read_bytes(), plan_digest)
            os.ftruncate(descriptor, chain.size)
            os.fsync(descriptor)
        except OSError as error:
            os.close(descriptor)
            raise _unfit(path, "cannot be read", error) from error
        except BaseException:
            os.close(descriptor)
            raise
        return cls(path, descriptor, chain)

    @property
    def records(self) -> Mapping[Key, Body]:
        """Bodies by kind and key, in the order they were appended."""
        return MappingProxyType(self._records)

    def done(self, kind: str, key: str) -> bool:
        """Whether this item is recorded."""
        return (kind, key) in self._records

    def append(self, kind: str, key: str, body: Body) -> None:
        """Record one finished item; it is on disk when this returns.

        Raises:
            JournalError: the item is recorded already, its body has no canonical
                form, or the journal is closed.
            EnvironmentUnfitError: the line cannot be written, such as on a full
                disk. The journal is closed, and holds every earlier record.
        """
        if self._descriptor < 0:
            raise JournalError(f"{self._path}: the journal is closed", advice="Resume it.")
        if self.done(kind, key):
            raise JournalError(f"{self._path}: {kind} {key} is recorded already")
        fields = {
            "seq": len(self._records),
            "prev": self._head,
            "kind": kind,
            "key": key,
            "body": dict(body),
        }
        try:
            line = encode({**fields, "digest": _sha256(encode(fields))})
            stored = _decode_line(line, f"{self._path}: {kind} {key}")["body"]
        except BundleError as error:
            raise JournalError(f"{self._path}: {kind} {key}: {error.message}") from None
        self._write(line + b"\n")
        self._records[kind, key] = stored  # type: ignore[assignment]
        self._head = _sha256(line)
        self._size += len(line) + 1

    def _write(self, line: bytes) -> None:
        try:
            written = 0
            while written < len(line):
                written += os.write(self._descriptor, line[written:])
            os.fsync(self._descriptor)
        except OSError as error:
            self._cut()
            self.close()
            raise _unfit(self._path, "cannot be written", error) from error
        except BaseException:  # interrupted in the middle of a line
            self._cut()
            self.close()
            raise

    def _cut(self) -> None:
        """Back to the last complete line; where even that fails, resuming does it."""
        try:
            os.ftruncate(self._descriptor, self._size)
        except OSError:
            return

    def close(self) -> None:
        """Close the file and let another writer in. Closing twice is allowed."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def read_records(path: Path, plan_digest: str) -> Mapping[Key, Body]:
    """The records of a journal, without opening it for writing or changing it.

    Raises:
        JournalError: the journal is of another plan or was altered.
        EnvironmentUnfitError: the file cannot be read.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _unfit(path, "cannot be read", error) from error
    return MappingProxyType(_verify(path, data, plan_digest).records)


def _verify(path: Path, data: bytes, plan_digest: str) -> _Chain:
    records: dict[Key, Body] = {}
    head = plan_digest
    size = data.rfind(b"\n") + 1
    for number, line in enumerate(data[:size].split(b"\n")[:-1]):
        where = f"{path}: line {number + 1}"
        fields = _decode_line(line, where)
        digest = fields.pop("digest")
        if fields["prev"] != head:
            raise _altered(
                where,
                "belongs to another plan" if number == 0 else "does not follow the line before it",
            )
        if digest != _sha256(encode(fields)):
            raise _altered(where, "differs from its digest")
        if fields["seq"] != number:
            raise _altered(where, f"expected number {number}, got {fields['seq']}")
        kind, key, body = fields["kind"], fields["key"], fields["body"]
        if not (isinstance(kind, str) and isinstance(key, str) and isinstance(body, dict)):
            raise _altered(where, "kind, key or body has another type")
        if (kind, key) in records:
            raise _altered(where, f"{kind} {key} is recorded twice")
        records[kind, key] = body
        head = _sha256(line)
    return _Chain(records=records, head=head, size=size)


def _decode_line(line: bytes, where: str) -> dict[str, object]:
    try:
        fields = decode(line, where)
    except BundleError as error:
        raise JournalError(error.message, advice=_ADVICE) from None
    if not isinstance(fields, dict) or set(fields) != _FIELDS:
        raise _altered(where, f"expected an object with {', '.join(sorted(_FIELDS))}")
    return fields


_ADVICE = "Start a new journal; this one is no evidence."


def _altered(where: str, why: str) -> JournalError:
    return JournalError(f"{where}: {why}", advice=_ADVICE)


def _unfit(path: Path, what: str, error: OSError) -> EnvironmentUnfitError:
    return EnvironmentUnfitError(
        f"{path}: the journal {what}: {error.strerror}",
        advice="Mend that, then resume the sweep: finished items are kept.",
    )


def _lock(path: Path, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise JournalError(
            f"{path}: another process writes this journal",
            advice="Wait for it to end, or give each sweep its own journal.",
        ) from None


def _sync_directory(path: Path) -> None:
    """Make the new file's name durable, too."""
    descriptor = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
