"""Canonical JSON at its limits, as untrusted files reach them."""

import pytest

from rltune.core.canonical import MAX_DEPTH, decode, encode
from rltune.errors import BundleError


def _nested(depth):
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ({"b": 1, "a": [True, None, -5]}, b'{"a":[true,null,-5],"b":1}'),
        ("é\U0001d11e\n/", b'"\\u00e9\\ud834\\udd1e\\n/"'),
        (2**53 - 1, b"9007199254740991"),
        ([], b"[]"),
        (_nested(MAX_DEPTH), b"[" * MAX_DEPTH + b"1" + b"]" * MAX_DEPTH),
        ({"k": "1234567890123456789"}, b'{"k":"1234567890123456789"}'),
    ],
)
def test_one_spelling(value, data):
    assert encode(value) == data
    assert decode(data, "value") == value


@pytest.mark.parametrize(
    "value",
    [1.0, float("nan"), 2**53, -(2**53), [2**53], "\ud800", {"\ud800": 1}, {"é": 1}, {1: 2}, b"x", {1}, _nested(MAX_DEPTH + 2)],
)  # fmt: skip
def test_what_has_no_form_is_refused(value):
    with pytest.raises(BundleError):
        encode(value)


def test_circle_is_refused():
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(BundleError, match="nested deeper"):
        encode(circle)


@pytest.mark.parametrize(
    "data",
    [
        b'{"b":1,"a":2}', b'{"a":1,"a":1}', b'{"a":1,"a":2}', b'{ "a":1}', b"[1, 2]", b"[1]\n",
        b"1.0", b"1e2", b"-0", b"NaN", b"Infinity", b"01", b"9007199254740992",
        b"[-9007199254740992]", b'{"a":12345678901234567890}', b"9" * 5000, b'"\\u0041"',
        b'"\\/"', b'"\\ud800"', b'{"\\u00e9":1}', '"é"'.encode(), b"\xef\xbb\xbf1", b"\xff", b"",
        b"[" * 100_000, b"[" * 34 + b"]" * 34, b'{"a":' * 34 + b"1" + b"}" * 34,
    ],
)  # fmt: skip
def test_every_other_spelling_is_refused_by_the_name_of_the_document(data):
    with pytest.raises(BundleError, match=r"^the document: "):
        decode(data, "the document")


def test_message_does_not_repeat_a_long_document():
    with pytest.raises(BundleError) as caught:
        encode({"x" * 10**6: {"é" * 10**6: 1}})
    assert len(caught.value.message) < 500
