"""One tiny sweep on the interpreter, through the real command line."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import cli
from tests.support.cli import ROOT

PRESET = """
format = "rltune-preset/1"
name = "tiny"
summary = "one operator, a few candidates"
source = "tests"

[budget]
screen_samples = 1
confirm_samples = 1
finalists = 1
candidates = 4

[[qualification]]
operator = "silu"
kernels = ["forward"]
dtypes = ["bf16"]
axes = { intermediate_size = 2048 }
num_tokens = [1, 3]
seeds = [1]
generators = ["normal", "nans"]

[[measurement]]
operator = "silu"
kernels = ["forward"]
label = "small"
dtypes = ["bf16"]
axes = { intermediate_size = 2048 }
num_tokens = [2, 16]
"""


def environment(*kernel_roots: Path, **variables: str) -> dict[str, str]:
    """A job's environment: this checkout, or other kernels before it, and no GPU."""
    roots = [*map(str, kernel_roots), str(ROOT), str(ROOT / "kernels")]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RLTUNE_")}
    kept.pop("TRITON_INTERPRET", None)
    return {**kept, "PYTHONPATH": os.pathsep.join(roots), "CUDA_VISIBLE_DEVICES": "", **variables}


def rltune(*words: object, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run one command line, a sweep as a rule; never raises on its exit status."""
    return cli.rltune(*words, environ=env or environment(), cwd=ROOT, timeout_s=600)


@dataclass(frozen=True)
class Sweep:
    """Where a finished sweep lies."""

    folder: Path
    bundle: Path
    trust: Path
    key: Path
    output: str

    @property
    def journal(self) -> Path:
        (found,) = (self.folder / "work").glob("*/journal.jsonl")
        return found

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.journal.read_text().splitlines()]


def run_tiny_sweep(folder: Path, *options: str) -> Sweep:
    """Keygen and sweep; fails the test if either does."""
    preset, key, trust = folder / "tiny.toml", folder / "key.pem", folder / "trust"
    preset.write_text(PRESET)
    if not key.exists():
        made = rltune("keygen", "--key", key, "--trust-dir", trust, "--stream", "rltune/dev/dev")
        assert made.returncode == 0, made.stderr
    bundle = folder / "tiny.rltune"
    done = sweep_command(folder, *options)
    assert done.returncode == 0, done.stderr
    return Sweep(folder, bundle, trust, key, done.stdout)


def sweep_command(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """The sweep of :func:`run_tiny_sweep`, whatever its exit status."""
    return rltune(
        "sweep",
        *("--preset", folder / "tiny.toml"),
        *("--work-dir", folder / "work"),
        *("--output", folder / "tiny.rltune"),
        *("--stream", "rltune/dev/dev"),
        *("--key", folder / "key.pem"),
        *("--trust-dir", folder / "trust"),
        *options,
    )
