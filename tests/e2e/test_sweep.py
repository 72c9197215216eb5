"""The whole pipeline on the interpreter: sweep, sign, verify, load, resume, tamper."""

import hashlib
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rltune.bundle.codec import BundleFile, build_body, write_unsigned
from rltune.bundle.decode_v1 import predicate_to_json
from rltune.bundle.evidence import decode_evidence
from rltune.bundle.keys import load_private_key
from rltune.bundle.signing import sign_bundle
from tests.support.cli import ROOT
from tests.support.sweeps import PRESET, Sweep, environment, rltune, run_tiny_sweep, sweep_command

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sweep(tmp_path_factory):
    return run_tiny_sweep(tmp_path_factory.mktemp("sweep"))


def predicate(path: Path):
    with BundleFile.open(path) as bundle:
        return bundle.decode_predicate()


def exports(sweep: Sweep) -> dict[str, str]:
    lines = [line.split("=", 1) for line in sweep.output.splitlines() if "export " in line]
    return {name.removeprefix("export "): value for name, value in lines}


def test_sweep_ends_with_verdict_table_and_two_exports(sweep):
    assert f"{sweep.bundle}: verified" in sweep.output
    assert "silu/forward" in sweep.output
    assert set(exports(sweep)) == {"RLTUNE_BUNDLE_PATH", "RLTUNE_TRUST_DIR"}


def test_bundle_is_of_the_interpreter_and_ships_the_baseline_program(sweep):
    found = predicate(sweep.bundle)
    assert found.target.kind == "interpreter"
    (decision,) = found.decisions
    assert decision.baseline.program in {program.digest for program in found.programs}
    with BundleFile.open(sweep.bundle) as bundle:
        for blob in found.blobs:
            if blob.role == "program":
                assert bundle.read_blob(blob).startswith(b"\x7fELF")


def test_evidence_names_inputs_digests_and_samples(sweep):
    found = predicate(sweep.bundle)
    with BundleFile.open(sweep.bundle) as bundle:
        blob = next(blob for blob in found.blobs if blob.role == "evidence")
        evidence: Any = decode_evidence(bundle.read_blob(blob))
    (part,) = evidence["parts"]
    assert {case["case"] for case in part["cases"]} == {
        f"tokens={tokens},seed=1,{name}" for tokens in (1, 3) for name in ("normal", "nans")
    }
    assert all(len(case["digests"]["y_ptr"]) == 64 for case in part["cases"])
    assert any(row["outcome"] == "qualified" and row["rows"] > 0 for row in part["candidates"])
    assert sum(name.startswith("confirm ") for name in part["samples_ps"]) == 10


JOB = """
import json, torch
import rltune_kernels, rltune.runtime
from rltune_kernels.silu import silu
x = torch.randn(2, 2048, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
y = silu(x)
status = rltune.runtime.status().to_json()
print(json.dumps({"bytes": y.view(torch.int16).tolist(), "status": status}))
"""


