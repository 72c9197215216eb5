"""Evidence blobs: one zstd frame of canonical JSON, read in bounded memory.

The library is imported where evidence is read or written; a job never does.
"""

from __future__ import annotations

from rltune.bundle.native import panics_as
from rltune.core.canonical import decode, encode
from rltune.errors import BundleError

MAX_EVIDENCE_BYTES = 256 * 2**20
"""Largest evidence a reader unpacks."""

MAX_WINDOW_BYTES = 8 * 2**20
"""Largest window a reader allocates."""

_LEVEL = 10
_SLICE_BYTES = 256  # a block unpacks to 128 KiB at most and takes 4 bytes at least
_WHAT = "evidence"


def encode_evidence(value: object) -> bytes:
    """One zstd frame of the canonical JSON of ``value``, with content size and checksum.

    Raises:
        BundleError: the value has no canonical form or is larger than a reader unpacks.
    """
    import zstandard

    plain = encode(value)
    if len(plain) > MAX_EVIDENCE_BYTES:
        raise BundleError(
            f"{_WHAT}: {len(plain)} bytes of JSON, expected at most {MAX_EVIDENCE_BYTES}"
        )
    parameters = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL, source_size=len(plain), write_content_size=True, write_checksum=True
    )
    return zstandard.ZstdCompressor(compression_params=parameters).compress(plain)


def decode_evidence(data: bytes) -> object:
    """The value in one evidence blob.

    Memory stays bounded whatever the frame declares: it is unpacked slice by
    slice and given up at the cap.

    Raises:
        BundleError: not exactly one frame with content size and checksum, too
            large, damaged, or not canonical JSON.
    """
    with panics_as(BundleError, _WHAT):
        return decode(_unpack(data), _WHAT)


def _unpack(data: bytes) -> bytes:
    import zstandard

    try:
        size = _declared_size(data)
        unpacker = zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES).decompressobj()
        plain = bytearray()
        for start in range(0, len(data), _SLICE_BYTES):
            if unpacker.eof:
                raise BundleError(f"{_WHAT}: expected one zstd frame, got more bytes after it")
            plain += unpacker.decompress(data[start : start + _SLICE_BYTES])
            if len(plain) > size:
                raise BundleError(f"{_WHAT}: unpacks to more than the {size} bytes it declares")
    except zstandard.ZstdError as error:
        raise BundleError(f"{_WHAT}: damaged zstd frame: {error}") from None
    if not unpacker.eof or unpacker.unused_data:
        found = "more bytes after it" if unpacker.eof else "a part of one"
        raise BundleError(f"{_WHAT}: expected one zstd frame, got {found}")
    return bytes(plain)


def _declared_size(data: bytes) -> int:
    import zstandard

    frame = zstandard.get_frame_parameters(data)
    if frame.dict_id or not frame.has_checksum:
        raise BundleError(f"{_WHAT}: expected a zstd frame with checksum, without dictionary")
    if frame.content_size > MAX_EVIDENCE_BYTES:  # "unknown" is the largest number
        raise BundleError(
            f"{_WHAT}: expected a declared size of at most {MAX_EVIDENCE_BYTES} bytes"
        )
    return int(frame.content_size)
