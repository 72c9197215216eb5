"""Canonical JSON: one byte string for one value.

Sorted keys, no spaces, ASCII output, no floats, integers below 2**53 in size.
A reader re-encodes what it decoded and compares the bytes, which refuses
duplicate keys, byte order marks, escapes that are not needed, NaN and -0.0.
"""

from __future__ import annotations

import hashlib
import json

from rltune.errors import BundleError

MAX_INTEGER = 2**53
"""Integers are smaller than this in absolute value, so every JSON reader keeps them."""

MAX_DEPTH = 32
"""Deepest nesting a reader accepts; real documents need fewer than ten levels."""


def encode(value: object) -> bytes:
    """The canonical bytes of ``value``.

    Raises:
        BundleError: the value holds a float, a large integer, a key that is not
            ASCII, a lone surrogate, or anything JSON has no form for.
    """
    _check(value, "$", 0)
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return text.encode("ascii")


def decode(data: bytes, what: str) -> object:
    """Decode canonical JSON and refuse every other spelling of the same value.

    Args:
        data: the bytes, at most as long as the caller allows.
        what: name of the document, for the message.

    Raises:
        BundleError: the bytes are not the canonical JSON of any value.
    """
    try:
        text = data.decode("ascii")
        value = json.loads(text, parse_float=_refuse_number, parse_constant=_refuse_number)
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{what}: not canonical JSON: {error}") from None
    if encode(value) != data:
        raise BundleError(
            f"{what}: not canonical JSON: keys must be unique and sorted, "
            "without spaces and without other spellings"
        )
    return value


def digest(value: object) -> str:
    """Hex sha256 of the canonical bytes of ``value``."""
    return hashlib.sha256(encode(value)).hexdigest()


def _refuse_number(text: str) -> object:
    raise ValueError(f"number {text[:40]} is not an integer")


def _check(value: object, where: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise BundleError(f"{where[:80]}: nested deeper than {MAX_DEPTH}")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str) or not key.isascii():
                raise BundleError(f"{where}: key {key!r} is not ASCII text")
            _check(item, f"{where}.{key}", depth + 1)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _check(item, f"{where}[{index}]", depth + 1)
    else:
        _check_leaf(value, where)


def _check_leaf(value: object, where: str) -> None:
    if isinstance(value, str):
        _check_text(value, where)
    elif isinstance(value, int):  # bool included
        if abs(value) >= MAX_INTEGER:
            raise BundleError(f"{where}: integer of 2**53 or more")
    elif value is not None:
        raise BundleError(f"{where}: {type(value).__name__} has no canonical form")


def _check_text(value: str, where: str) -> None:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise BundleError(f"{where}: text holds a lone surrogate") from None
