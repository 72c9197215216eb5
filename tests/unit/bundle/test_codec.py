"""The file: envelope, descriptor, blobs, evidence, writing."""

import base64
import hashlib
import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from rltune.bundle import codec
from rltune.bundle.atomic import write_atomically
from rltune.bundle.codec import (
    BundleFile,
    build_body,
    decode_evidence,
    encode_evidence,
    write_unsigned,
)
from rltune.bundle.envelope import Envelope, Signature, decode_envelope, encode_envelope
from rltune.bundle.evidence import MAX_EVIDENCE_BYTES
from rltune.errors import BlobDigestError, BundleError
from tests.support.bundles import (
    EVIDENCE,
    body_blobs,
    make_bundle,
    make_predicate,
    open_descriptors,
)

VECTORS = Path(__file__).parents[2] / "vectors"
SIGNATURE = Signature(key_id="a" * 64, signature=b"s" * 64)
ENVELOPE = Envelope(payload=b"{}", payload_type="x", signatures=(SIGNATURE,))


def test_written_bundle_reads_back(tmp_path):
    predicate = make_predicate()
    path, _, _ = make_bundle(tmp_path, predicate=predicate)
    with BundleFile.open(path) as bundle:
        assert bundle.decode_predicate() == predicate
        assert bundle.payload_digest == hashlib.sha256(bundle.payload).hexdigest()
        line = path.read_bytes().partition(b"\n")[0]
        assert bundle.envelope_digest == hashlib.sha256(line).hexdigest()
        blobs = {blob.role: bundle.read_blob(blob) for blob in predicate.blobs}
    assert decode_evidence(blobs["evidence"]) == EVIDENCE


def test_written_file_is_envelope_newline_body(tmp_path):
    path = tmp_path / "b.rltune"
    write_unsigned(path, make_predicate(), body_blobs()[1])
    line, newline, body = path.read_bytes().partition(b"\n")
    assert newline
    assert body == body_blobs()[1]
    assert json.loads(line)["signatures"] == []
    assert [item.name for item in tmp_path.iterdir()] == ["b.rltune"]


def test_build_body_lays_blobs_back_to_back():
    index, body = build_body([("one", "program", b"abc"), ("two", "evidence", b"de")])
    assert body == b"abcde"
    assert [(blob.offset, blob.size) for blob in index] == [(0, 3), (3, 2)]
    assert index[1].sha256 == hashlib.sha256(b"de").hexdigest()


@pytest.mark.parametrize("change", [{"body_size": 1}, {"sources": ()}, {"sequence": -1}])
def test_write_unsigned_refuses_what_a_reader_would(tmp_path, change):
    path = tmp_path / "b.rltune"
    with pytest.raises(BundleError):
        write_unsigned(path, replace(make_predicate(), **change), body_blobs()[1])
    assert not path.exists()


def test_write_unsigned_refuses_another_body(tmp_path):
    with pytest.raises(BundleError, match="body_size"):
        write_unsigned(tmp_path / "b.rltune", make_predicate(), body_blobs()[1] + b"x")


def test_write_that_fails_keeps_the_old_file(tmp_path):
    path, _, _ = make_bundle(tmp_path)
    before = path.read_bytes()

    def chunks():
        yield b"half"
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write_atomically(path, chunks())
    assert path.read_bytes() == before
    assert not list(tmp_path.glob(".*.tmp"))


def test_symlink_and_any_mode_are_fine(tmp_path):
    path, _, _ = make_bundle(tmp_path)
    path.chmod(0o666)
    link = tmp_path / "link.rltune"
    link.symlink_to(path)
    with BundleFile.open(link) as bundle:
        assert bundle.decode_predicate() == make_predicate()


def test_replaced_file_is_never_read(tmp_path):
    path, _, _ = make_bundle(tmp_path)
    with BundleFile.open(path) as bundle:
        other = tmp_path / "other"
        other.write_bytes(b"another file")
        other.replace(path)
        for blob in bundle.decode_predicate().blobs:
            assert hashlib.sha256(bundle.read_blob(blob)).hexdigest() == blob.sha256


