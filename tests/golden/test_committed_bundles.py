"""The committed bundles: signatures, structure, and programs rebuilt from their sources."""

import lzma
import os
import random
import shutil
import subprocess
import sys
import tarfile
from datetime import datetime
from pathlib import Path

import pytest

from rltune.bundle.codec import BundleFile
from rltune.bundle.fields import parse_time
from rltune.bundle.keys import generate_key
from rltune.bundle.trust import load_trust_store
from rltune.bundle.verify import Refused, Verified, verify_bundle
from tests.support.bundles import make_trust
from tests.support.cli import ROOT
from tests.support.sweeps import environment, rltune
from tools import performance_table

ASSETS = Path(__file__).parent / "assets"
BUNDLES = sorted((ROOT / "artifacts").glob("*/*.rltune"))
each_bundle = pytest.mark.parametrize("bundle", BUNDLES, ids=lambda path: path.stem)


def created(bundle: Path) -> datetime:
    """A time at which the bundle was valid, so that this test does not expire with it."""
    with BundleFile.open(bundle) as opened:
        moment = parse_time(opened.decode_predicate().created)
    assert moment is not None
    return moment


@pytest.fixture(scope="module")
def trust(tmp_path_factory):
    """The committed trust store, with the modes a wide umask may have taken from the checkout."""
    folder = tmp_path_factory.mktemp("artifacts") / "trust"
    shutil.copytree(ROOT / "artifacts" / "trust", folder)
    folder.chmod(0o755)
    for path in folder.iterdir():
        path.chmod(0o644)
    return folder


def test_there_is_a_bundle_of_a_real_device():
    assert any(path.parent.name == "nvidia-h200" for path in BUNDLES)


def test_no_private_key_lies_beside_them():
    for path in (ROOT / "artifacts").rglob("*"):
        if path.is_file():
            assert b"PRIVATE KEY" not in path.read_bytes(), path


@each_bundle
def test_signature_structure_and_every_digest_hold(bundle, trust):
    verdict = verify_bundle(bundle, load_trust_store(trust), created(bundle))
    assert isinstance(verdict, Verified)
    assert not verdict.predicate.provenance.dirty


@each_bundle
def test_performance_page_has_the_table_of_its_evidence(bundle):
    text = (ROOT / "docs" / "performance.md").read_text()
    if bundle.name in text:
        assert performance_table.table(bundle) in text


def test_performance_page_names_a_committed_bundle():
    text = (ROOT / "docs" / "performance.md").read_text()
    assert any(path.name in text for path in BUNDLES)


@each_bundle
def test_any_flipped_bit_is_refused_without_a_traceback(bundle, trust, tmp_path):
    data = bundle.read_bytes()
    store, now = load_trust_store(trust), created(bundle)
    damaged = tmp_path / "damaged.rltune"
    chosen = random.Random(bundle.stem)
    bits = [*range(0, 96, 7), *(chosen.randrange(8 * len(data)) for _ in range(60))]
    for bit in bits:
        altered = bytearray(data)
        altered[bit // 8] ^= 1 << bit % 8
        damaged.write_bytes(altered)
        verdict = verify_bundle(damaged, store, now)
        assert isinstance(verdict, Refused), f"bit {bit}"
        assert verdict.exit_status in (10, 11), f"bit {bit}"


@each_bundle
def test_unknown_key_exits_10(bundle, tmp_path):
    key = generate_key(tmp_path / "other.pem", None)
    with BundleFile.open(bundle) as opened:
        stream = opened.decode_predicate().stream
    store = make_trust([key], stream=stream, now=created(bundle))
    verdict = verify_bundle(bundle, store, created(bundle))
    assert isinstance(verdict, Refused)
    assert verdict.exit_status == 10


def toolchain() -> str:
    """Python with the bundles' Triton: ``make test`` makes it and names it."""
    found = os.environ.get("RLTUNE_TOOLCHAIN", str(ROOT / ".venv-triton-3.6/bin/python"))
    assert Path(found).exists(), f"{found} does not exist; run make test"
    return found


@pytest.fixture
def sources(bundle, tmp_path):
    """The kernels the bundle was made from, in a folder of their own."""
    folder = tmp_path / "kernels"
    with tarfile.open(ASSETS / f"{bundle.stem}.sources.tar.gz") as archive:
        for member in archive:  # extractall has no safe filter before Python 3.11.4
            data = archive.extractfile(member)
            assert data is not None, member.name
            path = folder / member.name
            assert path.resolve().is_relative_to(folder.resolve())
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data.read())
    return folder