def job(**variables: str):
    done = subprocess.run(
        [sys.executable, "-c", JOB],
        env=environment(TRITON_INTERPRET="1", **variables),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_new_process_loads_what_the_exports_name_and_computes_the_same_bytes(sweep):
    tuned = job(**exports(sweep))
    fixed = job(RLTUNE_MODE="off")
    assert tuned["bytes"] == fixed["bytes"]
    text = json.dumps(tuned["status"])
    assert str(sweep.bundle.resolve()) in text


def test_complete_journal_repeats_nothing_and_decides_the_same(sweep, tmp_path):
    copy = copy_of(sweep, tmp_path)
    before = copy.journal.read_bytes()
    again = run_tiny_sweep(tmp_path, "--resume")
    assert again.journal.read_bytes() == before
    assert decisions(again.bundle) == decisions(sweep.bundle)


@pytest.mark.parametrize("stage", ["qualify", "screen", "edge"])
def test_any_prefix_is_resumed_without_repeating_a_finished_item(sweep, tmp_path, stage):
    lines = sweep.journal.read_bytes().splitlines(keepends=True)
    kinds = [json.loads(line)["kind"] for line in lines]
    # a machine too busy to confirm a gain selects nothing, and then no range has an edge
    first = kinds.index(stage) if stage in kinds else len(lines) - 1
    assert stage in kinds or stage == "edge"
    copy = copy_of(sweep, tmp_path)
    prefix = b"".join(lines[: first + 1])
    copy.journal.write_bytes(prefix + b'{"torn')
    resumed = run_tiny_sweep(tmp_path, "--resume")
    assert resumed.journal.read_bytes().startswith(prefix)
    keys = [(record["kind"], record["key"]) for record in resumed.records()]
    assert len(keys) == len(set(keys))


def copy_of(sweep: Sweep, folder: Path) -> Sweep:
    shutil.copytree(sweep.folder, folder, dirs_exist_ok=True)
    return replace(sweep, folder=folder, bundle=folder / "tiny.rltune")


def decisions(path: Path):
    return predicate_to_json(predicate(path))["decisions"]


def test_journal_of_another_plan_is_refused(sweep, tmp_path):
    copy = copy_of(sweep, tmp_path)
    lines = copy.journal.read_bytes().splitlines(keepends=True)
    copy.journal.write_bytes(b"".join(lines[1:]))
    done = sweep_command(tmp_path, "--resume")
    assert done.returncode == 11
    assert "journal.jsonl" in done.stderr


@pytest.fixture
def kernels(tmp_path):
    """A copy of the installed kernels that a test may edit."""
    root = tmp_path / "kernels"
    shutil.copytree(
        ROOT / "kernels", root, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True
    )
    return root


def verify(sweep_or_path, trust: Path, *options: object, kernels: Path | None = None):
    path = getattr(sweep_or_path, "bundle", sweep_or_path)
    roots = [kernels] if kernels else []
    return rltune("verify", path, "--trust-dir", trust, *options, env=environment(*roots))


def edit(root: Path, file: str, old: str, new: str) -> None:
    path = root / "rltune_kernels" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def test_verify_rebuilds_every_program(sweep):
    done = verify(sweep, sweep.trust, "--rebuild")
    assert done.returncode == 0, done.stderr


def test_rebuild_with_a_toolchain_that_is_none_exits_3(sweep):
    done = verify(sweep, sweep.trust, "--rebuild", "--toolchain", "/bin/true")
    assert done.returncode == 3
    assert "/bin/true" in done.stderr


def test_coverage_is_judged_against_the_preset_that_is_named(sweep, tmp_path):
    same, wider = tmp_path / "tiny.toml", tmp_path / "wider.toml"
    same.write_text(PRESET)
    wider.write_text(PRESET.replace("intermediate_size = 2048", "intermediate_size = 4096"))
    assert verify(sweep, sweep.trust, "--preset", same).returncode == 0
    done = verify(sweep, sweep.trust, "--preset", wider)
    assert done.returncode == 14
    assert "intermediate_size=4096" in done.stdout
    missing = verify(sweep, sweep.trust, "--preset", tmp_path / "missing.toml")
    assert missing.returncode == 2
    assert "missing.toml" in missing.stderr


@pytest.mark.parametrize(
    ("file", "old", "new", "status"),
    [
        ("silu/kernel.py", "b_x * b_sigmoid * b_scale", "b_sigmoid * b_x * b_scale", 12),
        (
            "_math.py",
            "def flat_step(i_step, elements,",
            "def flat_step(i_step: tl.int32, elements,",
            12,
        ),
        ("_flat.py", "ceil_div(elements, span), 1, 1", "ceil_div(elements, span), 1, 2", 12),
        ("_flat.py", '"N": axes["intermediate_size"]', '"N": 2 * axes["intermediate_size"]', 12),
        (
            "silu/spec.py",
            'Tensor(name="x_ptr", axes=_AXES),\n        Tensor(name="y_ptr", axes=_AXES, role="out")',
            'Tensor(name="y_ptr", axes=_AXES, role="out"),\n        Tensor(name="x_ptr", axes=_AXES)',
            12,
        ),
        ("_flat.py", "num_warps=4)", "num_warps=8)", 12),  # another baseline
        ("silu/reference.py", "import", "\nimport", 0),
        ("swiglu/kernel.py", "b_up", "b_other", 0),  # another operator than the bundle's
    ],
)
def test_edited_source_exits_12_only_if_it_decides_the_numbers(
    sweep, kernels, file, old, new, status
):
    edit(kernels, file, old, new)
    done = verify(sweep, sweep.trust, kernels=kernels)
    assert done.returncode == status, done.stdout + done.stderr


def test_edited_comment_exits_0(sweep, kernels):
    path = kernels / "rltune_kernels" / "silu" / "kernel.py"
    path.write_text("# another comment\n\n" + path.read_text() + "\n# and one more\n")
    done = verify(sweep, sweep.trust, "--rebuild", kernels=kernels)
    assert done.returncode == 0, done.stdout + done.stderr


def test_swapped_program_re_signed_exits_15(sweep, tmp_path):
    """Another valid program under a new, trusted signature: only a rebuild can tell."""
    found = predicate(sweep.bundle)
    (decision,) = found.decisions
    other = compile_other(sweep, decision.baseline.program)
    path = tmp_path / "swapped.rltune"
    write_swapped(sweep.bundle, path, decision.baseline.program, other)
    sign_bundle(path, load_private_key(sweep.key, None))
    assert verify(path, sweep.trust).returncode == 0
    done = verify(path, sweep.trust, "--rebuild")
    assert done.returncode == 15, done.stdout + done.stderr


def compile_other(sweep: Sweep, digest: str) -> bytes:
    """Another program of the sweep's own store."""
    paths = sorted((sweep.journal.parent / "programs").glob("*.cubin"))
    shipped = {program.digest for program in predicate(sweep.bundle).programs}
    return next(path.read_bytes() for path in paths if path.stem not in shipped | {digest})


def write_swapped(source: Path, path: Path, old_digest: str, binary: bytes) -> None:
    """The same bundle with one program's bytes replaced, and every digest made to fit."""
    new_digest = hashlib.sha256(binary).hexdigest()
    with BundleFile.open(source) as bundle:
        found = bundle.decode_predicate()
        contents = {blob.id: bundle.read_blob(blob) for blob in found.blobs}
    programs = tuple(
        sorted(
            (
                replace(program, digest=new_digest) if program.digest == old_digest else program
                for program in found.programs
            ),
            key=lambda program: program.digest,
        )
    )
    for program in programs:
        if program.digest == new_digest:
            contents[program.blob] = binary
    index, body = build_body([(blob.id, blob.role, contents[blob.id]) for blob in found.blobs])

    def swapped(launch):
        return replace(launch, program=new_digest) if launch.program == old_digest else launch

    altered = tuple(
        replace(
            decision,
            baseline=swapped(decision.baseline),
            ranges=tuple(replace(item, launch=swapped(item.launch)) for item in decision.ranges),
        )
        for decision in found.decisions
    )
    write_unsigned(
        path,
        replace(found, programs=programs, blobs=index, body_size=len(body), decisions=altered),
        body,
    )
