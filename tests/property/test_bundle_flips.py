"""Any change of a signed file is refused with one of two exit statuses, never a traceback."""

import os
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rltune.bundle.signing import load_private_key
from rltune.bundle.verify import Refused, Verified, verify_bundle
from tests.support.bundles import NOW, make_bundle, make_trust


@pytest.fixture(scope="module")
def signed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("flips")
    path, _, key_path = make_bundle(folder)
    altered = folder / "altered.rltune"
    shutil.copy(path, altered)
    return path.read_bytes(), altered, make_trust([load_private_key(key_path, None)])


def _verdict(signed, data):
    _, path, trust = signed
    path.write_bytes(data)
    return verify_bundle(path, trust, NOW)


def _assert_refused(signed, data):
    verdict = _verdict(signed, data)
    assert isinstance(verdict, Refused)
    assert verdict.exit_status in {10, 11}
    assert all(str(finding) for finding in verdict.findings)


def test_the_unaltered_file_is_verified(signed):
    assert isinstance(_verdict(signed, signed[0]), Verified)


def test_a_flip_in_every_byte_is_refused(signed):
    data = signed[0]
    _, path, trust = signed
    path.write_bytes(data)
    with path.open("r+b", buffering=0) as file:  # in place: a new file for each byte is slow
        for place, byte in enumerate(data):
            os.pwrite(file.fileno(), bytes([byte ^ 1 << place % 8]), place)
            verdict = verify_bundle(path, trust, NOW)
            os.pwrite(file.fileno(), bytes([byte]), place)
            assert isinstance(verdict, Refused), place
            assert verdict.exit_status in {10, 11}
    assert path.read_bytes() == data


_SETTINGS = settings(
    deadline=None,
    max_examples=300,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@_SETTINGS
@given(place=st.integers(min_value=0), bit=st.integers(0, 7))
def test_a_flip_of_any_bit_is_refused(signed, place, bit):
    flipped = bytearray(signed[0])
    flipped[place % len(flipped)] ^= 1 << bit
    _assert_refused(signed, bytes(flipped))


@_SETTINGS
@given(data=st.data())
def test_any_splice_is_refused(signed, data):
    whole = signed[0]
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    middle = data.draw(st.binary(max_size=40))
    if middle != whole[start:end]:
        _assert_refused(signed, whole[:start] + middle + whole[end:])


@_SETTINGS
@given(st.binary(max_size=400))
def test_any_bytes_are_refused(signed, data):
    _assert_refused(signed, data)
