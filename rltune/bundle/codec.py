"""The file: line 1 is the envelope, then the body, blobs back to back.

A reader opens the file once and keeps the descriptor, so that a file put in its
place later is never read. Nothing is mapped into memory: a file that shrinks
would then kill the process.
"""

from __future__ import annotations

import hashlib
import os
import stat
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

from rltune.bundle.atomic import write_atomically
from rltune.bundle.decode_v1 import Statement, decode_statement, encode_statement
from rltune.bundle.envelope import Envelope, Signature, decode_envelope, encode_envelope
from rltune.bundle.evidence import decode_evidence, encode_evidence
from rltune.bundle.schema_v1 import PAYLOAD_TYPE, Blob, BlobRole, Predicate
from rltune.bundle.structure import check_statement
from rltune.errors import BlobDigestError, BundleError

__all__ = [
    "MAX_ENVELOPE_BYTES",
    "MAX_FILE_BYTES",
    "BundleFile",
    "Signature",
    "build_body",
    "decode_evidence",
    "encode_evidence",
    "write_unsigned",
]

MAX_ENVELOPE_BYTES = 16 * 2**20
"""Longest line 1, without its newline."""

MAX_FILE_BYTES = 2**30
"""Largest file that is opened."""

_CHUNK_BYTES = 2**18
_GARBAGE_ADVICE = "The file is no rltune bundle, or was damaged; fetch it again."


class BundleFile:
    """A bundle that is open for reading. Its payload is not decoded, nothing is trusted.

    Attributes:
        path: as it was opened.
        payload: the signed bytes.
        payload_type: media type of the payload.
        signatures: signatures, not checked.
        envelope_digest: hex sha256 of line 1.
        payload_digest: hex sha256 of the payload.
        body_size: bytes after line 1.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._close = weakref.finalize(self, os.close, descriptor)
        try:
            size = _file_size(path, descriptor)
            line = self._read_line()
            envelope = _decode_line(path, line)
        except BaseException:
            self.close()
            raise
        self.payload = envelope.payload
        self.payload_type = envelope.payload_type
        self.signatures = envelope.signatures
        self.envelope_digest = hashlib.sha256(line).hexdigest()
        self.payload_digest = hashlib.sha256(envelope.payload).hexdigest()
        self._body_start = len(line) + 1
        self.body_size = size - self._body_start

    @classmethod
    def open(cls, path: Path) -> BundleFile:
        """Open a bundle and decode its envelope.

        Symlinks are followed and any mode is fine: a bundle is trusted for its
        signature, not for its place.

        Args:
            path: the file.

        Raises:
            BundleError: it cannot be opened, is no regular file, too large, or
                its first line is no envelope.
        """
        # O_NONBLOCK: opening a FIFO must not wait for a writer
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        try:
            descriptor = os.open(path, flags)
        except (OSError, ValueError) as error:
            raise BundleError(f"{path}: cannot be opened: {error}") from None
        return cls(path, descriptor)

    def decode_statement(self) -> Statement:
        """Decode the payload. Meaningful only after its signatures were checked.

        Raises:
            BundleError: the payload is no statement of this format.
        """
        if self.payload_type != PAYLOAD_TYPE:
            raise BundleError(
                f"{self.path}: envelope.payloadType: expected {PAYLOAD_TYPE}, "
                f"got {self.payload_type!a}"
            )
        return decode_statement(self.payload)

    def decode_predicate(self) -> Predicate:
        """The predicate of :meth:`decode_statement`.

        Raises:
            BundleError: the payload is no statement of this format.
        """
        return self.decode_statement().predicate

    def read_blob(self, blob: Blob) -> bytes:
        """Read one blob and check it against its signed digest.

        Args:
            blob: entry of the signed index.

        Raises:
            BlobDigestError: the bytes differ from those that were signed.
            BundleError: the body ends before the blob does.
        """
        data = self._read(self._body_start + blob.offset, blob.size)
        digest = hashlib.sha256(data).hexdigest()
        if digest != blob.sha256:
            raise BlobDigestError(
                f"{self.path}: blob {blob.id}: expected sha256 {blob.sha256}, got {digest}",
                advice=_GARBAGE_ADVICE,
            )
        return data

    def read_body(self) -> Iterator[bytes]:
        """The body in chunks.

        Raises:
            BundleError: the file became shorter since it was opened.
        """
        for offset in range(0, self.body_size, _CHUNK_BYTES):
            size = min(_CHUNK_BYTES, self.body_size - offset)
            yield self._read(self._body_start + offset, size)

    @property
    def mode(self) -> int:
        """Permission bits of the file."""
        return stat.S_IMODE(os.fstat(self._descriptor).st_mode)

    def close(self) -> None:
        """Close the descriptor; a second call does nothing."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, offset: int, size: int) -> bytes:
        if offset + size > self._body_start + self.body_size:
            raise BundleError(
                f"{self.path}: expected {size} bytes at {offset}, but the file ends before",
                advice=_GARBAGE_ADVICE,
            )
        data = bytearray()
        while len(data) < size:
            piece = self._pread(size - len(data), offset + len(data))
            if not piece:
                raise BundleError(
                    f"{self.path}: became shorter while it was read", advice=_GARBAGE_ADVICE
                )
            data += piece
        return bytes(data)

    def _read_line(self) -> bytes:
        line = bytearray()
        while True:
            piece = self._pread(_CHUNK_BYTES, len(line))
            found = piece.find(b"\n")
            line += piece[:found] if found >= 0 else piece
            if len(line) > MAX_ENVELOPE_BYTES:
                problem = f"is longer than {MAX_ENVELOPE_BYTES} bytes"
            elif found >= 0:
                return bytes(line)
            elif not piece:
                problem = "does not end"
            else:
                continue
            raise BundleError(f"{self.path}: line 1 {problem}", advice=_GARBAGE_ADVICE)

    def _pread(self, size: int, offset: int) -> bytes:
        try:
            return os.pread(self._descriptor, size, offset)
        except OSError as error:
            raise BundleError(f"{self.path}: cannot be read: {error}") from None


