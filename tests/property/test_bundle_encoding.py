"""Encoding has one spelling and loses nothing."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rltune.bundle.codec import decode_evidence, encode_evidence
from rltune.bundle.decode_v1 import (
    Statement,
    decode_statement,
    encode_statement,
    predicate_from_json,
    predicate_to_json,
)
from rltune.bundle.envelope import Envelope, Signature, decode_envelope, encode_envelope
from rltune.bundle.fields import format_time, parse_time
from rltune.bundle.schema_v1 import Decision, Range
from rltune.bundle.structure import check_statement
from rltune.core.canonical import MAX_INTEGER, decode, encode
from rltune.core.launch import LaunchConfig
from rltune.core.shapes import ShapeKey, TokenRange
from rltune.errors import BundleError
from tests.support.bundles import BASELINE, PROGRAMS, launch, make_predicate

_NAMES = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=12)
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(1 - MAX_INTEGER, MAX_INTEGER - 1)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4)
    | st.dictionaries(st.text(st.characters(max_codepoint=127)), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@st.composite
def _decisions(draw):
    keys = draw(
        st.lists(
            st.tuples(_NAMES, st.builds(ShapeKey.of, st.just("bf16"), st.dictionaries(_NAMES, st.integers(1, 99)))),
            min_size=1, max_size=4, unique=True,
        )
    )  # fmt: skip
    return tuple(
        Decision(
            kernel=kernel,
            key=key,
            baseline=launch(BASELINE, PROGRAMS[0]),
            ranges=tuple(draw(_ranges())),
            reason="measured",
        )
        for kernel, key in sorted(keys)
    )


@st.composite
def _ranges(draw):
    edges = sorted(draw(st.sets(st.integers(1, 10**6), min_size=2, max_size=8)))
    for first, last in zip(edges[::2], edges[1::2], strict=False):
        config = LaunchConfig.of(
            BLOCK=draw(st.integers(1, 512)),
            num_warps=draw(st.integers(1, 32)),
            num_stages=draw(st.integers(1, 5)),
            maxnreg=draw(st.none() | st.integers(32, 255)),
        )
        yield Range(tokens=TokenRange(first, last), launch=launch(config, PROGRAMS[1]))


@given(_decisions())
def test_statement_round_trip(decisions):
    predicate = make_predicate(decisions=decisions)
    statement = Statement(body_sha256="0" * 64, predicate=predicate)
    assert decode_statement(encode_statement(statement)) == statement
    check_statement(statement)
    assert predicate_from_json(predicate_to_json(predicate), "p") == predicate


@given(_JSON)
def test_canonical_json_round_trip(value):
    assert decode(encode(value), "value") == value


@given(_JSON)
def test_canonical_json_is_order_free_and_the_only_spelling(value):
    data = encode(value)
    shuffled = _reversed(value)
    assert encode(shuffled) == data
    for spelling in (
        json.dumps(value),
        json.dumps(shuffled, separators=(",", ":")),
        f" {data.decode()}",
    ):
        if spelling.encode() != data:
            with pytest.raises(BundleError):
                decode(spelling.encode(), "value")


def _reversed(value):
    if isinstance(value, dict):
        return {key: _reversed(value[key]) for key in reversed(value)}
    return [_reversed(item) for item in value] if isinstance(value, list) else value


@given(st.dictionaries(_NAMES, _JSON, max_size=5))
def test_evidence_round_trip(value):
    assert decode_evidence(encode_evidence(value)) == value


@given(
    st.binary(min_size=1),
    st.lists(st.builds(Signature, key_id=_NAMES, signature=st.binary(min_size=1)), max_size=16),
)
def test_envelope_round_trip(payload, signatures):
    envelope = Envelope(payload=payload, payload_type="t", signatures=tuple(signatures))
    assert decode_envelope(encode_envelope(envelope)) == envelope


@given(st.datetimes(datetime(1000, 1, 1), datetime(9999, 1, 1)))  # noqa: DTZ001 - hypothesis wants naive ones
def test_time_round_trip(naive):
    instant = naive.replace(microsecond=0, tzinfo=UTC)
    assert parse_time(format_time(instant)) == instant
