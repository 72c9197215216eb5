"""``rltune explain``: one call, its launch config and the reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from rltune.core.launch import LaunchConfig
from rltune.core.shapes import ShapeKey
from rltune_kernels.silu.spec import FORWARD
from tests.unit.runtime.places import Choice, interpreter_target, write_bundle

ROOT = Path(__file__).resolve().parents[3]
KEY = ShapeKey.of("bf16", {"intermediate_size": 64})
SELECTED = LaunchConfig.of(BLOCK=8192, STEPS=1, STAGES=1, num_warps=8)
CHOICE = Choice(kernel=FORWARD, key=KEY, ranges=((4, 40, SELECTED),))
CALL = ["silu/forward", "--axis", "intermediate_size=64", "--device", "interpreter"]


def explain(place, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    script = (
        "import typer; from rltune.cli.explain import explain;"
        "app = typer.Typer(pretty_exceptions_enable=False); app.command()(explain); app()"
    )
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        env={
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{ROOT}:{ROOT / 'kernels'}",
            **place.environ(**environ),
        },
        capture_output=True,
        text=True,
        check=False,
    )


def answer_of(place, *arguments: str, **environ: str) -> dict[str, Any]:
    done = explain(place, *arguments, "--format", "json", **environ)
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_call_inside_a_range_takes_the_selection_and_outside_the_baseline(place):
    write_bundle(place.bundles / "a.rltune", place.key, [CHOICE])
    inside = answer_of(place, *CALL, "--tokens", "8")
    assert inside["candidate_id"] == SELECTED.candidate_id
    assert inside["decided_by"] == "selection"
    assert "selects it for 4..40: faster by 5%" in str(inside["reason"])
    outside = answer_of(place, *CALL, "--tokens", "41")
    assert outside["candidate_id"] == FORWARD.baseline(KEY).candidate_id
    assert outside["decided_by"] == "baseline of the bundle"


def test_mismatch_is_listed_field_by_field(place):
    target = replace(interpreter_target(), triton="1.0", ptxas="custom:0")
    write_bundle(place.bundles / "a.rltune", place.key, [CHOICE], target=target)
    answer = answer_of(place, *CALL, "--tokens", "8")
    assert answer["decided_by"] == "fixed launch"
    rows = answer["differences"]
    assert [row["field"] for row in rows] == ["triton", "ptxas"]
    text = explain(place, *CALL, "--tokens", "8").stdout
    assert "\n  ptxas: expected custom:0, found bundled\n" in text
    assert "launch config: BLOCK=1024,STAGES=1,STEPS=1,w4,s1" in text


def test_other_key_is_undecided(place):
    write_bundle(place.bundles / "a.rltune", place.key, [CHOICE])
    answer = answer_of(place, *CALL, "--tokens", "8", "--dtype", "fp32")
    assert answer["reason"] == "no loaded bundle decides silu/forward for fp32,intermediate_size=64"


def test_pin_and_mode_off_are_named(place):
    write_bundle(place.bundles / "a.rltune", place.key, [CHOICE])
    pinned = answer_of(
        place, *CALL, "--tokens", "8", RLTUNE_PIN_SILU_FORWARD="BLOCK=2048,STEPS=1,num_warps=8"
    )
    assert (pinned["decided_by"], pinned["reason"]) == ("pin", "RLTUNE_PIN_SILU_FORWARD pins it")
    off = answer_of(place, *CALL, "--tokens", "8", RLTUNE_MODE="off")
    assert (off["decided_by"], off["reason"]) == ("fixed launch", "RLTUNE_MODE=off")


def test_without_a_call_every_kernel_is_listed_with_its_reason(place):
    write_bundle(place.bundles / "a.rltune", place.key, [CHOICE])
    text = explain(place, "--device", "interpreter").stdout
    assert "kernel silu/forward (interpreter): hit: 1 keys decided here" in text
    assert (
        "kernel silu/backward (interpreter): miss: no loaded bundle decides silu/backward" in text
    )
    one = explain(place, "silu/forward", "--device", "interpreter").stdout
    assert "silu/backward" not in one


def test_wrong_questions_are_usage_errors(place):
    for arguments, message in (
        (["silo/forward"], "kernel silo/forward: expected one of"),
        (["--tokens", "1"], "name the kernel"),
        ([*CALL, "--tokens", "1", "--dtype", "fp64"], "dtype fp64: expected one of"),
        (["silu/forward", "--tokens", "1"], "expected the axes intermediate_size, got none"),
        (["--device", "tpu"], "--device tpu: expected auto"),
        ([*CALL, "--axis", "x"], "--axis x: expected name=size"),
    ):
        tokens = [] if "--tokens" in arguments or "--axis x" not in message else ["--tokens", "1"]
        done = explain(place, *arguments, *tokens)
        assert done.returncode != 0
        assert "UsageError" in done.stderr
        assert message in done.stderr
