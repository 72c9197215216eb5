"""Launches end to end on the interpreter: real bundles, real kernels, fresh processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rltune.core.launch import LaunchConfig
from rltune.core.shapes import ShapeKey
from rltune_kernels.silu.spec import FORWARD
from tests.unit.runtime.conftest import STREAMS
from tests.unit.runtime.places import Choice, interpreter_target, write_bundle

pytest.importorskip("torch")
pytest.importorskip("numpy")

ROOT = Path(__file__).resolve().parents[3]
KEY = ShapeKey.of("fp32", {"intermediate_size": 64})
SELECTED = LaunchConfig.of(BLOCK=8192, STEPS=1, STAGES=1, num_warps=8)
CHOICE = Choice(kernel=FORWARD, key=KEY, ranges=((4, 40, SELECTED),))

HEAD = """
import json, os, sys, threading
import torch
import rltune_kernels
from rltune import runtime
from rltune.runtime import launcher, triton_launch
from rltune_kernels.silu import silu

grids = []
original = launcher.launch_triton
def recorded(kernel, grid, arguments, constexprs, launch_config, index):
    grids.append([constexprs["BLOCK"], grid[0]])
    return original(kernel, grid, arguments, constexprs, launch_config, index)
launcher.launch_triton = recorded

def call(tokens, width=64, dtype=torch.float32):
    x = torch.linspace(-8, 8, tokens * width).reshape(tokens, width).to(dtype)
    y = silu(x)
    expected = torch.nn.functional.silu(x.double())
    assert torch.allclose(y.double(), expected, rtol=1e-6, atol=1e-7), "wrong values"
    return y

def silu_status():
    return next(k for k in runtime.status().to_json()["kernels"] if k["kernel"] == "silu/forward")
"""


def run(script: str, environ: dict[str, str]) -> dict[str, Any]:
    keep = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", HEAD + script],
        env={
            **keep,
            "PYTHONPATH": f"{ROOT}:{ROOT / 'kernels'}",
            "TRITON_INTERPRET": "1",
            **environ,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    answer["stderr"] = done.stderr
    return answer


USE = """
call(16); call(2); call(41); call(16, width=32)
print(json.dumps({"grids": grids, "calls": runtime.status().to_json()["calls"], "silu": silu_status()}))
"""
BASELINE_GRIDS = [[1024, 1], [1024, 1], [1024, 3], [1024, 1]]


def test_selection_of_an_interpreter_bundle_is_launched_where_it_holds(place):
    write_bundle(place.bundles / "a.rltune", place.key, [CHOICE])
    answer = run(USE, place.environ(RLTUNE_MODE="strict"))
    assert answer["grids"] == [[8192, 1], *BASELINE_GRIDS[1:]]
    assert answer["calls"] == {"bound": 0, "triton_launched": 4, "compiled": 0}
    assert answer["silu"]["outcome"] == "hit"
    assert (answer["silu"]["device"], answer["silu"]["keys"]) == ("interpreter", 1)
    assert answer["stderr"] == ""


def test_selection_changes_no_byte(place):
    write_bundle(place.bundles / "a.rltune", place.key, [CHOICE])
    script = """
import hashlib
print(json.dumps({"digest": hashlib.sha256(call(16).numpy().tobytes()).hexdigest(), "grids": grids}))
"""
    tuned, fixed = (run(script, place.environ(RLTUNE_MODE=mode)) for mode in ("load", "off"))
    assert tuned["grids"] == [[8192, 1]]
    assert fixed["grids"] == [[1024, 1]]
    assert tuned["digest"] == fixed["digest"]


@pytest.mark.parametrize(
    ("how", "field"),
    [
        ("target", "triton"),
        ("source", "source_fingerprint"),
        ("gpu", "kind"),
    ],
)
def test_bundle_that_does_not_fit_leaves_the_fixed_launch_and_names_the_field(place, how, field):
    target, fingerprint = interpreter_target(), ""
    if how == "target":
        target = replace(target, triton="1.0")
    elif how == "gpu":
        target = replace(target, kind="cuda")
    else:
        fingerprint = "1" * 64
    path = place.bundles / "a.rltune"
    write_bundle(path, place.key, [CHOICE], target=target, fingerprint=fingerprint)
    answer = run(USE, place.environ())
    assert answer["grids"] == [[1024, 1], *BASELINE_GRIDS[1:]]
    assert answer["silu"]["outcome"] == "miss"
    (difference,) = answer["silu"]["differences"]
    assert difference["field"] == field
    assert difference["expected"] != difference["found"]
    assert str(path) in answer["silu"]["reason"]


def test_bundle_qualified_against_another_baseline_is_not_used(place):
    other = replace(
        FORWARD, baseline=lambda key: LaunchConfig.of(BLOCK=256, STEPS=1, STAGES=1, num_warps=1)
    )
    write_bundle(place.bundles / "a.rltune", place.key, [replace(CHOICE, kernel=other)])
    answer = run(USE, place.environ())
    assert answer["grids"][0] == [1024, 1]
    (difference,) = answer["silu"]["differences"]
    assert (difference["field"], difference["found"]) == (
        "baseline",
        "BLOCK=1024,STAGES=1,STEPS=1,w4,s1",
    )


def test_overlapping_streams_leave_the_fixed_launch(place):
    write_bundle(place.bundles / "a.rltune", place.key, [CHOICE])
    write_bundle(place.bundles / "b.rltune", place.key, [CHOICE], stream=STREAMS[1])
    answer = run(USE, place.environ())
    assert answer["grids"][0] == [1024, 1]
    assert "both decide silu/forward" in answer["silu"]["reason"]


def test_refused_bundle_leaves_the_fixed_launch_with_one_line(place):
    (place.bundles / "a.rltune").write_bytes(b"garbage\n")
    answer = run(USE, place.environ())
    assert answer["grids"] == BASELINE_GRIDS
    assert len(answer["stderr"].splitlines()) == 1
    assert "a.rltune" in answer["stderr"]


def test_stale_source_fails_a_strict_import(place):
    write_bundle(place.bundles / "a.rltune", place.key, [CHOICE], fingerprint="1" * 64)
    keep = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", "import rltune_kernels"],
        env={
            **keep,
            "PYTHONPATH": f"{ROOT}:{ROOT / 'kernels'}",
            **place.environ(RLTUNE_MODE="strict"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "StaleSourceError: silu/forward:" in done.stderr


def test_pin_is_launched_and_recorded(place):
    write_bundle(place.bundles / "a.rltune", place.key, [CHOICE])
    pin = "BLOCK=2048,STEPS=1,num_warps=8"
    script = "call(16)\nprint(json.dumps({'grids': grids, 'status': runtime.status().to_json(), 'silu': silu_status()}))"
    answer = run(script, place.environ(RLTUNE_PIN_SILU_FORWARD=pin))
    assert answer["grids"] == [[2048, 1]]
    assert answer["status"]["pins"] == {"RLTUNE_PIN_SILU_FORWARD": pin}
    assert answer["silu"]["pin"] == pin


@pytest.mark.parametrize(
    "pin", [{"RLTUNE_PIN_SILU_FORWARD": "BLOCK=64"}, {"RLTUNE_PIN_SILO": "BLOCK=64"}]
)
def test_pin_outside_the_space_is_an_error(place, pin):
    script = """