def verify(bundle: Path, trust: Path, sources: Path, *options: str):
    moment = created(bundle).strftime("%Y-%m-%dT%H:%M:%SZ")
    with BundleFile.open(bundle) as opened:
        name = opened.decode_predicate().provenance.preset
    preset = sources / "presets" / f"{name}.toml"
    words = ("verify", bundle, "--trust-dir", trust, "--now", moment, "--preset", preset, *options)
    return rltune(*words, env=environment(sources))


@pytest.mark.slow
@each_bundle
def test_every_program_is_rebuilt_from_its_own_sources(bundle, trust, sources):
    done = verify(bundle, trust, sources, "--rebuild", "--toolchain", toolchain())
    assert done.returncode == 0, done.stdout + done.stderr


@each_bundle
def test_rebuild_with_another_triton_says_which_one_is_needed(bundle, trust, sources):
    done = verify(bundle, trust, sources, "--rebuild")
    assert done.returncode == 3
    assert "expected Triton 3.6.0, which made the bundle" in done.stderr


def edit(folder: Path, file: str, old: str, new: str) -> None:
    path = folder / "rltune_kernels" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


@pytest.mark.parametrize(
    ("file", "old", "new", "status"),
    [
        ("rms_norm/kernel.py", "b_x * b_x", "b_x * b_x * 1.0", 12),
        ("rms_norm/kernel.py", "# [BLOCK_N]", "# [BLOCK_N], a comment", 0),
        ("rms_norm/candidates.py", "return ceil_div(", "return 1 * ceil_div(", 12),
        ("embedding/op.py", "launch(", "launch(  # a comment\n        ", 0),
    ],
)
@each_bundle
def test_edited_sources(bundle, trust, sources, file, old, new, status):
    edit(sources, file, old, new)
    done = verify(bundle, trust, sources)
    assert done.returncode == status, done.stdout + done.stderr


@each_bundle
def test_file_may_be_read_only_and_behind_a_symlink(bundle, trust, tmp_path):
    copy = tmp_path / "copy.rltune"
    shutil.copy(bundle, copy)
    copy.chmod(0o444)
    link = tmp_path / "link.rltune"
    link.symlink_to(copy)
    verdict = verify_bundle(link, load_trust_store(trust), created(bundle))
    assert isinstance(verdict, Verified)


REPLAY = """
import json, random, sys
from pathlib import Path
from rltune.bundle.codec import BundleFile
from rltune.bundle.decode_v1 import predicate_to_json
from rltune.sweep.decide import decide, missing_edges
from rltune.sweep.journal import read_records
from rltune.sweep.preset import load_preset
from rltune.sweep.run import make_plan
import rltune_kernels

bundle, journal, preset = map(Path, sys.argv[1:])
with BundleFile.open(bundle) as opened:
    predicate = opened.decode_predicate()
plan = make_plan(load_preset(str(preset)), rltune_kernels.operator_specs(), predicate.target)
assert plan.digest() == predicate.provenance.plan_digest, "another plan"
records = read_records(journal, plan.digest())
shuffled = list(records.items())
random.Random(1).shuffle(shuffled)

def made(records):
    decisions = decide(plan, records)
    assert not missing_edges(decisions, records)
    return {
        (item.part.kernel.kernel_id, str(item.part.key)): [
            [found.tokens.first, found.tokens.last, found.candidate_id] for found in item.ranges
        ]
        for item in decisions
    }

signed = {
    (item.kernel, str(item.key)): [
        [found.tokens.first, found.tokens.last, found.launch.candidate_id]
        for found in item.ranges
    ]
    for item in predicate.decisions
}
assert made(records) == signed, "the journal decides otherwise"
assert made(dict(shuffled)) == signed, "the order of the records decides"
print(len(records), "records replayed")
"""


@each_bundle
def test_recorded_journal_decides_what_was_signed_in_any_order(bundle, sources, tmp_path):
    journal = tmp_path / "journal.jsonl"
    journal.write_bytes(lzma.decompress((ASSETS / f"{bundle.stem}.journal.xz").read_bytes()))
    done = subprocess.run(
        [sys.executable, "-c", REPLAY, bundle, journal, sources / "presets" / "qwen3-8b.toml"],
        env=environment(sources, RLTUNE_MODE="off"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "records replayed" in done.stdout
