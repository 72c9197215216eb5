"""Run the command line as a user does: in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def rltune(
    *arguments: object,
    environ: dict[str, str] | None = None,
    pass_fds: Sequence[int] = (),
    cwd: Path | None = None,
    timeout_s: float = 120,
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m rltune`` with nothing in its environment but ``environ``."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "kernels")])
    return subprocess.run(
        [sys.executable, "-m", "rltune", *map(str, arguments)],
        env={"PYTHONPATH": paths, **(environ or {})},
        pass_fds=pass_fds,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
    )
