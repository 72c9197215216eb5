"""Keys and signatures."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed448, rsa, x25519
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from securesystemslib.dsse import Envelope as OtherEnvelope
from securesystemslib.signer import SSlibKey

from rltune.bundle import keys, signing
from rltune.bundle.codec import BundleFile, write_unsigned
from rltune.bundle.envelope import Signature
from rltune.bundle.native import panics_as
from rltune.bundle.signing import (
    decode_public_key,
    encode_public_key,
    generate_key,
    key_id,
    load_private_key,
    pae,
    sign_bundle,
    verify_signature,
)
from rltune.errors import BundleError, KeyFileError, TrustError
from tests.support.bundles import (
    body_blobs,
    damage,
    make_bundle,
    make_predicate,
    open_descriptors,
    write_raw,
)

VECTORS = Path(__file__).parents[2] / "vectors"
PEM = serialization.Encoding.PEM
PKCS8 = serialization.PrivateFormat.PKCS8
PLAIN = serialization.NoEncryption()


def _wycheproof():
    document = json.loads((VECTORS / "wycheproof_ed25519.json").read_text())
    for group in document["testGroups"]:
        for case in group["tests"]:
            yield pytest.param(group["publicKey"]["pk"], case, id=str(case["tcId"]))


@pytest.mark.parametrize(("public_key", "case"), list(_wycheproof()))
def test_wycheproof_agrees(public_key, case):
    key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(public_key))
    valid = verify_signature(key, bytes.fromhex(case["sig"]), bytes.fromhex(case["msg"]))
    assert valid == (case["result"] == "valid")


def test_wycheproof_is_complete():
    assert len(list(_wycheproof())) == 151


def test_pae_is_that_of_the_dsse_specification():
    kind = "http://example.com/HelloWorld"
    assert pae(kind, b"hello world") == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"


def test_securesystemslib_verifies_our_signature(signed):
    bundle_path, _, key_path = signed
    line = bundle_path.read_bytes().partition(b"\n")[0]
    public = load_private_key(key_path, None).public_key()
    other = OtherEnvelope.from_dict(json.loads(line))
    key = SSlibKey(
        key_id(public),
        "ed25519",
        "ed25519",
        {"public": public.public_bytes_raw().hex()},
    )
    assert set(other.verify([key], 1)) == {key_id(public)}
    other.payload += b" "
    with pytest.raises(Exception, match="threshold"):
        other.verify([key], 1)


def test_generated_key_is_new_private_and_loads(tmp_path):
    path = tmp_path / "key.pem"
    old = os.umask(0)
    try:
        key = generate_key(path, None)
    finally:
        os.umask(old)
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_private_key(path, None).private_bytes_raw() == key.private_bytes_raw()
    before = path.read_bytes()
    with pytest.raises(KeyFileError, match="exists"):
        generate_key(path, None)
    assert path.read_bytes() == before


def test_encrypted_key_needs_its_passphrase(tmp_path):
    path = tmp_path / "key.pem"
    key = generate_key(path, b"secret")
    assert signing.is_encrypted(path)
    assert load_private_key(path, b"secret").private_bytes_raw() == key.private_bytes_raw()
    with pytest.raises(KeyFileError, match="is encrypted"):
        load_private_key(path, None)
    with pytest.raises(KeyFileError, match="cannot be decoded"):
        load_private_key(path, b"wrong")


def test_passphrase_for_a_plain_key_is_refused(tmp_path):
    generate_key(tmp_path / "key.pem", None)
    assert not signing.is_encrypted(tmp_path / "key.pem")
    with pytest.raises(KeyFileError, match="is not encrypted"):
        load_private_key(tmp_path / "key.pem", b"secret")


@pytest.mark.parametrize("kind", ["folder", "fifo", "missing"])
def test_private_key_that_is_no_file_is_refused(tmp_path, kind):
    path = tmp_path / "key.pem"
    if kind == "folder":
        path.mkdir(mode=0o700)
    elif kind == "fifo":
        os.mkfifo(path, 0o600)
    before = open_descriptors()
    with pytest.raises(KeyFileError):
        load_private_key(path, None)
    assert open_descriptors() == before


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601, 0o644])
def test_private_key_open_to_others_is_refused(tmp_path, mode):
    path = tmp_path / "key.pem"
    generate_key(path, None)
    path.chmod(mode)
    with pytest.raises(KeyFileError, match=f"mode {mode:04o}"):
        load_private_key(path, None)


def _foreign_keys():
    rsa_key = rsa.generate_private_key(65537, 2048)
    ec_key = ec.generate_private_key(ec.SECP256R1())
    traditional = serialization.PrivateFormat.TraditionalOpenSSL
    openssh = Ed25519PrivateKey.generate().private_bytes(
        PEM, serialization.PrivateFormat.OpenSSH, PLAIN
    )
    yield "RSA", rsa_key.private_bytes(PEM, PKCS8, PLAIN)
    yield "RSA PRIVATE KEY", rsa_key.private_bytes(PEM, traditional, PLAIN)
    yield "EC", ec_key.private_bytes(PEM, PKCS8, PLAIN)
    yield "EC PRIVATE KEY", ec_key.private_bytes(PEM, traditional, PLAIN)
    yield "Ed448", ed448.Ed448PrivateKey.generate().private_bytes(PEM, PKCS8, PLAIN)
    yield "X25519", x25519.X25519PrivateKey.generate().private_bytes(PEM, PKCS8, PLAIN)
    yield "OpenSSH PRIVATE KEY", openssh
    yield "no PEM", b"hello"
    yield "no PEM", b""


@pytest.mark.parametrize(("kind", "data"), list(_foreign_keys()))
def test_other_private_keys_are_refused_by_name(tmp_path, kind, data):
    path = tmp_path / "key.pem"
    path.write_bytes(data)
    path.chmod(0o600)
    with pytest.raises(KeyFileError) as caught:
        load_private_key(path, None)
    assert caught.value.message.endswith(f"got {kind}")


def _foreign_public_keys():
    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    yield "RSA", rsa.generate_private_key(65537, 2048).public_key().public_bytes(PEM, spki)
    yield "EC", ec.generate_private_key(ec.SECP256R1()).public_key().public_bytes(PEM, spki)
    yield "DSA", dsa.generate_private_key(1024).public_key().public_bytes(PEM, spki)
    yield "an OpenSSH key", b"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI me@here"
    yield "PRIVATE KEY", Ed25519PrivateKey.generate().private_bytes(PEM, PKCS8, PLAIN)


@pytest.mark.parametrize(("kind", "data"), list(_foreign_public_keys()))
def test_other_public_keys_are_refused_by_name(kind, data):
    with pytest.raises(KeyFileError, match=f"here: .*got {kind}"):
        decode_public_key(data, "here")


def test_public_key_round_trip():
    key = Ed25519PrivateKey.generate().public_key()
    assert decode_public_key(encode_public_key(key), "here") == key


@pytest.mark.parametrize("y", [*keys._WEAK_Y, keys._PRIME, keys._PRIME + 1])
@pytest.mark.parametrize("sign", [0, 1])
def test_points_that_no_private_key_has_are_refused(y, sign):
    raw = (y | sign << 255).to_bytes(32, "little")
    pem = encode_public_key(Ed25519PublicKey.from_public_bytes(raw))
    with pytest.raises(KeyFileError, match="no public key"):
        decode_public_key(pem, "here")


def test_order_eight_points_are_what_they_are_called():
    prime, y = keys._PRIME, keys._ORDER_EIGHT_Y
    # doubling gives y = 0, a point of order four, exactly if x**2 == -y**2
    d = -121665 * pow(121666, -1, prime) % prime
    x_squared = (y * y - 1) * pow(d * y * y + 1, -1, prime) % prime
    assert (x_squared + y * y) % prime == 0


def test_sign_adds_a_second_signature_and_keeps_the_body(tmp_path, signed):
    path, _, key_path = signed
    path.chmod(0o640)
    body = path.read_bytes().partition(b"\n")[2]
    second = generate_key(tmp_path / "second.pem", None)
    sign_bundle(path, second)
    with BundleFile.open(path) as bundle:
        ids = [item.key_id for item in bundle.signatures]
        first = load_private_key(key_path, None)
        assert ids == sorted(key_id(key.public_key()) for key in (first, second))
        message = pae(bundle.payload_type, bundle.payload)
        for key in (first, second):
            found = next(s for s in bundle.signatures if s.key_id == key_id(key.public_key()))
            assert verify_signature(key.public_key(), found.signature, message)
    assert path.read_bytes().partition(b"\n")[2] == body
    assert path.stat().st_mode & 0o777 == 0o640


def test_sign_replaces_the_signature_of_the_same_key(signed):
    path, _, key_path = signed
    key = load_private_key(key_path, None)
    good = path.read_bytes()
    with BundleFile.open(path) as bundle:
        payload = bundle.payload
    bad = Signature(key_id=key_id(key.public_key()), signature=b"0" * 64)
    write_raw(path, payload, good.partition(b"\n")[2], signatures=(bad,))
    sign_bundle(path, key)
    assert path.read_bytes() == good


def test_sign_through_a_symlink_keeps_the_link(tmp_path, signed):
    path, _, _ = signed
    link = tmp_path / "link.rltune"
    link.symlink_to(path)
    sign_bundle(link, Ed25519PrivateKey.generate())
    assert link.is_symlink()
    with BundleFile.open(path) as bundle:
        assert len(bundle.signatures) == 2


def test_signing_at_once_loses_no_signature(tmp_path):
    path = tmp_path / "b.rltune"
    write_unsigned(path, make_predicate(), body_blobs()[1])
    private_keys = [Ed25519PrivateKey.generate() for _ in range(8)]
    with ThreadPoolExecutor(len(private_keys)) as pool:
        list(pool.map(lambda key: sign_bundle(path, key), private_keys))
    with BundleFile.open(path) as bundle:
        found = {item.key_id for item in bundle.signatures}
    assert found == {key_id(key.public_key()) for key in private_keys}
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_bundle_gets_no_lock(tmp_path):
    (tmp_path / "text.rltune").write_text("no bundle\n")
    for name in ("text.rltune", "missing.rltune", "missing/b.rltune"):
        with pytest.raises(BundleError):
            sign_bundle(tmp_path / name, Ed25519PrivateKey.generate())
    assert [item.name for item in tmp_path.iterdir()] == ["text.rltune"]


def test_at_most_sixteen_signatures(tmp_path):
    path = tmp_path / "b.rltune"
    write_unsigned(path, make_predicate(), body_blobs()[1])
    for _ in range(16):
        sign_bundle(path, Ed25519PrivateKey.generate())
    before = path.read_bytes()
    with pytest.raises(BundleError, match="at most 16"):
        sign_bundle(path, Ed25519PrivateKey.generate())
    assert path.read_bytes() == before


def test_nothing_damaged_is_signed(tmp_path):
    path, _, key_path = make_bundle(tmp_path, signed=False)
    damage(path)
    before = path.read_bytes()
    with pytest.raises(BundleError, match="sha256"):
        sign_bundle(path, load_private_key(key_path, None))
    assert path.read_bytes() == before


def test_sign_that_cannot_write_loses_nothing(signed, monkeypatch):
    path, _, _ = signed
    before = path.read_bytes()

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        sign_bundle(path, Ed25519PrivateKey.generate())
    assert path.read_bytes() == before
    assert not list(path.parent.glob(".*.tmp"))


class PanicException(BaseException):
    __module__ = "pyo3_runtime"


def test_native_panic_becomes_a_declared_error():
    with pytest.raises(TrustError, match="native library failed: 'index out of bounds'"):  # noqa: SIM117
        with panics_as(TrustError, "checking"):
            raise PanicException("index out of bounds")


def test_interrupt_is_not_taken_for_a_panic():
    with pytest.raises(KeyboardInterrupt), panics_as(TrustError, "checking"):
        raise KeyboardInterrupt
