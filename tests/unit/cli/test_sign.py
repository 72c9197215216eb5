import os

import pytest

from rltune.bundle.codec import BundleFile
from rltune.bundle.signing import generate_key
from rltune.cli.main import main
from tests.support.bundles import make_bundle, nothing_decided
from tests.support.cli import rltune


def _sign(path, key, *more):
    return main(["sign", str(path), "--key", str(key), *map(str, more)])


def test_signs_an_unsigned_bundle_so_that_it_verifies(tmp_path, capsys):
    predicate, body = nothing_decided()
    path, trust, key = make_bundle(tmp_path, predicate=predicate, body=body, signed=False)
    command = ["verify", str(path), "--trust-dir", str(trust), "--now", "2026-12-01T09:30:00Z"]
    assert main(command) == 10
    assert _sign(path, key) == 0
    assert main(command) == 0
    captured = capsys.readouterr()
    assert "signed by" in captured.err


def test_adds_a_second_signature(tmp_path):
    path, _, _ = make_bundle(tmp_path)
    generate_key(tmp_path / "second.pem", None)
    assert _sign(path, tmp_path / "second.pem") == 0
    with BundleFile.open(path) as bundle:
        assert len(bundle.signatures) == 2


def test_encrypted_key_by_descriptor(tmp_path):
    path, _, _ = make_bundle(tmp_path, signed=False)
    key = tmp_path / "locked.pem"
    generate_key(key, b"secret")
    reader, writer = os.pipe()
    os.write(writer, b"secret")
    os.close(writer)
    done = rltune("sign", path, "--key", key, "--passphrase-fd", reader, pass_fds=[reader])
    os.close(reader)
    assert done.returncode == 0, done.stderr
    assert rltune("sign", path, "--key", key).returncode == 2  # no terminal to ask at


def test_closed_descriptor_is_a_usage_error(tmp_path):
    path, _, key = make_bundle(tmp_path)
    done = rltune("sign", path, "--key", key, "--passphrase-fd", 97)
    assert done.returncode == 2
    assert "--passphrase-fd 97" in done.stderr


@pytest.mark.parametrize(
    ("kind", "status"), [("missing", 2), ("garbage", 11), ("open key", 10), ("no key", 10)]
)
def test_what_cannot_be_signed(tmp_path, capsys, kind, status):
    path, _, key = make_bundle(tmp_path)
    if kind == "missing":
        path.unlink()
    elif kind == "garbage":
        path.write_bytes(b"garbage")
    elif kind == "open key":
        key.chmod(0o644)
    else:
        key.unlink()
    assert _sign(path, key) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert "Traceback" not in captured.err
