"""Verdicts: who may sign what, and what a well-formed bundle is."""

import base64
import hashlib
import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rltune.bundle import verify as verify_module
from rltune.bundle.codec import BundleFile, build_body, encode_evidence, write_unsigned
from rltune.bundle.decode_v1 import Statement, encode_statement
from rltune.bundle.envelope import Signature
from rltune.bundle.schema_v1 import Driver, Range
from rltune.bundle.signing import key_id, load_private_key, sign_bundle, sign_payload
from rltune.bundle.trust import load_trust_store
from rltune.bundle.verify import Finding, Refused, Verified, check_signatures, verify_bundle
from rltune.core.canonical import decode, encode
from rltune.core.shapes import TokenRange
from rltune.errors import (
    BundleError,
    EnvironmentUnfitError,
    StaleSourceError,
    TrustError,
)
from tests.support.bundles import (
    BASELINE,
    CANDIDATE,
    NOW,
    PROGRAMS,
    STREAM,
    TARGET,
    body_blobs,
    damage,
    launch,
    make_bundle,
    make_decision,
    make_predicate,
    make_trust,
    write_raw,
)

VECTORS = Path(__file__).parents[2] / "vectors"
KEYS = [Ed25519PrivateKey.generate() for _ in range(3)]
IDS = [key_id(key.public_key()) for key in KEYS]
SECOND = timedelta(seconds=1)


def _bundle(tmp_path, *keys, **changes):
    path = tmp_path / "b.rltune"
    write_unsigned(path, make_predicate(**changes), body_blobs()[1])
    for key in keys:
        sign_bundle(path, key)
    return path


def _refused(verdict, exit_status, text):
    assert isinstance(verdict, Refused), verdict
    assert verdict.exit_status == exit_status
    assert text in str(verdict.findings[0])
    return verdict


def test_valid_bundle_is_verified(signed):
    path, trust, key_path = signed
    verdict = verify_bundle(path, trust, NOW)
    assert isinstance(verdict, Verified)
    assert verdict.predicate == make_predicate()
    assert verdict.signer_key_ids == (key_id(load_private_key(key_path, None).public_key()),)
    assert verdict.notes == ()
    with BundleFile.open(path) as bundle:
        assert check_signatures(bundle, trust, NOW) == make_predicate()


def test_dirty_source_is_noted(tmp_path):
    verdict = verify_bundle(_bundle(tmp_path, KEYS[0], dirty=True), make_trust(KEYS), NOW)
    assert isinstance(verdict, Verified)
    assert "uncommitted changes" in verdict.notes[0]


def test_unsigned_bundle_is_refused(tmp_path):
    _refused(verify_bundle(_bundle(tmp_path), make_trust(KEYS), NOW), 10, "no signature")


def test_unknown_keys_alone_are_refused(tmp_path):
    path = _bundle(tmp_path, KEYS[2])
    _refused(verify_bundle(path, make_trust(KEYS[:2]), NOW), 10, "unknown keys")


def test_unknown_keys_beside_a_known_one_are_ignored(tmp_path):
    path = _bundle(tmp_path, KEYS[0], *(Ed25519PrivateKey.generate() for _ in range(3)))
    verdict = verify_bundle(path, make_trust(KEYS[:1]), NOW)
    assert isinstance(verdict, Verified)
    assert verdict.notes == ("signatures by unknown keys, ignored: 3",)


def test_wrong_signature_by_an_unknown_key_is_ignored(tmp_path):
    path = _resigned(tmp_path, KEYS[0], Signature(key_id="unknown", signature=b"x"))
    assert isinstance(verify_bundle(path, make_trust(KEYS[:1]), NOW), Verified)


@pytest.mark.parametrize("wrong", [b"\0" * 64, b"x", b"\0" * 65])
def test_wrong_signature_by_a_known_key_refuses_whatever_else_signed(tmp_path, wrong):
    path = _resigned(tmp_path, KEYS[0], Signature(key_id=IDS[1], signature=wrong))
    _refused(verify_bundle(path, make_trust(KEYS[:2]), NOW), 10, IDS[1])