def test_altered_blob_is_refused_when_read(tmp_path):
    path, _, _ = make_bundle(tmp_path)
    with BundleFile.open(path) as bundle:
        blob = bundle.decode_predicate().blobs[0]
        data = bytearray(path.read_bytes())
        data[data.index(b"\n") + 1] ^= 1
        path.write_bytes(data)  # in place: the same inode
        with pytest.raises(BlobDigestError, match=f"blob {blob.id}.*{blob.sha256}"):
            bundle.read_blob(blob)


def test_file_that_shrinks_after_opening_is_refused(tmp_path):
    path, _, _ = make_bundle(tmp_path)
    with BundleFile.open(path) as bundle:
        os.truncate(path, path.stat().st_size - 1)
        with pytest.raises(BundleError, match="became shorter"):
            bundle.read_blob(bundle.decode_predicate().blobs[-1])


def test_blob_beyond_the_body_is_refused(tmp_path):
    path, _, _ = make_bundle(tmp_path)
    with BundleFile.open(path) as bundle:
        blob = replace(bundle.decode_predicate().blobs[-1], size=2**40)
        with pytest.raises(BundleError, match="file ends before"):
            bundle.read_blob(blob)


def test_descriptor_is_closed_and_not_inherited(tmp_path):
    path, _, _ = make_bundle(tmp_path)
    before = open_descriptors()
    bundle = BundleFile.open(path)
    assert not os.get_inheritable(bundle._descriptor)
    bundle.close()
    bundle.close()
    (tmp_path / "junk").write_bytes(b"junk")
    with pytest.raises(BundleError):
        BundleFile.open(tmp_path / "junk")
    assert open_descriptors() == before


@pytest.mark.parametrize("kind", ["missing", "folder", "fifo", "empty", "no newline", "nul name"])
def test_what_is_no_file_is_refused(tmp_path, kind):
    path = tmp_path / "x.rltune"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "nul name":
        path = Path("a\0b")
    elif kind != "missing":
        path.write_bytes(b"" if kind == "empty" else b"{}")
    with pytest.raises(BundleError):
        BundleFile.open(path)


def test_line_longer_than_the_cap_is_refused(tmp_path, monkeypatch):
    path, _, _ = make_bundle(tmp_path)
    monkeypatch.setattr(codec, "MAX_ENVELOPE_BYTES", path.read_bytes().index(b"\n") - 1)
    with pytest.raises(BundleError, match="longer than"):
        BundleFile.open(path)


def test_sixteen_mebibytes_are_the_cap(tmp_path):
    path = tmp_path / "big.rltune"
    with path.open("wb") as file:
        file.truncate(16 * 2**20 + 1)  # sparse: reads as NUL bytes, no newline
        file.seek(0, os.SEEK_END)
        file.write(b"\n")
    with pytest.raises(BundleError, match="longer than 16777216 bytes"):
        BundleFile.open(path)


def test_file_larger_than_the_cap_is_refused_unread(tmp_path):
    path = tmp_path / "big.rltune"
    with path.open("wb") as file:
        file.truncate(codec.MAX_FILE_BYTES + 1)
    with pytest.raises(BundleError, match="expected at most"):
        BundleFile.open(path)


def test_envelope_round_trip():
    assert decode_envelope(encode_envelope(ENVELOPE)) == ENVELOPE


def _line(**changes):
    fields = {
        "payload": "e30=",
        "payloadType": "x",
        "signatures": [{"keyid": "k", "sig": "cw=="}],
    }
    fields |= changes
    return json.dumps(fields, sort_keys=True, separators=(",", ":")).encode()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (_line(extra=1), "unknown field 'extra'"),
        (_line(payload=1), "envelope.payload: expected canonical base64"),
        (_line(payload=""), "envelope.payload: expected canonical base64"),
        (_line(payload="e31="), "canonical base64"),
        (_line(payload="e30"), "canonical base64"),
        (_line(payload="e3 0="), "canonical base64"),
        (_line(payload="e-0="), "canonical base64"),
        (_line(payloadType=""), "envelope.payloadType"),
        (_line(payloadType="a\x1bb"), "envelope.payloadType"),
        (_line(signatures={}), "envelope.signatures: expected a list"),
        (_line(signatures=[1]), r"envelope.signatures\[0\]: expected an object"),
        (_line(signatures=[{"keyid": "k"}]), r"envelope.signatures\[0\]: field 'sig' is missing"),
        (_line(signatures=[{"keyid": "k", "sig": "cw=="}] * 17), "16"),
        (_line(signatures=[{"keyid": "k", "sig": "cw=="}] * 4000), "more fields"),
        (b" " + _line(), "canonical"),
        (b"\xef\xbb\xbf" + _line(), "canonical"),
        (_line().replace(b'"x"', b'"\\u0078"'), "canonical"),
        (_line().replace(b'"payloadType"', b'"payload":"e30=","payloadType"'), "canonical"),
        (b"[" * 100_000, "canonical"),
    ],
)
def test_other_spellings_of_an_envelope_are_refused(line, message):
    assert decode_envelope(_line())
    with pytest.raises(BundleError, match=message):
        decode_envelope(line)


