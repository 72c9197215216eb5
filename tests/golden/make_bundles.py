"""Write ``assets/bundle_v1``: one good bundle, and wrong ones named by their defect.

Run ``python -m tests.golden.make_bundles``; a test checks that it changes nothing.
The keys are made from fixed seeds and are worth nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rltune.bundle.decode_v1 import Statement, encode_statement
from rltune.bundle.envelope import Signature
from rltune.bundle.schema_v1 import Predicate
from rltune.bundle.signing import key_id
from rltune.bundle.trust import write_trust_store
from rltune.core.canonical import decode, encode
from tests.support.bundles import NOW, body_blobs, make_predicate, make_trust, write_raw

ASSETS = Path(__file__).parent / "assets" / "bundle_v1"
TRUSTED, OTHER, REVOKED = (Ed25519PrivateKey.from_private_bytes(bytes([n]) * 32) for n in (1, 2, 3))
BODY = body_blobs()[1]


def _payload(predicate: Predicate, body: bytes = BODY) -> bytes:
    digest = hashlib.sha256(body).hexdigest()
    return encode_statement(Statement(body_sha256=digest, predicate=predicate))


def _edited(edit: Callable[[dict[str, object]], object]) -> bytes:
    value = decode(GOOD, "payload")
    if isinstance(value, dict):
        edit(value)
    return encode(value)


PREDICATE = make_predicate()
GOOD = _payload(PREDICATE)
_BASELINE = PREDICATE.decisions[0].baseline
_SWAPPED = replace(
    PREDICATE.decisions[0], baseline=replace(_BASELINE, candidate_id="BLOCK=1,w1,s1")
)

PAYLOADS: dict[str, tuple[int, bytes]] = {
    # name: (exit status, payload signed by the trusted key)
    "good": (0, GOOD),
    "unknown_stream": (10, _payload(replace(PREDICATE, stream="rltune/dev/dev"))),
    "sequence_below_floor": (10, _payload(replace(PREDICATE, sequence=0))),
    "expired": (10, _payload(make_predicate(not_after=NOW - timedelta(seconds=1)))),
    "revoked_payload": (10, _payload(replace(PREDICATE, sequence=13))),
    "duplicate_key": (11, GOOD.replace(b'"sequence":1', b'"sequence":1,"sequence":1')),
    "float_sequence": (11, GOOD.replace(b'"sequence":1', b'"sequence":1.0')),
    "pretty_printed": (11, json.dumps(json.loads(GOOD), indent=1).encode()),
    "unknown_field": (11, _edited(lambda value: value.update(extra=1))),
    "other_predicate_type": (11, _edited(lambda value: value.update(predicateType="x"))),
    "foreign_candidate_id": (11, _payload(replace(PREDICATE, decisions=(_SWAPPED,)))),
    "no_source": (11, _payload(replace(PREDICATE, sources=()))),
    "body_size_wrong": (11, _payload(replace(PREDICATE, body_size=PREDICATE.body_size - 1))),
    "subject_of_another_body": (11, _payload(PREDICATE, b"another")),
}

SIGNED_OTHERWISE: dict[str, tuple[int, tuple[Ed25519PrivateKey, ...], tuple[Signature, ...]]] = {
    # name: (exit status, keys that sign, further signatures)
    "unsigned": (10, (), ()),
    "unknown_key": (10, (OTHER,), ()),
    "revoked_key": (10, (REVOKED,), ()),
    "bad_signature": (
        10,
        (REVOKED,),
        (Signature(key_id=key_id(TRUSTED.public_key()), signature=b"\0" * 64),),
    ),
}

FILES: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    # name: (exit status, edit of the good file)
    "empty": (11, lambda _: b""),
    "truncated_body": (11, lambda data: data[:-1]),
    "trailing_byte": (11, lambda data: data + b"\n"),
    "altered_program": (11, lambda data: data.replace(b"ELF baseline", b"ELF Baseline")),
    "byte_order_mark": (11, lambda data: b"\xef\xbb\xbf" + data),
    "carriage_return": (11, lambda data: data.replace(b"}\n", b"}\r\n", 1)),
}

EXPECTED = {name: item[0] for part in (PAYLOADS, SIGNED_OTHERWISE, FILES) for name, item in part.items()}  # fmt: skip


def make(folder: Path) -> None:
    """Write all bundles and their trust store to ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (_, payload) in PAYLOADS.items():
        write_raw(folder / f"{name}.rltune", payload, BODY, [TRUSTED])
    for name, (_, keys, signatures) in SIGNED_OTHERWISE.items():
        write_raw(folder / f"{name}.rltune", GOOD, BODY, keys, signatures=signatures)
    good = (folder / "good.rltune").read_bytes()
    for name, (_, edit) in FILES.items():
        (folder / f"{name}.rltune").write_bytes(edit(good))
    revoked_payload = hashlib.sha256(PAYLOADS["revoked_payload"][1]).hexdigest()
    trust = replace(
        make_trust([TRUSTED, REVOKED], min_sequence=1),
        revoked_key_ids=(key_id(REVOKED.public_key()),),
        revoked_payload_digests=(revoked_payload,),
    )
    write_trust_store(folder / "trust", trust)


if __name__ == "__main__":
    make(ASSETS)
