"""``rltune presets``: the list, the layout of one, and counts of distinct programs."""

import json
import re
import shutil
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from rltune.bundle.codec import BundleFile
from rltune.bundle.fields import parse_time
from rltune.cli import presets as command
from rltune.cli.main import main
from rltune.core.shapes import ShapeKey
from rltune.sweep.preset import built_in_presets
from tests.support.bundles import (
    CANDIDATE,
    NOW,
    PROGRAMS,
    body_blobs,
    damage,
    make_bundle,
    make_decision,
    make_predicate,
)
from tests.support.cli import ROOT, rltune
from tools.performance_table import read_evidence

BUNDLES = sorted((ROOT / "artifacts").glob("nvidia-h200/*.rltune"))
each_bundle = pytest.mark.parametrize("path", BUNDLES, ids=lambda path: path.stem)

PRESET = """
format = "rltune-preset/1"
name = "narrow"
summary = "two widths of one kernel"
source = "tests"

[[qualification]]
operator = "silu"
kernels = ["forward"]
dtypes = ["bf16"]
axes = { intermediate_size = 40 }
num_tokens = [1, 3]
seeds = [1]
generators = ["normal"]

[[qualification]]
operator = "silu"
kernels = ["forward"]
dtypes = ["bf16"]
axes = { intermediate_size = 48 }
num_tokens = [1]
seeds = [1]
generators = ["normal"]

[[measurement]]
operator = "silu"
label = "small"
dtypes = ["bf16"]
axes = { intermediate_size = 40 }
num_tokens = [1]
"""
KEY = ShapeKey.of("bf16", {"intermediate_size": 40})
OUTCOMES = (
    *("qualified", "qualified", "same program", "compile failed"),
    *("reduction order", "scratch", "bytes", "died"),
)


def test_list_names_each_preset_with_its_summary():
    done = rltune("presets")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["preset", "summary"]
    for name in ("qwen3-8b", "smoke"):
        assert any(line.startswith(f"{name} ") for line in lines)


def test_json_has_numbers_as_numbers():
    rows = json.loads(rltune("presets", "qwen3-8b", "--format", "json").stdout)
    assert len({(row["kernel"], row["key"]) for row in rows}) == len(rows) > 20
    for row in rows:
        assert list(row) == ["kernel", "key", "candidates", "qualification", "measurement"]
        assert {type(row[name]) for name in list(row)[2:]} == {int}
        assert row["candidates"] > 0
        assert row["qualification"] > 0


@pytest.fixture
def narrow(tmp_path):
    path = tmp_path / "narrow.toml"
    path.write_text(PRESET)
    return path


def test_text_is_an_aligned_table(narrow):
    done = rltune("presets", narrow)
    head, *lines = done.stdout.splitlines()
    assert head.split() == ["kernel", "key", "candidates", "qualification", "measurement"]
    assert [line.split()[:2] + line.split()[3:] for line in lines] == [
        ["silu/forward", "bf16,intermediate_size=40", "2", "1"],
        ["silu/forward", "bf16,intermediate_size=48", "1", "0"],
    ]
    assert {line.index("bf16") for line in lines} == {head.index("key")}
    assert {len(line.rstrip()) for line in (head, *lines)} == {len(head.rstrip())}


