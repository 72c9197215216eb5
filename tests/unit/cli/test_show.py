import json

import pytest

from rltune.bundle.decode_v1 import predicate_from_json
from rltune.cli.main import main
from tests.support.bundles import make_bundle, make_predicate
from tests.support.cli import rltune


def test_shows_selections(tmp_path, capsys):
    path, trust, _ = make_bundle(tmp_path)
    assert main(["show", str(path), "--trust-dir", str(trust)]) == 0
    out = capsys.readouterr().out
    rows = [line.split() for line in out.splitlines() if line.startswith("silu/forward")]
    assert rows[0][:4] == ["silu/forward", "bf16,hidden_size=4096", "1-64", "BLOCK=512,w2,s1"]
    assert rows[1][2:] == ["other", "baseline", "BLOCK=1024,w4,s1"]
    assert "7 of 9 token counts faster" in out
    assert "NVIDIA H200" in out


def test_says_loudly_what_is_not_verified(tmp_path, capsys):
    path, trust, _ = make_bundle(tmp_path, signed=False)
    assert main(["show", str(path), "--trust-dir", str(trust)]) == 0
    captured = capsys.readouterr()
    assert "NOT VERIFIED" in captured.err
    assert "no signature" in captured.err
    assert "NOT VERIFIED" not in captured.out


def test_says_nothing_of_the_kind_about_a_verified_one(tmp_path, monkeypatch):
    from datetime import UTC, datetime

    now = datetime.now(UTC)
    path, trust, _ = make_bundle(
        tmp_path, predicate=make_predicate(not_after=now.replace(year=now.year + 1, day=1)), now=now
    )
    done = rltune("show", path, environ={"RLTUNE_TRUST_DIR": str(trust)})
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.parametrize("signed", [True, False])
def test_json_holds_everything(tmp_path, capsys, signed):
    path, trust, _ = make_bundle(tmp_path, signed=signed)
    assert main(["show", str(path), "--format", "json", "--trust-dir", str(trust)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert predicate_from_json(document["predicate"], "p") == make_predicate()
    assert len(document["claimed_key_ids"]) == signed
    if not signed:
        assert document["verified"] is False
        assert "no signature" in document["not_verified_because"]


def test_without_a_trust_store_it_is_not_verified(tmp_path, capsys):
    path, _, _ = make_bundle(tmp_path)
    assert main(["show", str(path), "--trust-dir", str(tmp_path / "nothing")]) == 0
    assert "NOT VERIFIED" in capsys.readouterr().err


def test_garbage_is_refused(tmp_path, capsys):
    path = tmp_path / "b.rltune"
    path.write_bytes(b"garbage\n")
    assert main(["show", str(path)]) == 11
    assert capsys.readouterr().out == ""
