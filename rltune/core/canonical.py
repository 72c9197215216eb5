"""Canonical JSON: one byte string for one value.

Sorted keys, no spaces, ASCII output, no floats, integers below 2**53 in size.
A reader re-encodes what it decoded and compares the bytes, which refuses
duplicate keys, byte order marks, escapes that are not needed, NaN and -0.0.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from rltune.errors import BundleError

MAX_INTEGER = 2**53
"""Integers are smaller than this in absolute value, so every JSON reader keeps them."""

MAX_DEPTH = 32
"""Deepest nesting a reader accepts; real documents need fewer than ten levels."""


# circles are found by their depth
_ENCODER = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, check_circular=False
)
_LONGEST_INTEGER = len(str(-MAX_INTEGER))
_SHOWN = 80


def encode(value: object) -> bytes:
    """The canonical bytes of ``value``.

    Raises:
        BundleError: the value holds a float, a large integer, a key that is not
            ASCII, a lone surrogate, or anything JSON has no form for.
    """
    if not _is_plain(value):
        _check(value, "$", 0)
    return _ENCODER.encode(value).encode("ascii")


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
        value = json.loads(
            text,
            parse_int=_small_integer,
            parse_float=_refuse_number,
            parse_constant=_refuse_number,
        )
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{what}: not canonical JSON: {error}") from None
    try:
        _check_decoded(value, data)
    except BundleError as error:
        raise BundleError(f"{what}: {error.message}") from None
    if _ENCODER.encode(value) != text:
        raise BundleError(
            f"{what}: not canonical JSON: keys must be unique and sorted, "
            "without spaces and without other spellings"
        )
    return value


def digest(value: object) -> str:
    """Hex sha256 of the canonical bytes of ``value``."""
    return hashlib.sha256(encode(value)).hexdigest()


def _check_decoded(value: object, data: bytes) -> None:
    """Check a decoded value; most of :func:`_check` was seen by the parser, and faster."""
    if b"\\u" in data:
        _check(value, "$", 0)
    else:
        _check_depth(value)


def _check_depth(value: object) -> None:
    level: list[Any] = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MAX_DEPTH + 1):
        if not level:
            return
        level = [
            item
            for parent in level
            for item in (parent.values() if type(parent) is dict else parent)
            if type(item) is dict or type(item) is list
        ]
    raise BundleError(f"nested deeper than {MAX_DEPTH}")


def _small_integer(text: str) -> int:
    number = int(text) if len(text) <= _LONGEST_INTEGER else MAX_INTEGER
    if abs(number) >= MAX_INTEGER:
        raise ValueError("integer of 2**53 or more")
    return number


def _refuse_number(text: str) -> object:
    raise ValueError(f"number {text[:40]} is not an integer")


def _is_plain(value: object) -> bool:  # noqa: C901 - one loop, for speed
    """Whether ``value`` surely has a canonical form; level by level, for speed at load."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str:
                if not item.isascii():
                    return False
            elif kind is int:
                if not -MAX_INTEGER < item < MAX_INTEGER:
                    return False
            elif kind is dict:
                if {*map(type, item)} - {str} or not "".join(item).isascii():
                    return False
                below += item.values()
            elif kind is list:
                below += item
            elif kind is not bool and item is not None:
                return False
        if not below:
            return True
        level = below
    return False


def _check(value: object, where: str, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise BundleError(f"{where[:_SHOWN]}: nested deeper than {MAX_DEPTH}")
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str) or not key.isascii():
                shown = ascii(key)[:_SHOWN]
                raise BundleError(f"{where[:_SHOWN]}: key {shown} is not ASCII text")
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
            raise BundleError(f"{where[:_SHOWN]}: integer of 2**53 or more")
    elif value is not None:
        raise BundleError(f"{where[:_SHOWN]}: {type(value).__name__} has no canonical form")


def _check_text(value: str, where: str) -> None:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise BundleError(f"{where[:_SHOWN]}: text holds a lone surrogate") from None