@pytest.mark.parametrize(
    "arguments",
    [
        ["smoke", "--bundle", "b.rltune", "--compile"],
        ["--bundle", "b.rltune"],
        ["--compile"],
        ["smoke", "--trust-dir", "trust"],
        ["smoke", "--compile", "--trust-dir", "trust"],
        ["smoke", "--bundle", "no-such-file.rltune", "--trust-dir", "trust"],
        ["no-such-preset", "--compile"],
    ],
)
def test_contradictions_are_usage_errors(arguments, capsys):
    assert main(["presets", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")


@pytest.fixture
def at(monkeypatch):
    """Sets the present instant of the command, so that no bundle expires."""
    monkeypatch.setenv("RLTUNE_MODE", "off")
    return lambda moment: monkeypatch.setattr(command, "read_instant", lambda _: moment)


def counted_bundle(tmp_path, *, key=KEY, outcomes=OUTCOMES, decided=False, **options):
    """A bundle whose evidence says of one candidate each what ``outcomes`` lists."""
    rows = [
        {"candidate_id": CANDIDATE.candidate_id if index == 0 else f"c{index}", "outcome": outcome}
        for index, outcome in enumerate(outcomes)
    ]
    evidence = {"parts": [{"kernel": "silu/forward", "key": key.to_json(), "candidates": rows}]}
    decision = replace(make_decision(), key=key)
    blobs, body = body_blobs(programs=PROGRAMS if decided else (), evidence=evidence)
    predicate = make_predicate(blobs=blobs, decisions=(decision,) if decided else ())
    return make_bundle(tmp_path, predicate=predicate, body=body, **options)


def count(capsys, preset, path, trust, *options):
    words = ["presets", str(preset), "--bundle", str(path), "--trust-dir", str(trust)]
    status = main([*words, *options])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_bundle_counts_distinct_and_qualified_programs(tmp_path, narrow, capsys, at):
    at(NOW)
    path, trust, _ = counted_bundle(tmp_path)
    status, out, _ = count(capsys, narrow, path, trust, "--format", "json")
    assert status == 0
    known, lacking = json.loads(out)
    # baseline and eight candidates, less one equal to another and one that did not compile
    assert (known["programs"], known["qualified"]) == (7, 3)
    assert (lacking["programs"], lacking["qualified"]) == (None, None)


def test_text_has_a_dash_where_the_bundle_lacks_a_key(tmp_path, narrow, capsys, at):
    at(NOW)
    path, trust, _ = counted_bundle(tmp_path)
    _, out, _ = count(capsys, narrow, path, trust)
    head, known, lacking = (line.split()[-2:] for line in out.splitlines())
    assert (head, known, lacking) == (["programs", "qualified"], ["7", "3"], ["-", "-"])


def test_bundle_without_a_common_key_is_one_error(tmp_path, narrow, capsys, at):
    at(NOW)
    path, trust, _ = counted_bundle(tmp_path, key=ShapeKey.of("fp16", {"intermediate_size": 40}))
    status, out, err = count(capsys, narrow, path, trust)
    assert (status, out) == (14, "")
    assert "preset narrow" in err
    assert "made for preset toy" in err


@pytest.mark.parametrize(("kind", "status"), [("unsigned", 10), ("altered", 11), ("late", 10)])
def test_bundle_that_does_not_verify_is_refused(tmp_path, narrow, capsys, at, kind, status):
    at(datetime(2027, 11, 1, tzinfo=UTC) if kind == "late" else NOW)
    path, trust, _ = counted_bundle(tmp_path, signed=kind != "unsigned")
    if kind == "altered":
        damage(path)
    found, out, err = count(capsys, narrow, path, trust)
    assert (found, out) == (status, "")
    assert err.startswith(f"{path}: refused")


def test_bundle_needs_a_trust_store(tmp_path, narrow, capsys):
    path, _, _ = counted_bundle(tmp_path)
    status, out, err = count(capsys, narrow, path, tmp_path / "nothing")
    assert (status, out) == (10, "")
    assert "RLT-TRUST-002" in err


def test_decision_whose_candidate_did_not_qualify_is_refused(tmp_path, narrow, capsys, at):
    at(NOW)
    path, trust, _ = counted_bundle(tmp_path, outcomes=("bytes",), decided=True)
    status, out, err = count(capsys, narrow, path, trust)
    assert (status, out) == (11, "")
    assert CANDIDATE.candidate_id in err


def test_says_which_counts_are_not_of_what_is_installed(tmp_path, narrow, capsys, at):
    at(NOW)
    path, trust, _ = counted_bundle(tmp_path, outcomes=("qualified",), decided=True)
    status, out, err = count(capsys, narrow, path, trust)
    assert status == 0
    assert out.splitlines()[1].split()[-2:] == ["2", "2"]
    assert "another source than is installed here: silu/forward" in err
    assert "other candidates than preset narrow lays out here: silu/forward" in err


@pytest.fixture
def trust(tmp_path):
    """The committed trust store, with the modes a wide umask may have taken from the checkout."""
    folder = tmp_path / "committed-trust"
    shutil.copytree(ROOT / "artifacts" / "trust", folder)
    folder.chmod(0o755)
    for path in folder.iterdir():
        path.chmod(0o644)
    return folder


def test_there_is_a_committed_bundle():
    assert BUNDLES


@each_bundle
def test_counts_of_a_committed_bundle_are_those_of_its_evidence(path, trust, capsys, at):
    with BundleFile.open(path) as bundle:
        predicate = bundle.decode_predicate()
    at(parse_time(predicate.created))
    status, out, _ = count(capsys, predicate.provenance.preset, path, trust, "--format", "json")
    assert status == 0
    rows = {(row["kernel"], row["key"]): row for row in json.loads(out)}
    seen = 0
    for part in read_evidence(path)["parts"]:
        outcomes = [row["outcome"] for row in part["candidates"]]
        row = rows.get((part["kernel"], str(ShapeKey.from_json(part["key"], "key"))))
        if row is None:
            continue
        seen += 1
        assert row["qualified"] == 1 + outcomes.count("qualified")
        assert row["qualified"] <= row["programs"] <= len(outcomes) + 1
        if part["kernel"] == "rms_norm/forward" and part["key"]["axes"] == {"hidden_size": 128}:
            assert row["qualified"] > 1
    assert seen == sum(row["programs"] is not None for row in rows.values()) > 0


@pytest.fixture
def fewer(tmp_path):
    """Preset smoke with one candidate a kernel and key."""
    text = built_in_presets()["smoke"].read_text()
    path = tmp_path / "fewer.toml"
    path.write_text(re.sub(r"^candidates = \d+$", "candidates = 1", text, flags=re.MULTILINE))
    return path


def test_compiling_counts_distinct_programs_without_a_gpu(fewer, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    done = rltune("presets", fewer, "--compile", "--format", "json", cwd=empty)
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert len(rows) > 10
    for row in rows:
        assert row["candidates"] == 1
        assert 1 <= row["same_order"] <= row["programs"] <= row["candidates"] + 1
        assert row["qualified"] is None
    launches = sum(row["candidates"] + 1 for row in rows)
    assert "cuda sm_90" in done.stderr
    assert f"compile: {launches}/{launches} in " in done.stderr
    assert list(empty.iterdir()) == []