try:
    call(16)
except Exception as error:
    print(json.dumps({"error": type(error).__name__}))
"""
    if "RLTUNE_PIN_SILO" in pin:
        with pytest.raises(AssertionError, match="pins no registered kernel"):
            run(script, place.environ(**pin))
    else:
        assert run(script, place.environ(**pin))["error"] == "UsageError"


def test_threads_that_call_first_at_once_make_one_plan(place):
    write_bundle(place.bundles / "a.rltune", place.key, [CHOICE])
    script = """
from rltune.runtime.state import current
barrier = threading.Barrier(8)
failures = []
def work():
    barrier.wait()
    try:
        call(16)
    except BaseException as error:
        failures.append(repr(error))
threads = [threading.Thread(target=work) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(json.dumps({"failures": failures, "plans": len(current().plans), "grids": grids,
                  "calls": runtime.status().to_json()["calls"]["triton_launched"]}))
"""
    answer = run(script, place.environ())
    assert answer["failures"] == []
    assert (answer["plans"], answer["calls"], answer["grids"]) == (1, 8, [[8192, 1]] * 8)


def test_forked_child_forgets_bindings_and_still_launches(place):
    write_bundle(place.bundles / "a.rltune", place.key, [CHOICE])
    script = """
from rltune.runtime import triton_launch
from rltune.runtime.state import current
call(16)
current().programs[0, "digest"] = None
triton_launch._interpreter_lock.acquire()
current().lock.acquire()
read, write = os.pipe()
child = os.fork()
if child == 0:
    left = (len(current().plans), len(current().programs), len(current().devices))
    held = []
    def work():
        call(16)
        held.append(1)
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(20)
    os.write(write, json.dumps({"left": left, "launched": held, "grids": grids}).encode())
    os._exit(0)
os.waitpid(child, 0)
print(os.read(read, 9999).decode())
"""
    answer = run(script, place.environ())
    assert answer["left"] == [0, 0, 0]
    assert answer["launched"] == [1]
    assert answer["grids"] == [[8192, 1], [8192, 1]]


def test_explicit_config_is_launched_without_reading_a_bundle(place):
    (place.bundles / "a.rltune").write_bytes(b"garbage\n")
    script = """
from rltune.core.launch import LaunchConfig
from rltune.runtime.launcher import launch_with
from rltune_kernels.silu.spec import FORWARD
x = torch.linspace(-8, 8, 4 * 64).reshape(4, 64)
y = torch.empty_like(x)
axes = {"num_tokens": 4, "intermediate_size": 64}
config = LaunchConfig.of(BLOCK=256, STEPS=1, STAGES=1, num_warps=1)
launch_with(FORWARD, axes, "fp32", (x, y, 4), config, None)
print(json.dumps({"grids": grids, "close": torch.allclose(y, torch.nn.functional.silu(x))}))
"""
    answer = run(script, place.environ(RLTUNE_MODE="off"))
    assert (answer["grids"], answer["close"], answer["stderr"]) == ([[256, 1]], True, "")


def test_unused_device_status_names_what_the_bundle_wants(place):
    target = replace(interpreter_target(), kind="cuda")
    write_bundle(place.bundles / "a.rltune", place.key, [CHOICE])
    write_bundle(place.bundles / "b.rltune", place.key, [CHOICE], stream=STREAMS[1], target=target)
    answer = run("print(json.dumps({'silu': silu_status()}))", place.environ())
    assert answer["silu"]["outcome"] == "unknown"
    assert answer["silu"]["device"] == "no device used yet"
    assert "is for Triton interpreter" in answer["silu"]["reason"]
