"""Compile and measuring processes: what is reported when one fails or hangs."""

import sys

import pytest

from rltune.errors import EnvironmentUnfitError
from rltune.sweep.processes import Lost, WorkerProcess
from rltune.sweep.programs import CompilePool
from rltune.sweep.store import ProgramStore
from tests.support.cli import ROOT

SPECS = "rltune_kernels:operator_specs"
CASE = {
    "op": "qualify",
    "kernel": "silu/forward",
    "key": {"dtype": "bf16", "axes": {"intermediate_size": 64}},
    "tokens": 1,
    "seed": 1,
    "generator": "normal",
    "witness": False,
    "repeats": 2,
    "baseline": "fixed",
}


def launch(name, **knobs):
    knobs = {"BLOCK": 1024, "STEPS": 1, "STAGES": 1, **knobs}
    options = {"num_warps": 4, "num_stages": 1, "num_ctas": 1, "maxnreg": None}
    config = {"knobs": knobs, **options, "enable_fp_fusion": False}
    return {"id": name, "launch_config": config, "program": None}


@pytest.fixture
def worker(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT), str(ROOT / "kernels"), *sys.path])
    made = WorkerProcess(SPECS, "cpu")
    yield made
    made.close()


def test_launch_that_raises_is_named_and_the_next_request_starts_afresh(worker):
    broken = {**CASE, "launches": [launch("fixed"), launch("broken", BLOCK=1000)]}
    found = worker.request(broken, 120)
    assert isinstance(found, Lost)
    assert (found.cause, found.launch_id) == ("failed", "broken")
    again = worker.request({**CASE, "launches": [launch("fixed"), launch("two", BLOCK=512)]}, 120)
    assert again["status"] == "compared"
    assert again["outcomes"] == {"two": None}
    assert again["compared_bytes"] == 128


def test_silence_ends_the_process(worker):
    worker.start()
    found = worker.request({**CASE, "launches": [launch("fixed")]}, 0.001)
    assert isinstance(found, Lost)
    assert found.cause == "timed out"


def test_request_that_kills_the_process_is_reported_with_its_last_words(worker):
    found = worker.request({**CASE, "op": "no such request", "launches": []}, 120)
    assert isinstance(found, Lost)
    assert found.cause == "died"
    assert "no such request" in found.text


def test_specs_that_do_not_exist_are_an_environment_error():
    with pytest.raises(EnvironmentUnfitError, match="did not start"):
        WorkerProcess("no_such_module:specs", "cpu").start()


@pytest.mark.parametrize("python", ["/no/such/python", "/bin/false"])
def test_python_without_triton_is_named(python):
    with pytest.raises(EnvironmentUnfitError, match=python):
        CompilePool(python=python, size=1)


def test_store_keeps_an_intact_program_and_replaces_a_damaged_one(tmp_path):
    import hashlib

    store = ProgramStore(tmp_path / "programs")
    digest = hashlib.sha256(b"program").hexdigest()
    assert not store.intact(digest)
    store.add(digest, b"program")
    store.path(digest).write_bytes(b"damaged")
    assert not store.intact(digest)
    store.add(digest, b"program")
    assert store.read(digest) == b"program"