def test_signature_of_one_key_under_the_id_of_another_is_refused(tmp_path):
    path = _bundle(tmp_path)
    with BundleFile.open(path) as bundle:
        made = sign_payload(bundle.payload_type, bundle.payload, KEYS[0])
    path = _resigned(tmp_path, None, replace(made, key_id=IDS[1]))
    _refused(verify_bundle(path, make_trust(KEYS[:2]), NOW), 10, IDS[1])


def _resigned(tmp_path, key, *signatures):
    path = _bundle(tmp_path)
    with BundleFile.open(path) as bundle:
        payload = bundle.payload
    keys = [key] if key else []
    return write_raw(path, payload, body_blobs()[1], keys, signatures=signatures)


def test_threshold_counts_distinct_keys(tmp_path):
    trust = make_trust(KEYS, threshold=2)
    path = _bundle(tmp_path, KEYS[0])
    _refused(verify_bundle(path, trust, NOW), 10, "signatures by 2 keys")
    sign_bundle(path, KEYS[1])
    verdict = verify_bundle(path, trust, NOW)
    assert isinstance(verdict, Verified)
    assert verdict.signer_key_ids == tuple(sorted(IDS[:2]))


def test_same_key_twice_counts_once(tmp_path):
    path = _bundle(tmp_path)
    with BundleFile.open(path) as bundle:
        payload = bundle.payload
    write_raw(path, payload, body_blobs()[1], [KEYS[0], KEYS[0]])
    _refused(verify_bundle(path, make_trust(KEYS, threshold=2), NOW), 10, "signatures by 1")


def test_key_of_another_stream_does_not_count(tmp_path):
    trust = make_trust(KEYS[:2])
    rule = replace(trust.streams[0], key_ids=(IDS[1],))
    path = _bundle(tmp_path, KEYS[0])
    verdict = verify_bundle(path, replace(trust, streams=(rule,)), NOW)
    _refused(verdict, 10, "signatures by 0")


def test_unknown_stream_is_refused(tmp_path):
    path = _bundle(tmp_path, KEYS[0], stream="rltune/dev/dev")
    _refused(verify_bundle(path, make_trust(KEYS), NOW), 10, "stream rltune/dev/dev")


@pytest.mark.parametrize(("sequence", "fine"), [(6, False), (7, True), (8, True)])
def test_sequence_floor(tmp_path, sequence, fine):
    path = _bundle(tmp_path, KEYS[0], sequence=sequence)
    verdict = verify_bundle(path, make_trust(KEYS, min_sequence=7), NOW)
    if fine:
        assert isinstance(verdict, Verified)
    else:
        _refused(verdict, 10, "sequence 7 or higher")


@pytest.mark.parametrize(("after", "fine"), [(-SECOND, True), (0 * SECOND, False), (SECOND, False)])
def test_trust_store_expires(tmp_path, after, fine):
    trust = replace(make_trust(KEYS), expires=NOW)
    verdict = verify_bundle(_bundle(tmp_path, KEYS[0]), trust, NOW + after)
    if fine:
        assert isinstance(verdict, Verified)
    else:
        _refused(verdict, 10, "trust.json: expires")


@pytest.mark.parametrize(
    ("after", "text"),
    [
        (-SECOND, "not valid before"),
        (0 * SECOND, ""),
        (10 * SECOND, ""),
        (11 * SECOND, "not valid after"),
    ],
)
def test_key_validity(tmp_path, after, text):
    trust = make_trust(KEYS[:1])
    key = replace(trust.keys[0], not_before=NOW, not_after=NOW + 10 * SECOND)
    path = _bundle(tmp_path, KEYS[0])
    verdict = verify_bundle(path, replace(trust, keys=(key,)), NOW + after)
    if text:
        _refused(verdict, 10, text)
    else:
        assert isinstance(verdict, Verified)


