"""Key files: Ed25519 only, PKCS#8 for private keys, SPKI for public ones, both PEM."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from rltune.bundle.native import panics_as
from rltune.errors import KeyFileError

MAX_KEY_BYTES = 16 * 2**10
"""Largest key file that is read."""

_LABEL = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----")
_ED25519_ONLY = "Make an Ed25519 key with rltune keygen."
_PRIME = 2**255 - 19
_ORDER_EIGHT_Y = 2707385501144840649318225287225658788936804267575313519463743609750303402022
_WEAK_Y = (0, 1, _PRIME - 1, _ORDER_EIGHT_Y, _PRIME - _ORDER_EIGHT_Y)


def generate_key(path: Path, passphrase: bytes | None) -> Ed25519PrivateKey:
    """Make a key and write it to a new file that only its owner can read.

    Args:
        path: the file; it must not exist.
        passphrase: encrypts the file, or None.

    Raises:
        KeyFileError: the file exists or cannot be written.
    """
    key = Ed25519PrivateKey.generate()
    protection: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase is not None:
        protection = serialization.BestAvailableEncryption(passphrase)
    data = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, protection
    )
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags, 0o600)
    except FileExistsError:
        raise KeyFileError(f"{path}: exists", advice="Name a new file.") from None
    except OSError as error:
        raise KeyFileError(f"{path}: cannot be created: {error.strerror}") from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return key


def load_private_key(path: Path, passphrase: bytes | None) -> Ed25519PrivateKey:
    """Read a private key that nobody but its owner can read.

    Args:
        path: PKCS#8 PEM file.
        passphrase: what it is encrypted with, or None.

    Raises:
        KeyFileError: unreadable, open to group or others, of another kind, or the
            passphrase does not fit.
    """
    data = _read_private(path)
    _check_label(data, str(path), ("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"))
    with panics_as(KeyFileError, str(path)):
        try:
            key = serialization.load_pem_private_key(data, passphrase)
        except TypeError:
            state = "is not encrypted" if passphrase is not None else "is encrypted"
            raise KeyFileError(f"{path}: the key {state}", advice="Check the passphrase.") from None
        except (ValueError, UnsupportedAlgorithm) as error:
            raise KeyFileError(f"{path}: cannot be decoded: {_first_line(error)}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise _other_kind(str(path), type(key).__name__)
    return key


def is_encrypted(path: Path) -> bool:
    """Whether a private key file needs a passphrase.

    Raises:
        KeyFileError: unreadable, or open to group or others.
    """
    label = _LABEL.search(_read_private(path))
    return label is not None and label[1] == b"ENCRYPTED PRIVATE KEY"


def decode_public_key(data: bytes, where: str) -> Ed25519PublicKey:
    """Decode a public key from SPKI PEM.

    Args:
        data: the PEM text.
        where: where it stands, for the message.

    Raises:
        KeyFileError: malformed, of another kind, or a point that no private key has.
    """
    _check_label(data, where, ("PUBLIC KEY",))
    with panics_as(KeyFileError, where):
        try:
            key = serialization.load_pem_public_key(data)
        except (ValueError, UnsupportedAlgorithm) as error:
            raise KeyFileError(f"{where}: cannot be decoded: {_first_line(error)}") from None
    if not isinstance(key, Ed25519PublicKey):
        raise _other_kind(where, type(key).__name__)
    y = int.from_bytes(key.public_bytes_raw(), "little") & (2**255 - 1)
    if y >= _PRIME or y in _WEAK_Y:
        raise KeyFileError(f"{where}: this point is no public key of any private key")
    return key


def encode_public_key(key: Ed25519PublicKey) -> bytes:
    """SPKI PEM text of a public key."""
    return key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def key_id(key: Ed25519PublicKey) -> str:
    """Hex sha256 of the key's SPKI DER."""
    der = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(der).hexdigest()


def _read_private(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError) as error:
        raise KeyFileError(f"{path}: cannot be opened: {error}") from None
    try:
        _check_private(path, os.fstat(descriptor))
        return os.read(descriptor, MAX_KEY_BYTES)
    finally:
        os.close(descriptor)


def _check_private(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise KeyFileError(f"{path}: expected a regular file")
    if status.st_mode & 0o077:
        raise KeyFileError(
            f"{path}: open to group or others, mode {stat.S_IMODE(status.st_mode):04o}, "
            "expected 0600",
            advice=f"Run chmod 600 {path}, and make a new key if others could read it.",
        )


def _check_label(data: bytes, where: str, expected: tuple[str, ...]) -> None:
    found = _LABEL.search(data)
    label = found[1].decode("ascii") if found else ""
    if label in expected:
        return
    if not label:
        label = "an OpenSSH key" if data.startswith((b"ssh-", b"ecdsa-", b"sk-")) else "no PEM"
    label = label.replace("OPENSSH", "OpenSSH")
    raise KeyFileError(
        f"{where}: expected {' or '.join(expected)} in PEM, got {label}", advice=_ED25519_ONLY
    )


def _other_kind(where: str, type_name: str) -> KeyFileError:
    kind = re.sub(r"(Public|Private)Key$", "", type_name.lstrip("_"))
    return KeyFileError(f"{where}: expected an Ed25519 key, got {kind}", advice=_ED25519_ONLY)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
