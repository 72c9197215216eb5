"""Source fingerprints of a frozen package, equal on every supported Python."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
GOLDEN = HERE / "fingerprints.json"


def _interpreter(version: str) -> str:
    """Path of a Python of this version that really runs, or ``""``."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return sys.executable
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    named = shutil.which(f"python{version}")
    built = sorted(pyenv.glob(f"{version}.*/bin/python"))
    for path in [*([named] if named else []), *map(str, built)]:
        probe = "import sys; print('%d.%d' % sys.version_info[:2])"
        answer = subprocess.run([path, "-c", probe], capture_output=True, text=True, check=False)
        if answer.stdout.strip() == version:
            return path
    return ""


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
def test_fingerprints_equal_golden_values(version: str) -> None:
    python = _interpreter(version)
    if not python:
        pytest.skip(f"no Python {version} on this machine")
    done = subprocess.run(
        [python, "-S", "-W", "error", "-m", "snapshot_kernels"],
        env={"PYTHONPATH": f"{HERE.parents[1]}{os.pathsep}{HERE / 'assets'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == GOLDEN.read_text(encoding="utf-8")


def test_fingerprints_equal_golden_values_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE / "assets"))
    from snapshot_kernels.__main__ import fingerprints  # type: ignore[import-not-found]

    assert fingerprints() == json.loads(GOLDEN.read_text(encoding="utf-8"))