def _file_size(path: Path, descriptor: int) -> int:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise BundleError(f"{path}: expected a regular file", advice="Name the .rltune file.")
    if status.st_size > MAX_FILE_BYTES:
        raise BundleError(f"{path}: {status.st_size} bytes, expected at most {MAX_FILE_BYTES}")
    return status.st_size


def _decode_line(path: Path, line: bytes) -> Envelope:
    try:
        return decode_envelope(line)
    except BundleError as error:
        raise BundleError(f"{path}: {error.message}", advice=_GARBAGE_ADVICE) from None


def build_body(blobs: Sequence[tuple[str, BlobRole, bytes]]) -> tuple[tuple[Blob, ...], bytes]:
    """Lay blobs back to back.

    Args:
        blobs: (id, role, bytes) in order.

    Returns:
        The index and the body.
    """
    index: list[Blob] = []
    offset = 0
    for blob_id, role, data in blobs:
        digest = hashlib.sha256(data).hexdigest()
        index.append(Blob(id=blob_id, role=role, offset=offset, size=len(data), sha256=digest))
        offset += len(data)
    return tuple(index), b"".join(data for _, _, data in blobs)


def write_unsigned(path: Path, predicate: Predicate, body: bytes) -> None:
    """Write a bundle without signatures, whole or not at all.

    Args:
        path: the file; what is there is replaced.
        predicate: what is said about the body, its index included.
        body: the blobs, as :func:`build_body` laid them.

    Raises:
        BundleError: a reader would refuse it.
        OSError: the file cannot be written.
    """
    statement = Statement(body_sha256=hashlib.sha256(body).hexdigest(), predicate=predicate)
    payload = encode_statement(statement)
    check_statement(decode_statement(payload))
    if predicate.body_size != len(body):
        raise BundleError(f"body_size: expected {len(body)}, got {predicate.body_size}")
    line = encode_envelope(Envelope(payload=payload, payload_type=PAYLOAD_TYPE, signatures=()))
    if len(line) > MAX_ENVELOPE_BYTES or len(line) + 1 + len(body) > MAX_FILE_BYTES:
        raise BundleError(
            f"{path}: line 1 of {len(line)} and a body of {len(body)} bytes are more than "
            f"the {MAX_ENVELOPE_BYTES} and {MAX_FILE_BYTES} that a reader takes"
        )
    write_atomically(path, (line, b"\n", body))