@pytest.mark.parametrize("after", [0 * SECOND, SECOND])
def test_not_after_of_the_bundle_binds_where_it_is_told_to(tmp_path, after):
    path = _bundle(tmp_path, KEYS[0], not_after=NOW)
    trust, now = make_trust(KEYS), NOW + after
    verdict = verify_bundle(path, trust, now)
    assert isinstance(verify_bundle(path, trust, now, bind_not_after=False), Verified)
    with BundleFile.open(path) as bundle:
        assert check_signatures(bundle, trust, now)
        strict = replace(trust, bind_not_after_at_load=True)
        if after:
            _refused(verdict, 10, "not_after")
            with pytest.raises(TrustError, match="not_after"):
                check_signatures(bundle, strict, now)
        else:
            assert isinstance(verdict, Verified)
            assert check_signatures(bundle, strict, now)


def test_revoked_key_does_not_count(tmp_path):
    trust = replace(make_trust(KEYS[:2]), revoked_key_ids=(IDS[0],))
    path = _bundle(tmp_path, KEYS[0])
    _refused(verify_bundle(path, trust, NOW), 10, "revoked")
    with BundleFile.open(path) as bundle, pytest.raises(TrustError, match="revoked"):
        check_signatures(bundle, trust, NOW)
    sign_bundle(path, KEYS[1])
    verdict = verify_bundle(path, trust, NOW)
    assert isinstance(verdict, Verified)
    assert verdict.signer_key_ids == (IDS[1],)


def test_revoked_payload_is_refused_whoever_signed(tmp_path):
    path = _bundle(tmp_path, *KEYS)
    with BundleFile.open(path) as bundle:
        digest = bundle.payload_digest
    trust = replace(make_trust(KEYS), revoked_payload_digests=(digest,))
    _refused(verify_bundle(path, trust, NOW), 10, digest)


def test_payload_is_not_decoded_before_a_signature_was_accepted(tmp_path):
    path = write_raw(tmp_path / "b.rltune", b"not JSON", keys=[KEYS[0]])
    _refused(verify_bundle(path, make_trust(KEYS[1:]), NOW), 10, "unknown keys")
    _refused(verify_bundle(path, make_trust(KEYS), NOW), 11, "payload: not canonical JSON")
    revoked = replace(make_trust(KEYS), revoked_key_ids=(IDS[0],))
    _refused(verify_bundle(path, revoked, NOW), 10, "revoked")


@pytest.mark.parametrize("data", [b"", b"\n", b"{}\n", b"\x7fELF\0\0", b"\0" * 5000, b"PK\3\4"])
def test_garbage_is_malformed(tmp_path, data):
    path = tmp_path / "b.rltune"
    path.write_bytes(data)
    _refused(verify_bundle(path, make_trust(KEYS), NOW), 11, "b.rltune")


@pytest.mark.parametrize("tail", [b"\0", b"\n", b"x" * 100])
def test_trailing_bytes_are_refused_also_by_a_loader(signed, tail):
    path, trust, _ = signed
    path.write_bytes(path.read_bytes() + tail)
    _refused(verify_bundle(path, trust, NOW), 11, "expected a body of")
    with BundleFile.open(path) as bundle, pytest.raises(BundleError, match="expected a body of"):
        check_signatures(bundle, trust, NOW)


@pytest.mark.parametrize("cut", [1, 20, 40])
def test_truncated_body_is_refused(signed, cut):
    path, trust, _ = signed
    path.write_bytes(path.read_bytes()[:-cut])
    _refused(verify_bundle(path, trust, NOW), 11, "expected a body of")


def test_every_prefix_of_a_bundle_is_refused(signed):
    path, trust, _ = signed
    data = path.read_bytes()
    for end in range(0, len(data), 37):
        path.write_bytes(data[:end])
        _refused(verify_bundle(path, trust, NOW), 11, "b.rltune")


def test_body_is_read_only_if_asked_to(signed):
    path, trust, _ = signed
    damage(path)
    _refused(verify_bundle(path, trust, NOW), 11, "blob evidence: expected sha256")
    assert isinstance(verify_bundle(path, trust, NOW, check_bodies=False), Verified)


def test_subject_digest_is_that_of_the_body(tmp_path):
    statement = Statement(body_sha256="0" * 64, predicate=make_predicate())
    path = write_raw(tmp_path / "b.rltune", encode_statement(statement), body_blobs()[1], KEYS[:1])
    _refused(verify_bundle(path, make_trust(KEYS), NOW), 11, "body: expected sha256 0000")


