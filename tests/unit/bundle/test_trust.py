"""The trust store: where it is found, who may write it, what it may say."""

import json
import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rltune.bundle import trust_files
from rltune.bundle.signing import encode_public_key, key_id
from rltune.bundle.trust import (
    find_trust_store,
    load_trust_store,
    running_privileged,
    write_trust_store,
)
from rltune.errors import TrustStoreError
from tests.support.bundles import make_trust

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
KEY_ID = key_id(KEY.public_key())
PEM = encode_public_key(KEY.public_key()).decode()


def _document(**changes):
    key = {
        "key_id": KEY_ID,
        "pem": PEM,
        "not_before": "2026-01-01T00:00:00Z",
        "not_after": "2027-01-01T00:00:00Z",
    }
    rule = {"stream": "a/b/c", "key_ids": [KEY_ID], "threshold": 1, "min_sequence": 3}
    document = {
        "version": 1,
        "expires": "2027-01-01T00:00:00Z",
        "keys": [key | changes.pop("key", {})],
        "streams": [rule | changes.pop("rule", {})],
        "revoked_key_ids": [],
        "revoked_payload_digests": [],
    }
    return document | changes


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "trust"
    path.mkdir(mode=0o755)
    return path


def _write(folder, document):
    text = document if isinstance(document, str) else json.dumps(document, indent=1)
    (folder / "trust.json").write_text(text)
    (folder / "trust.json").chmod(0o644)
    return folder


def test_document_is_read(folder):
    store = load_trust_store(_write(folder, _document()))
    assert store.keys[0].key_id == KEY_ID
    assert store.keys[0].public_key == KEY.public_key()
    rule = store.stream("a/b/c")
    assert rule is not None
    assert (rule.threshold, rule.min_sequence) == (1, 3)
    assert not store.bind_not_after_at_load
    assert store.stream("a/b/d") is None


def test_bind_not_after_at_load_is_read(folder):
    assert load_trust_store(
        _write(folder, _document(bind_not_after_at_load=True))
    ).bind_not_after_at_load


def test_written_store_reads_back(tmp_path):
    store = make_trust([KEY, Ed25519PrivateKey.generate()], threshold=2, min_sequence=7)
    store = replace(
        store,
        where=tmp_path / "new" / "trust" / "trust.json",
        revoked_key_ids=("a" * 64,),
        revoked_payload_digests=("b" * 64,),
        bind_not_after_at_load=True,
    )
    old = os.umask(0)
    try:
        write_trust_store(tmp_path / "new" / "trust", store)
    finally:
        os.umask(old)
    assert load_trust_store(tmp_path / "new" / "trust") == store


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (_document(version=2), r"\$.version: expected 1"),
        (_document(version=True), r"\$.version: expected an integer"),
        (_document(extra=1), r"\$: unknown field 'extra'"),
        (_document(expires="2027-01-01"), r"\$.expires: expected a UTC time"),
        (_document(expires="2027-02-30T00:00:00Z"), r"\$.expires: expected a UTC time"),
        (_document(bind_not_after_at_load=1), r"\$.bind_not_after_at_load: expected true or false"),
        (_document(keys={}), r"\$.keys: expected a list"),
        (_document(key={"extra": 1}), r"\$.keys\[0\]: unknown field 'extra'"),
        (_document(key={"file": "x"}), r"\$.keys\[0\]: expected either 'file' or 'pem'"),
        (_document(key={"key_id": "A" * 64}), r"\$.keys\[0\].key_id: expected 64"),
        (_document(key={"key_id": "0" * 64}), r"\$.keys\[0\].key_id: expected " + KEY_ID),
        (_document(key={"pem": "junk"}), r"\$.keys\[0\].pem: .*got no PEM"),
        (_document(key={"pem": 5}), r"\$.keys\[0\].pem"),
        (_document(key={"not_after": "2025-01-01T00:00:00Z"}), r"\$.keys\[0\].not_after"),
        (_document(keys=_document()["keys"] * 2), r"\$.keys\[1\]: .* occurs twice"),
        (_document(streams=_document()["streams"] * 2), r"\$.streams\[1\]: a/b/c occurs twice"),
        (_document(rule={"threshold": 0}), r"\$.streams\[0\].threshold: expected an integer"),
        (_document(rule={"threshold": 2}), r"\$.streams\[0\].threshold: 2 signatures, but 1 keys"),
        (
            _document(rule={"threshold": 2, "key_ids": [KEY_ID] * 2}),
            r"key_ids: expected each entry once",
        ),
        (_document(rule={"key_ids": ["0" * 64]}), r"\$.streams\[0\].key_ids: 0+ is not in keys"),
        (_document(rule={"stream": "a/b"}), r"\$.streams\[0\].stream"),
        (_document(revoked_key_ids=["x"]), r"\$.revoked_key_ids\[0\]"),
        (_document(revoked_payload_digests="x"), r"\$.revoked_payload_digests: expected a list"),
        ("[]", r"\$: expected an object"),
        ("{", "not JSON"),
        ('\ufeff{"version":1}', "not JSON"),
        ('{"version":1.0}', "number 1.0 is not an integer"),
        ('{"version":NaN}', "number NaN is not an integer"),
        ("[" * 100_000, "not JSON"),
        ('{"keys":[{"a":1,"a":2}]}', r"\$.keys\[0\]: key 'a' occurs twice"),
    ],
)
def test_malformed_document_is_refused_with_its_place(folder, document, message):
    with pytest.raises(TrustStoreError, match=message):
        load_trust_store(_write(folder, document))