@pytest.mark.parametrize("value", [{}, {"a": [1, "é", None, True]}, {"x": list(range(5000))}])
def test_evidence_round_trip(value):
    frame = encode_evidence(value)
    parameters = zstandard.get_frame_parameters(frame)
    assert parameters.has_checksum
    assert parameters.content_size > 0
    assert decode_evidence(frame) == value


def _frame(plain, **options):
    return zstandard.ZstdCompressor(**options).compress(plain)


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (_frame(b"{}"), "with checksum"),
        (_frame(b"{}", write_checksum=True, write_content_size=False), "declared size"),
        (encode_evidence({})[:-1], "a part of one|damaged"),
        (encode_evidence({}) + b"\0", "more bytes after it"),
        (encode_evidence({}) * 2, "more bytes after it"),
        (encode_evidence({"x": ["ab" * 9] * 5}) + b"\0" * 300, "more bytes after it"),
        (_frame(b"{ }", write_checksum=True), "not canonical JSON"),
        (b"", "damaged"),
        (b"PK\3\4 a zip", "damaged"),
    ],
)
def test_wrong_evidence_is_refused(frame, message):
    with pytest.raises(BundleError, match=message):
        decode_evidence(frame)


def test_damaged_checksum_of_evidence_is_refused():
    frame = bytearray(encode_evidence(EVIDENCE))
    frame[-1] ^= 1
    with pytest.raises(BundleError, match="damaged"):
        decode_evidence(bytes(frame))


def test_evidence_that_declares_too_much_is_refused_before_unpacking():
    big = zstandard.ZstdCompressor(write_checksum=True).compressobj(size=MAX_EVIDENCE_BYTES + 1)
    with pytest.raises(BundleError, match="declared size"):
        decode_evidence(big.compress(b"0") + big.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK))


def test_evidence_that_unpacks_to_more_than_declared_is_refused():
    frame = bytearray(_frame(b"0" * 200_000, write_checksum=True, level=1))
    place = frame.index((200_000).to_bytes(4, "little"))
    frame[place : place + 4] = (150_000).to_bytes(4, "little")
    with pytest.raises(BundleError):
        decode_evidence(bytes(frame))


def test_evidence_with_a_large_window_is_refused():
    parameters = zstandard.ZstdCompressionParameters(
        window_log=27, write_checksum=True, enable_ldm=True
    )
    plain = b'"' + b"0" * (16 * 2**20) + b'"'
    frame = zstandard.ZstdCompressor(compression_params=parameters).compress(plain)
    with pytest.raises(BundleError, match="damaged"):
        decode_evidence(frame)


@pytest.mark.parametrize("path", sorted((VECTORS / "zstd").rglob("*.zst")), ids=lambda p: p.name)
def test_zstd_golden_frames_give_one_declared_error(path):
    with pytest.raises(BundleError):
        decode_evidence(path.read_bytes())


def test_file_mode_of_a_new_bundle_follows_the_umask(tmp_path):
    old = os.umask(0o027)
    try:
        write_unsigned(tmp_path / "b.rltune", make_predicate(), body_blobs()[1])
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "b.rltune").stat().st_mode) == 0o640


def test_base64_alphabet_is_the_standard_one():
    line = encode_envelope(Envelope(payload=b"\xfb\xff", payload_type="x", signatures=()))
    assert base64.b64encode(b"\xfb\xff") in line
