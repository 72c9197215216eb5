"""One byte string for one value, and no other spelling of it."""

from __future__ import annotations

import hashlib

import pytest

from rltune.core.canonical import MAX_DEPTH, MAX_INTEGER, decode, digest, encode
from rltune.errors import BundleError


def test_encode_sorts_keys_and_leaves_no_space() -> None:
    value = {"b": [1, True, None, (2,)], "a": {"d": "\u00e9\n", "c": -1}}

    assert encode(value) == b'{"a":{"c":-1,"d":"\\u00e9\\n"},"b":[1,true,null,[2]]}'


def test_digest_is_the_sha256_of_the_bytes() -> None:
    assert digest({"a": 1}) == hashlib.sha256(b'{"a":1}').hexdigest()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": {"b": [0, 1.0]}}, r"\$\.a\.b\[1\]: float has no canonical form"),
        ({"a": float("nan")}, "float"),
        ([MAX_INTEGER], r"\$\[0\]: integer of 2\*\*53"),
        ([-MAX_INTEGER], "integer"),
        ({1: 2}, "key 1 is not ASCII"),
        ({"\u00e9": 2}, "is not ASCII"),
        (["\ud800"], "lone surrogate"),
        ([b""], "bytes has no"),
        ({1, 2}, "set has no"),
    ],
)
def test_encode_refuses_what_has_no_one_form(value: object, message: str) -> None:
    with pytest.raises(BundleError, match=message):
        encode(value)


def test_encode_accepts_the_limits_and_refuses_one_beyond() -> None:
    nested: object = MAX_INTEGER - 1
    for _ in range(MAX_DEPTH):
        nested = [nested]

    assert decode(encode(nested), "it") == nested
    with pytest.raises(BundleError, match="nested deeper"):
        encode([nested])


@pytest.mark.parametrize(
    "data",
    [
        b'{"a": 1}',
        b'{"b":1,"a":2}',
        b'{"a":1,"a":1}',
        b'{"a":1}\n',
        b'\xef\xbb\xbf{"a":1}',
        b'"\\u0061"',
        b'"\xc3\xa9"',
        b'"\\u00E9"',
        b'"\\/"',
        b"1.0",
        b"1e3",
        b"-0",
        b"01",
        b"NaN",
        b"Infinity",
        b"9007199254740992",
        b"[" * 5000,
        b"[" * 100 + b"]" * 100,
        b"",
        b"{",
    ],
)
def test_decode_refuses_every_other_spelling(data: bytes) -> None:
    with pytest.raises(BundleError):
        decode(data, "statement")


def test_decode_names_the_document() -> None:
    with pytest.raises(BundleError, match="statement: not canonical JSON: keys must be unique"):
        decode(b'{"b":1,"a":2}', "statement")
