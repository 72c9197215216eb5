import json
import os
import socket
from datetime import UTC, datetime, timedelta

import pytest

from rltune.cli import verify as verify_module
from rltune.cli.main import main
from rltune.errors import CoverageError, StaleSourceError
from tests.support.bundles import damage, make_bundle, nothing_decided
from tests.support.cli import rltune


def _bundle(tmp_path, *, signed=True, now=None, **changes):
    predicate, body = nothing_decided(**changes)
    more = {} if now is None else {"now": now}
    return make_bundle(tmp_path, predicate=predicate, body=body, signed=signed, **more)


NOW = ["--now", "2026-12-01T09:30:00Z"]


def _verify(path, trust, *more):
    return main(["verify", str(path), "--trust-dir", str(trust), *NOW, *more])


def test_verified(tmp_path, capsys):
    path, trust, _ = _bundle(tmp_path)
    assert _verify(path, trust) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(f"{path}: verified")
    assert captured.err == ""


@pytest.mark.parametrize(("kind", "status"), [("unsigned", 10), ("altered", 11), ("garbage", 11)])
def test_refused(tmp_path, capsys, kind, status):
    path, trust, _ = _bundle(tmp_path, signed=kind != "unsigned")
    if kind == "altered":
        damage(path)
    elif kind == "garbage":
        path.write_bytes(b"garbage")
    assert _verify(path, trust) == status
    out = capsys.readouterr().out
    assert out.startswith(f"{path}: refused")
    assert "expected" in out
    assert "found" in out


def test_json(tmp_path, capsys):
    path, trust, _ = _bundle(tmp_path)
    assert _verify(path, trust, "--format", "json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["verdict"] == "verified"
    assert document["sequence"] == 1
    assert len(document["signer_key_ids"]) == 1


def test_json_of_a_refusal(tmp_path, capsys):
    path, trust, _ = _bundle(tmp_path, signed=False)
    assert _verify(path, trust, "--format", "json") == 10
    document = json.loads(capsys.readouterr().out)
    assert document["exit_status"] == 10
    assert document["findings"][0]["found"] == "no signature"


def test_present_time_is_used_without_now(tmp_path):
    now = datetime.now(UTC)
    path, trust, _ = _bundle(
        tmp_path, now=now, created=now - timedelta(days=9), not_after=now - timedelta(days=1)
    )
    arguments = ["verify", str(path), "--trust-dir", str(trust)]
    assert main(arguments) == 10
    earlier = (now - timedelta(days=2)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert main([*arguments, "--now", earlier]) == 0


@pytest.mark.parametrize("text", ["yesterday", "2026-12-01", "2026-13-01T00:00:00Z"])
def test_now_of_another_form_is_a_usage_error(tmp_path, text):
    path, trust, _ = _bundle(tmp_path)
    assert main(["verify", str(path), "--trust-dir", str(trust), "--now", text]) == 2


def test_missing_bundle_is_a_usage_error(tmp_path):
    assert _verify(tmp_path / "nothing.rltune", tmp_path) == 2


def test_missing_trust_store_is_a_trust_error(tmp_path, capsys):
    path, _, _ = _bundle(tmp_path)
    assert _verify(path, tmp_path / "nothing") == 10
    assert "RLT-TRUST-002" in capsys.readouterr().err


def test_needs_no_home_and_no_environment_and_writes_nothing(tmp_path):
    path, trust, _ = _bundle(tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    done = rltune("verify", path, "--trust-dir", trust, *NOW, cwd=empty)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert list(empty.iterdir()) == []


def test_trust_store_comes_from_the_environment_and_never_from_the_folder(tmp_path):
    path, trust, _ = _bundle(tmp_path)
    named = rltune("verify", path, *NOW, environ={"RLTUNE_TRUST_DIR": str(trust)})
    assert named.returncode == 0
    if not os.path.exists("/etc/rltune/trust"):  # noqa: PTH110 - a plain question
        assert rltune("verify", path, *NOW, cwd=tmp_path).returncode == 10


def test_opens_no_socket(tmp_path, monkeypatch):
    path, trust, _ = _bundle(tmp_path)

    def refuse(*_, **__):
        raise AssertionError("network")

    monkeypatch.setattr(socket, "socket", refuse)
    assert _verify(path, trust) == 0


def test_further_checks_decide_the_exit_status(tmp_path, monkeypatch, capsys):
    path, trust, _ = _bundle(tmp_path)

    def gap(bundle, predicate):
        raise CoverageError("toy: 3 cases missing")

    def stale(bundle, predicate):
        raise StaleSourceError("silu/forward: source differs")

    monkeypatch.setattr(verify_module, "checks", lambda *_: (gap, stale))
    assert _verify(path, trust) == 12
    out = capsys.readouterr().out
    assert out.index("source differs") < out.index("3 cases missing")