@pytest.mark.parametrize("frame", [b"junk", encode_evidence([1])])
def test_evidence_must_decode_to_an_object(tmp_path, frame):
    index, body = body_blobs()
    data = [body[blob.offset :][: blob.size] for blob in index[:2]]
    index, body = build_body(
        [
            (index[0].id, "program", data[0]),
            (index[1].id, "program", data[1]),
            ("evidence", "evidence", frame),
        ]
    )
    path, trust_dir, _ = make_bundle(tmp_path, predicate=make_predicate(blobs=index), body=body)
    verdict = verify_bundle(path, load_trust_store(trust_dir), NOW)
    _refused(verdict, 11, "blob evidence")


def _with_blob(predicate, index, **changes):
    blobs = list(predicate.blobs)
    blobs[index] = replace(blobs[index], **changes)
    return replace(predicate, blobs=tuple(blobs))


def _with_program(predicate, **changes):
    first, *others = predicate.programs
    return replace(predicate, programs=(replace(first, **changes), *others))


def _with_ranges(predicate, *ranges):
    return replace(predicate, decisions=(replace(predicate.decisions[0], ranges=ranges),))


def _range(first, last, config=CANDIDATE):
    return Range(tokens=TokenRange(first, last), launch=launch(config, PROGRAMS[1]))


def _misnamed(predicate):
    decision = predicate.decisions[0]
    wrong = replace(decision.baseline, candidate_id="BLOCK=1,w1,s1")
    return replace(predicate, decisions=(replace(decision, baseline=wrong),))


P = make_predicate()
TWO = make_predicate(decisions=(make_decision("a/forward"), make_decision("b/forward")))


@pytest.mark.parametrize(
    ("predicate", "message"),
    [
        (_with_blob(P, 1, offset=12), "blobs[1].offset: expected 13"),
        (_with_blob(P, 0, offset=1), "blobs[0].offset: expected 0"),
        (_with_blob(P, 1, id=P.blobs[0].id), "occurs twice"),
        (_with_blob(P, 0, role="evidence"), "no program blob"),
        (_with_blob(P, 0, sha256="0" * 64), "digest: expected the digest of blob"),
        (replace(P, body_size=P.body_size + 1), "body_size: expected"),
        (replace(P, programs=P.programs[::-1]), "programs: expected entries in ascending"),
        (replace(P, programs=P.programs[:1]), "is referred to by no programs"),
        (_with_program(P, blob="nothing"), "no program blob of its own called 'nothing'"),
        (_with_program(P, blob=P.programs[1].blob), "digest: expected the digest"),
        (_with_ranges(P), "is named by no launch"),
        (_with_ranges(P, _range(1, 4), _range(4, 8)), "disjoint"),
        (_with_ranges(P, _range(9, 10), _range(1, 2)), "ascending"),
        (_with_ranges(P, _range(1, 4, BASELINE)), "other than the baseline"),
        (_misnamed(P), "baseline.candidate_id: expected 'BLOCK=1024,w4,s1', got 'BLOCK=1,w1,s1'"),
        (replace(TWO, decisions=TWO.decisions[::-1]), "decisions: expected entries in ascending"),
        (replace(P, decisions=P.decisions * 2), "each once"),
        (replace(TWO, sources=TWO.sources[::-1]), "sources: expected entries in ascending"),
        (replace(TWO, sources=TWO.sources[:1]), "b/forward has no entry in sources"),
        (replace(P, created="2030-01-01T00:00:00Z"), "not_after: expected a time after"),
        (replace(P, target=replace(TARGET, drivers=())), "at least one driver"),
        (replace(P, target=replace(TARGET, drivers=TARGET.drivers * 2)), "occurs twice"),
        (
            replace(P, target=replace(TARGET, drivers=(Driver(version="1", evidence="gone"),))),
            "no evidence blob called 'gone'",
        ),
    ],
)  # fmt: skip
def test_signed_contradictions_are_malformed(tmp_path, predicate, message):
    body = body_blobs()[1]
    statement = Statement(body_sha256=hashlib.sha256(body).hexdigest(), predicate=predicate)
    path = write_raw(tmp_path / "b.rltune", encode_statement(statement), body, KEYS[:1])
    _refused(verify_bundle(path, make_trust(KEYS), NOW), 11, message)
    with BundleFile.open(path) as bundle, pytest.raises(BundleError):
        check_signatures(bundle, make_trust(KEYS), NOW)


