"""Where a sweep's result comes from: commit, dirty bit, versions."""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

import rltune
from rltune.runtime.environment import TRITON_DISTRIBUTIONS, installed_version

UNKNOWN = "unknown"


COMMIT_VARIABLE = "RLTUNE_SOURCE_COMMIT"
"""Names the commit where the source is no checkout, such as in an image built from one."""


def source_commit(environ: Mapping[str, str]) -> tuple[str, bool]:
    """Commit of the source rltune runs from, and whether that has uncommitted changes.

    Args:
        environ: environment variables; ``RLTUNE_SOURCE_COMMIT`` counts only outside a
            checkout, where the signer vouches for it.

    Returns:
        The commit in hex and the dirty bit; ``unknown`` and True if nothing says.
    """
    folder = Path(rltune.__file__).parent
    # An installed package inside somebody else's checkout is not that checkout's source.
    if _git(folder, "ls-files", "--error-unmatch", "errors.py"):
        return _git(folder, "rev-parse", "HEAD"), bool(_git(folder, "status", "--porcelain"))
    named = environ.get(COMMIT_VARIABLE, "")
    if re.fullmatch(r"[0-9a-f]{40}", named):
        return named, False
    return UNKNOWN, True


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