def test_key_in_a_file_is_read(folder):
    document = _document()
    document["keys"][0]["file"] = "k.pem"
    del document["keys"][0]["pem"]
    (folder / "k.pem").write_text(PEM)
    (folder / "k.pem").chmod(0o644)
    assert load_trust_store(_write(folder, document)).keys[0].key_id == KEY_ID
    (folder / "k.pem").chmod(0o666)
    with pytest.raises(TrustStoreError, match=r"k.pem: group or others"):
        load_trust_store(folder)


@pytest.mark.parametrize("name", ["../k.pem", "/etc/passwd", "..", "a/b"])
def test_key_file_outside_the_folder_is_refused(folder, name):
    document = _document()
    document["keys"][0]["file"] = name
    del document["keys"][0]["pem"]
    with pytest.raises(TrustStoreError, match="in the same folder"):
        load_trust_store(_write(folder, document))


@pytest.mark.parametrize(("mode", "fine"), [
    (0o755, True), (0o700, True), (0o555, True), (0o1777, True), (0o1775, True),
    (0o775, False), (0o757, False), (0o777, False),
])  # fmt: skip
def test_mode_of_the_folder(folder, mode, fine):
    _write(folder, _document())
    folder.chmod(mode)
    if fine:
        assert load_trust_store(folder)
    else:
        with pytest.raises(
            TrustStoreError, match=f"group or others may write to it, mode {mode:04o}"
        ):
            load_trust_store(folder)


@pytest.mark.parametrize(
    ("mode", "fine"), [(0o644, True), (0o400, True), (0o664, False), (0o646, False)]
)
def test_mode_of_the_file(folder, mode, fine):
    _write(folder, _document())
    (folder / "trust.json").chmod(mode)
    if fine:
        assert load_trust_store(folder)
    else:
        with pytest.raises(TrustStoreError, match="group or others may write to it"):
            load_trust_store(folder)


def test_writable_store_on_a_read_only_mount_is_fine(folder, monkeypatch):
    _write(folder, _document())
    (folder / "trust.json").chmod(0o666)
    folder.chmod(0o777)
    real = os.fstatvfs

    class ReadOnly:
        def __init__(self, descriptor):
            self.f_flag = real(descriptor).f_flag | os.ST_RDONLY

    monkeypatch.setattr(os, "fstatvfs", ReadOnly)  # a test cannot mount
    assert load_trust_store(folder)


@pytest.mark.parametrize("what", [".", "trust.json"])
def test_store_of_another_owner_is_refused(folder, what, monkeypatch):
    _write(folder, _document())
    if os.geteuid() == 0:
        os.chown(folder / what, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(TrustStoreError, match="owned by user"):
        load_trust_store(folder)


def test_config_map_layout_is_read(tmp_path, folder):
    """Kubernetes mounts a folder whose files are symlinks through ``..data``."""
    (folder / "..2026").mkdir(mode=0o755)
    _write(folder / "..2026", _document())
    (folder / "..data").symlink_to("..2026")
    (folder / "trust.json").symlink_to("..data/trust.json")
    assert load_trust_store(folder)


@pytest.mark.parametrize("kind", ["missing", "folder", "fifo", "large"])
def test_trust_json_that_is_no_small_file_is_refused(folder, kind):
    path = folder / "trust.json"
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path, 0o600)
    elif kind == "large":
        path.write_bytes(b" " * (trust_files.MAX_TRUST_BYTES + 1))
        path.chmod(0o644)
    with pytest.raises(TrustStoreError):
        load_trust_store(folder)


def test_load_leaves_no_descriptor(folder):
    before = len(list(Path("/proc/self/fd").iterdir()))
    load_trust_store(_write(folder, _document()))
    folder.chmod(0o777)
    with pytest.raises(TrustStoreError):
        load_trust_store(folder)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_found_first_wins(tmp_path, folder, monkeypatch):
    named, system = tmp_path / "named", tmp_path / "system"
    named.mkdir()
    system.mkdir()
    monkeypatch.setattr(trust_files, "SYSTEM_TRUST_DIR", system)
    environ = {"RLTUNE_TRUST_DIR": str(named)}
    assert find_trust_store(folder, environ) == folder
    assert find_trust_store(None, environ) == named
    assert find_trust_store(None, {"RLTUNE_TRUST_DIR": ""}) == system
    assert find_trust_store(None, {}) == system
    assert find_trust_store(None, environ, privileged=True) == system
    monkeypatch.setattr(trust_files, "SYSTEM_TRUST_DIR", tmp_path / "nothing")
    assert find_trust_store(None, {}) is None


def test_named_store_that_is_missing_is_an_error_and_nothing_else_is_tried(tmp_path, monkeypatch):
    monkeypatch.setattr(trust_files, "SYSTEM_TRUST_DIR", tmp_path)
    with pytest.raises(TrustStoreError, match="RLTUNE_TRUST_DIR names it"):
        find_trust_store(None, {"RLTUNE_TRUST_DIR": str(tmp_path / "nothing")})
    with pytest.raises(TrustStoreError, match="the argument names it"):
        find_trust_store(tmp_path / "nothing", {})


def test_this_process_is_not_privileged():
    assert not running_privileged()


def test_files_written_are_open_to_nobody_elses_writing(tmp_path):
    old = os.umask(0)
    try:
        write_trust_store(tmp_path / "trust", make_trust([KEY]))
    finally:
        os.umask(old)
    for path in [tmp_path / "trust", *(tmp_path / "trust").iterdir()]:
        assert not stat.S_IMODE(path.stat().st_mode) & 0o022