def test_launch_of_a_program_that_is_not_shipped_is_malformed(tmp_path):
    decision = replace(make_decision(), baseline=launch(BASELINE, b"another"))
    with pytest.raises(BundleError, match="is named by"):
        write_unsigned(tmp_path / "b", make_predicate(decisions=(decision,)), body_blobs()[1])


def _statement(tmp_path):
    path = _bundle(tmp_path)
    with BundleFile.open(path) as bundle:
        value = decode(bundle.payload, "payload")
    assert isinstance(value, dict)
    return value


def _set(value, path, new):
    *parents, last = path
    for step in parents:
        value = value[step]
    if new is ...:
        del value[last]
    else:
        value[last] = new


DECISION = ("predicate", "decisions", 0)


@pytest.mark.parametrize(
    ("path", "new", "message"),
    [
        (("_type",), "https://in-toto.io/Statement/v0.1", "payload._type: expected"),
        (("predicateType",), "urn:rltune:bundle/v2", "payload.predicateType: expected"),
        (("extra",), 1, "payload: unknown field 'extra'"),
        (("subject",), [], "payload.subject: expected one entry, got 0"),
        (("subject", 0, "name"), "other", "payload.subject[0].name: expected 'body'"),
        (("subject", 0, "digest", "sha256"), "AB" * 32, "64 lower-case hex digits"),
        (("subject", 0, "digest", "md5"), "0" * 32, "payload.subject[0].digest: unknown field"),
        (("predicate", "format"), "rltune-bundle/2", "predicate.format: expected"),
        (("predicate", "sequence"), True, "predicate.sequence: expected an integer"),
        (("predicate", "sequence"), -1, "predicate.sequence: expected an integer"),
        (("predicate", "sequence"), "1", "predicate.sequence: expected an integer"),
        (("predicate", "created"), "2026-12-01 09:30:00Z", "predicate.created: expected a UTC"),
        (("predicate", "not_after"), ..., "predicate: field 'not_after' is missing"),
        (("predicate", "stream"), "A/B/C", "predicate.stream: expected a stream"),
        (("predicate", "surprise"), 0, "predicate: unknown field 'surprise'"),
        (("predicate", "target", "kind"), "rocm", "predicate.target.kind: expected 'cuda' or"),
        (("predicate", "target", "triton"), "", "target.triton: expected a text"),
        (("predicate", "target", "triton"), "3\x1b[2J", "target.triton: expected a text"),
        (("predicate", "target", "torch", "match"), 1, "target.torch.match: expected true or"),
        (("predicate", "target", "codegen_environment"), [], "codegen_environment: expected an"),
        (("predicate", "target", "codegen_environment", "A"), 1, "codegen_environment.A: expected"),
        ((*DECISION, "key", "dtype"), "fp8", "decisions[0].key.dtype: expected one of"),
        ((*DECISION, "ranges", 0, "tokens", "first"), 0, "ranges[0].tokens.first: expected"),
        ((*DECISION, "ranges", 0, "tokens", "first"), 65, "ranges[0].tokens.last: expected"),
        ((*DECISION, "baseline", "launch_config", "num_warps"), True, "launch_config.num_warps"),
        ((*DECISION, "baseline", "launch_config", "knobs", "BLOCK"), "1", "knobs.BLOCK"),
        (("predicate", "blobs", 0, "role"), "source", "blobs[0].role: expected"),
        (("predicate", "blobs", 0, "size"), 0, "blobs[0].size: expected"),
        (("predicate", "provenance", "command", 0), 1, "provenance.command[0]: expected a text"),
    ],
)  # fmt: skip
def test_signed_statement_of_another_form_is_malformed(tmp_path, path, new, message):
    statement = _statement(tmp_path)
    _set(statement, path, new)
    file = write_raw(tmp_path / "x.rltune", encode(statement), body_blobs()[1], KEYS[:1])
    _refused(verify_bundle(file, make_trust(KEYS), NOW), 11, message)


