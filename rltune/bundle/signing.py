"""DSSE v1 over pure Ed25519: what is signed, signing, checking one signature.

https://github.com/secure-systems-lab/dsse/blob/v1.0.0/protocol.md
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from rltune.bundle.atomic import exclusive, write_atomically
from rltune.bundle.body import check_body
from rltune.bundle.codec import MAX_ENVELOPE_BYTES, BundleFile
from rltune.bundle.envelope import (
    MAX_SIGNATURES,
    Envelope,
    Signature,
    encode_envelope,
    unique_by_key,
)
from rltune.bundle.keys import (
    decode_public_key,
    encode_public_key,
    generate_key,
    is_encrypted,
    key_id,
    load_private_key,
)
from rltune.bundle.native import panics_as
from rltune.bundle.structure import check_statement
from rltune.errors import BundleError, TrustError

__all__ = [
    "decode_public_key",
    "encode_public_key",
    "generate_key",
    "is_encrypted",
    "key_id",
    "load_private_key",
    "pae",
    "sign_bundle",
    "sign_payload",
    "verify_signature",
]


def pae(payload_type: str, payload: bytes) -> bytes:
    """DSSE's pre-authentication encoding: the bytes a signature is over."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def sign_payload(payload_type: str, payload: bytes, key: Ed25519PrivateKey) -> Signature:
    """Sign one payload."""
    return Signature(
        key_id=key_id(key.public_key()), signature=key.sign(pae(payload_type, payload))
    )


def verify_signature(key: Ed25519PublicKey, signature: bytes, message: bytes) -> bool:
    """Whether ``signature`` is that of ``message`` by ``key``.

    Raises:
        TrustError: the native library failed, so there is no answer.
    """
    with panics_as(TrustError, "checking a signature"):
        try:
            key.verify(signature, message)
        except InvalidSignature:
            return False
        return True


def sign_bundle(path: Path, key: Ed25519PrivateKey) -> None:
    """Add a signature to a bundle; an older one by the same key is replaced.

    What is signed is checked first: the statement's form and every byte of the
    body. On any failure the file stays as it was. Of several that sign one file at the
    same time each waits for the others, so that no signature is lost.

    Args:
        path: the bundle.
        key: the signing key.

    Raises:
        BundleError: it is no well-formed bundle, or has 16 signatures by other keys.
        OSError: the file cannot be rewritten.
    """
    BundleFile.open(path).close()  # nothing is made beside what is no bundle
    with exclusive(path), BundleFile.open(path) as bundle:
        statement = bundle.decode_statement()
        check_statement(statement)
        check_body(bundle, statement)
        signature = sign_payload(bundle.payload_type, bundle.payload, key)
        signatures = unique_by_key((*bundle.signatures, signature))
        if len(signatures) > MAX_SIGNATURES:
            raise BundleError(
                f"{path}: expected at most {MAX_SIGNATURES} signatures, and it has "
                f"{len(bundle.signatures)} by other keys"
            )
        line = encode_envelope(
            Envelope(
                payload=bundle.payload, payload_type=bundle.payload_type, signatures=signatures
            )
        )
        if len(line) > MAX_ENVELOPE_BYTES:
            raise BundleError(f"{path}: no room for a signature in {MAX_ENVELOPE_BYTES} bytes")
        write_atomically(path, _chunks(line, bundle), mode=bundle.mode)


def _chunks(line: bytes, bundle: BundleFile) -> Iterator[bytes]:
    yield line
    yield b"\n"
    yield from bundle.read_body()
