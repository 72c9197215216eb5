"""Line 1 of a bundle: a DSSE envelope in canonical JSON.

https://github.com/secure-systems-lab/dsse/blob/v1.0.0/envelope.md
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from dataclasses import dataclass

from rltune.bundle.fields import Fields, shown
from rltune.core.canonical import decode, encode
from rltune.errors import BundleError

MAX_SIGNATURES = 16
_MAX_COMMAS = 2 + 2 * MAX_SIGNATURES
_WHAT = "envelope"


@dataclass(frozen=True, kw_only=True, slots=True)
class Signature:
    """One signature of an envelope.

    Attributes:
        key_id: id of the key that made it, as the envelope claims.
        signature: its bytes.
    """

    key_id: str
    signature: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Envelope:
    """What is signed, and the signatures over it.

    Attributes:
        payload: the signed bytes; not decoded before a signature was checked.
        payload_type: media type of the payload, part of what is signed.
        signatures: at most 16; none in a bundle that is not signed yet.
    """

    payload: bytes
    payload_type: str
    signatures: tuple[Signature, ...]


def encode_envelope(envelope: Envelope) -> bytes:
    """The envelope as one line, without the newline."""
    signatures = [
        {"keyid": item.key_id, "sig": _base64(item.signature)} for item in envelope.signatures
    ]
    return encode(
        {
            "payload": _base64(envelope.payload),
            "payloadType": envelope.payload_type,
            "signatures": signatures,
        }
    )


def decode_envelope(line: bytes) -> Envelope:
    """Decode line 1 of a bundle. The payload stays bytes.

    Raises:
        BundleError: it is not the canonical JSON of an envelope; names the JSON path.
    """
    if line.count(b",") > _MAX_COMMAS:  # bounds what decoding allocates
        raise BundleError(
            f"{_WHAT}: more fields than an envelope with {MAX_SIGNATURES} signatures has"
        )
    fields = Fields(decode(line, _WHAT), _WHAT, ("payload", "payloadType", "signatures"))
    signatures = tuple(_signature(*item) for item in fields.items("signatures"))
    if len(signatures) > MAX_SIGNATURES:
        raise BundleError(
            f"{fields.path('signatures')}: expected at most {MAX_SIGNATURES}, got {len(signatures)}"
        )
    return Envelope(
        payload=_bytes(fields, "payload"),
        payload_type=fields.text("payloadType"),
        signatures=signatures,
    )


def unique_by_key(signatures: Iterable[Signature]) -> tuple[Signature, ...]:
    """Signatures ordered by key id, the last one of each key."""
    by_key = {item.key_id: item for item in signatures}
    return tuple(by_key[key] for key in sorted(by_key))


def _signature(value: object, where: str) -> Signature:
    fields = Fields(value, where, ("keyid", "sig"))
    return Signature(key_id=fields.text("keyid"), signature=_bytes(fields, "sig"))


def _bytes(fields: Fields, name: str) -> bytes:
    text = fields.raw(name)
    try:
        data = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except (ValueError, binascii.Error):
        data = b""
    if not data or _base64(data) != text:  # trailing bits, missing padding
        raise BundleError(f"{fields.path(name)}: expected canonical base64, got {shown(text)}")
    return data


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