def test_other_payload_type_is_malformed_even_if_signed(tmp_path):
    payload = encode(_statement(tmp_path))
    path = write_raw(
        tmp_path / "x.rltune", payload, body_blobs()[1], KEYS[:1], payload_type="text/plain"
    )
    _refused(verify_bundle(path, make_trust(KEYS), NOW), 11, "envelope.payloadType")


JSON_FILES = sorted((VECTORS / "JSONTestSuite").rglob("*.json"))


def test_json_test_suite_is_complete():
    assert len(JSON_FILES) == 340


@pytest.mark.parametrize("path", JSON_FILES, ids=lambda p: p.name)
def test_json_test_suite_is_never_a_bundle(tmp_path, path):
    data = path.read_bytes()
    trust = make_trust(KEYS)
    envelope = tmp_path / "envelope.rltune"
    envelope.write_bytes(data.replace(b"\n", b" ") + b"\n")
    _refused(verify_bundle(envelope, trust, NOW), 11, "envelope")
    envelope.write_bytes(data)
    _refused(verify_bundle(envelope, trust, NOW), 11, "")
    if data:
        payload = write_raw(tmp_path / "payload.rltune", data, b"", KEYS[:1])
        _refused(verify_bundle(payload, trust, NOW), 11, "payload")


def test_further_checks_add_findings_in_exit_order(signed):
    path, trust, _ = signed

    def stale(bundle, predicate):
        raise StaleSourceError("silu/forward: source differs")

    def coverage(bundle, predicate):
        yield Finding(code="X", exit_status=14, where=predicate.stream, expected="a", found="b")

    verdict = verify_bundle(path, trust, NOW, further_checks=(coverage, stale))
    assert isinstance(verdict, Refused)
    assert [item.exit_status for item in verdict.findings] == [12, 14]
    assert verdict.exit_status == 12
    assert verdict.findings[1].where == STREAM


def test_further_checks_do_not_see_what_is_not_authentic(tmp_path):
    def never(bundle, predicate):
        raise AssertionError

    path = _bundle(tmp_path)
    assert isinstance(verify_bundle(path, make_trust(KEYS), NOW, further_checks=(never,)), Refused)


def test_further_check_that_cannot_run_is_no_finding(signed):
    path, trust, _ = signed

    def unfit(bundle, predicate):
        raise EnvironmentUnfitError("no Triton 3.7.1")

    with pytest.raises(EnvironmentUnfitError):
        verify_bundle(path, trust, NOW, further_checks=(unfit,))


class PanicException(BaseException):
    __module__ = "pyo3_runtime"


def test_native_panic_is_a_finding(signed, monkeypatch):
    path, trust, _ = signed

    def panic(*_):
        raise PanicException("unreachable")

    monkeypatch.setattr(verify_module, "verify_signature", panic)  # no input is known to panic
    _refused(verify_bundle(path, trust, NOW), 11, "native library failed")
    with BundleFile.open(path) as bundle, pytest.raises(BundleError):
        check_signatures(bundle, trust, NOW)


def test_verify_writes_nothing(signed):
    path, trust, _ = signed
    before = {item: item.stat().st_mtime_ns for item in path.parent.rglob("*")}
    verify_bundle(path, trust, NOW)
    assert {item: item.stat().st_mtime_ns for item in path.parent.rglob("*")} == before


def test_payload_is_an_in_toto_statement(signed):
    path, _, _ = signed
    payload = json.loads(base64.b64decode(json.loads(path.read_bytes().splitlines()[0])["payload"]))
    assert payload["_type"] == "https://in-toto.io/Statement/v1"
    assert payload["predicateType"].endswith("/bundle/v1")
    assert [item["name"] for item in payload["subject"]] == ["body"]
