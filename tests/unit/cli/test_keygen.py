import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor

import pytest

from rltune.bundle.signing import decode_public_key, is_encrypted, key_id, load_private_key
from rltune.bundle.trust import load_trust_store
from rltune.cli.main import main
from tests.support.cli import rltune


def _keygen(tmp_path, *more, name="key.pem"):
    return main(["keygen", "--key", str(tmp_path / name), *map(str, more)])


def test_makes_key_public_key_and_trust_store(tmp_path, capsys):
    trust = tmp_path / "trust"
    assert _keygen(tmp_path, "--trust-dir", trust, "--stream", "rltune/dev/dev") == 0
    key = load_private_key(tmp_path / "key.pem", None)
    assert stat.S_IMODE((tmp_path / "key.pem").stat().st_mode) == 0o600
    public = decode_public_key((tmp_path / "key.pub.pem").read_bytes(), "public")
    assert public == key.public_key()
    captured = capsys.readouterr()
    assert captured.out == f"{key_id(public)}\n"
    assert "stream rltune/dev/dev" in captured.err
    store = load_trust_store(trust)
    rule = store.stream("rltune/dev/dev")
    assert rule is not None
    assert rule.key_ids == (key_id(public),)
    assert (rule.threshold, rule.min_sequence) == (1, 0)


def test_a_second_key_joins_the_store(tmp_path):
    trust = tmp_path / "trust"
    for name, stream in [("a.pem", "a/b/c"), ("b.pem", "a/b/c"), ("c.pem", "x/y/z")]:
        assert _keygen(tmp_path, "--trust-dir", trust, "--stream", stream, name=name) == 0
    store = load_trust_store(trust)
    assert len(store.keys) == 3
    assert [len(rule.key_ids) for rule in store.streams] == [2, 1]


def test_keys_made_at_once_all_join_the_store(tmp_path):
    trust = tmp_path / "trust"

    def make(index):
        options = ("--trust-dir", trust, "--stream", "a/b/c")
        return rltune("keygen", "--key", tmp_path / f"{index}.pem", *options).returncode

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(make, range(6))) == [0] * 6
    rule = load_trust_store(trust).stream("a/b/c")
    assert rule is not None
    assert len(rule.key_ids) == 6
    assert not list(trust.glob(".*"))


def test_existing_key_is_kept(tmp_path, capsys):
    assert _keygen(tmp_path) == 0
    before = (tmp_path / "key.pem").read_bytes()
    (tmp_path / "key.pub.pem").unlink()
    assert _keygen(tmp_path) == 10
    assert "exists" in capsys.readouterr().err
    assert (tmp_path / "key.pem").read_bytes() == before


@pytest.mark.parametrize(
    "more",
    [["--stream", "a/b/c"], ["--trust-dir", "t"], ["--trust-dir", "t", "--stream", "A b"]],
)
def test_half_a_trust_store_is_a_usage_error(tmp_path, monkeypatch, more):
    monkeypatch.chdir(tmp_path)
    assert _keygen(tmp_path, *more) == 2
    assert list(tmp_path.iterdir()) == []


def test_store_that_others_may_write_costs_no_key(tmp_path):
    trust = tmp_path / "trust"
    assert _keygen(tmp_path, "--trust-dir", trust, "--stream", "a/b/c") == 0
    trust.chmod(0o777)
    assert _keygen(tmp_path, "--trust-dir", trust, "--stream", "a/b/c", name="b.pem") == 10
    assert not (tmp_path / "b.pem").exists()


def test_passphrase_comes_by_descriptor(tmp_path):
    reader, writer = os.pipe()
    os.write(writer, b"secret\n")
    os.close(writer)
    done = rltune(
        "keygen", "--key", tmp_path / "key.pem", "--passphrase-fd", reader, pass_fds=[reader]
    )
    os.close(reader)
    assert done.returncode == 0, done.stderr
    assert is_encrypted(tmp_path / "key.pem")
    assert load_private_key(tmp_path / "key.pem", b"secret")


def test_without_a_terminal_no_passphrase_is_asked_for(tmp_path):
    done = rltune("keygen", "--key", tmp_path / "key.pem", "--encrypt")
    assert done.returncode == 2
    assert "--passphrase-fd" in done.stderr
    assert not (tmp_path / "key.pem").exists()


def test_passphrase_is_no_argument():
    done = rltune("keygen", "--help")
    assert not re.search(r"--passphrase\b(?!-fd)", done.stdout)
