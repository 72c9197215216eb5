"""What a job imports: find bundles, verify, look up, launch.

* ``search``, ``loader``: which files, and which of them are accepted.
* ``device``, ``environment``, ``nvml``: facts a target is matched against.
* ``sources``: source text for fingerprints, read and never executed.
* ``table``, ``reasons``: the immutable table and why a lookup says what it says.
* ``state``: the one runtime of a process.
* ``launcher``, ``program``, ``driver``, ``triton_launch``: the launch.
* ``statuses``, ``explain``: what is loaded and why, for people and programs.

Importing this package loads nothing else; neither does ``load()`` in mode off.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rltune.runtime.modes import Mode
    from rltune.runtime.state import Specs
    from rltune.runtime.statuses import Status

__all__ = ["load", "mode", "status"]

_remembered: list[Specs] = []  # registered in mode off; status() still names their kernels


def load(specs: Specs | None = None) -> None:
    """Find, verify and freeze the bundles of this machine; once in a process.

    Creates no CUDA context, thread, file or directory. A bundle that is refused
    costs one warning of the logger ``rltune`` and leaves the fixed launch.

    Args:
        specs: gives the operators of this process; called only when needed.

    Raises:
        UsageError: an environment variable of this project cannot be understood.
        RltuneError: in strict mode, the first reason not to use a bundle.
    """
    if os.environ.get("RLTUNE_MODE") == "off":
        if specs is not None:
            _remembered.append(specs)
        return
    from rltune.runtime.state import load_process

    load_process(specs)


def mode() -> Mode:
    """The mode of this process: ``off``, ``load`` or ``strict``.

    Raises:
        UsageError: ``RLTUNE_MODE`` holds another word.
    """
    from rltune.runtime.modes import read_mode

    return read_mode()


def status() -> Status:
    """What is loaded, and for each registered kernel hit or miss and why.

    Raises:
        UsageError: an environment variable of this project cannot be understood.
    """
    from rltune.runtime.statuses import read_status

    return read_status()
