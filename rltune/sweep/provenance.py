"""Where a sweep's result comes from: commit, dirty bit, versions."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path

import rltune
from rltune.runtime.environment import TRITON_DISTRIBUTIONS, installed_version

UNKNOWN = "unknown"


def source_commit() -> tuple[str, bool]:
    """Commit of the checkout rltune runs from, and whether it has uncommitted changes.

    Returns:
        The commit in hex and the dirty bit; ``unknown`` and True outside a checkout
        or without git, since nothing then shows that the source is unchanged.
    """
    folder = Path(rltune.__file__).parent
    commit = _git(folder, "rev-parse", "HEAD")
    # An installed package inside somebody else's checkout is not that checkout's source.
    tracked = _git(folder, "ls-files", "--error-unmatch", "errors.py")
    if not commit or not tracked:
        return UNKNOWN, True
    return commit, bool(_git(folder, "status", "--porcelain", "--", "..")) or commit == UNKNOWN


def _git(folder: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],  # noqa: S607 - git as the user has it
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def versions() -> Mapping[str, str]:
    """Versions of what made the result, by name."""
    return {
        "rltune": rltune.__version__,
        "python": platform.python_version(),
        "torch": installed_version("torch"),
        "triton": installed_version(*TRITON_DISTRIBUTIONS),
        "platform": platform.platform(),
    }
