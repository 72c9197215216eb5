"""The commands of docs/bundle-format.md, run as they stand there."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rltune.bundle.schema_v1 import FORMAT, PAYLOAD_TYPE, PREDICATE_TYPE, STATEMENT_TYPE
from rltune.bundle.signing import encode_public_key, load_private_key, sign_bundle
from rltune.bundle.trust import load_trust_store

PAGE = (Path(__file__).parents[3] / "docs" / "bundle-format.md").read_text(encoding="utf-8")
COMMANDS = PAGE[PAGE.rindex("```sh\n") + 6 : PAGE.rindex("```")]


def _check(folder, bundle, public_key):
    work = folder / "work"
    work.mkdir(exist_ok=True)
    (folder / "public.pem").write_bytes(encode_public_key(public_key))
    return subprocess.run(
        ["/bin/sh", "-c", COMMANDS],
        cwd=work,
        env={
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "BUNDLE": str(bundle),
            "KEY": str(folder / "public.pem"),
        },
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def public_key(signed):
    return load_private_key(signed[2], None).public_key()


def test_commands_accept_a_valid_bundle(tmp_path, signed, public_key):
    done = _check(tmp_path, signed[0], public_key)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("OK") == 4  # the body and three blobs


def test_commands_find_the_signature_among_several(tmp_path, signed, public_key):
    others = [Ed25519PrivateKey.generate() for _ in range(3)]
    for key in others:
        sign_bundle(signed[0], key)
    for key in (public_key, *(item.public_key() for item in others)):
        assert _check(tmp_path, signed[0], key).returncode == 0


def test_commands_refuse_another_key(tmp_path, signed):
    other = Ed25519PrivateKey.generate().public_key()
    assert _check(tmp_path, signed[0], other).returncode != 0


@pytest.mark.parametrize("place", [30, 300, -1])
def test_commands_refuse_an_altered_bundle(tmp_path, signed, public_key, place):
    data = bytearray(signed[0].read_bytes())
    data[place] = ord("A") if data[place] != ord("A") else ord("B")
    signed[0].write_bytes(data)
    assert _check(tmp_path, signed[0], public_key).returncode != 0


def test_page_names_the_constants():
    for text in (FORMAT, PAYLOAD_TYPE, PREDICATE_TYPE, STATEMENT_TYPE):
        assert text in PAGE


def test_trust_file_of_the_page_has_the_fields_that_are_read(tmp_path, signed):
    example = json.loads(re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)[0])
    trust_dir = signed[0].parent / "trust"
    assert load_trust_store(trust_dir)
    written = json.loads((trust_dir / "trust.json").read_text())
    assert example.keys() == written.keys()
    for name in ("keys", "streams"):
        assert example[name][0].keys() == written[name][0].keys()
