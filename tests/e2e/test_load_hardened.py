"""``import rltune_kernels`` where almost nothing is allowed.

A random user without name and home, a read-only root, no network, nothing on
PATH, no environment: as a hardened container runs a job.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from rltune.core.shapes import ShapeKey
from rltune_kernels.silu.spec import FORWARD
from tests.unit.runtime.places import Choice, write_bundle, write_trust

ROOT = Path(__file__).resolve().parents[2]
USER = "12345"

SCRIPT = """
import json, os, pwd, socket, sys, threading
import rltune_kernels
from rltune import runtime
status = runtime.status()

def refused(attempt):
    try:
        attempt()
    except OSError:
        return True
    return False

def named():
    try:
        return bool(pwd.getpwuid(os.getuid()))
    except KeyError:
        return False

print(json.dumps({
    "modules": sorted({name.partition(".")[0] for name in sys.modules}),
    "threads": threading.active_count(),
    "user": os.getuid(),
    "named": named(),
    "cannot_write": refused(lambda: open(sys.argv[1] + "/file", "w")),
    "cannot_connect": refused(lambda: socket.create_connection(("1.1.1.1", 53), timeout=1)),
    "environ": sorted(os.environ),
    "status": status.to_json(),
}))
"""
HEAVY = {"torch", "triton", "typer", "rich", "pydantic", "zstandard", "numpy"}


def hardened(command: list[str], environ: dict[str, str]) -> list[str]:
    """``command`` in its own mount and network namespace, root read-only, as a random user."""
    variables = [f"{name}={value}" for name, value in environ.items()]
    drop = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
    # May read what others own, since Python may lie in somebody's home; may write nothing.
    capability = "-all,+dac_read_search"
    drop += [f"--inh-caps={capability}", f"--ambient-caps={capability}", "--no-new-privs"]
    readonly = 'mount --make-rprivate / && mount -o remount,bind,ro / && exec "$@"'
    inner = [*drop, "/usr/bin/env", "-i", "PATH=/nonexistent", *variables, *command]
    return ["unshare", "--mount", "--net", "sh", "-c", readonly, "sh", *inner]


@pytest.fixture(scope="module")
def permitted() -> None:
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv"))):
        pytest.skip("needs root, unshare and setpriv")
    probe = subprocess.run(
        hardened([sys.executable, "-c", ""], {}), capture_output=True, text=True, check=False
    )
    if probe.returncode:
        pytest.skip(f"namespaces are not permitted here: {probe.stderr.strip()}")


def load(tmp_path: Path, **environ: str) -> dict[str, Any]:
    environ["PYTHONPATH"] = f"{ROOT}:{ROOT / 'kernels'}"
    tmp_path.chmod(0o777)
    done = subprocess.run(
        hardened([sys.executable, "-c", SCRIPT, str(tmp_path)], environ),
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    answer["stderr"] = done.stderr
    return answer


def check_hardened(answer: dict[str, Any]) -> None:
    assert answer["user"] == int(USER)
    assert answer["named"] is False
    assert answer["cannot_write"] is True
    assert answer["cannot_connect"] is True
    assert "HOME" not in answer["environ"]
    assert answer["threads"] == 1
    assert not HEAVY & set(answer["modules"])


@pytest.mark.usefixtures("permitted")
def test_import_without_a_bundle_leaves_the_fixed_launch_and_says_so(tmp_path):
    answer = load(tmp_path)
    check_hardened(answer)
    assert answer["stderr"] == ""
    status = answer["status"]
    assert status["mode"] == "load"
    reasons = {kernel["reason"] for kernel in status["kernels"]}
    assert reasons == {"no bundle is loaded"}


@pytest.mark.usefixtures("permitted")
def test_import_with_a_bundle_accepts_it_in_strict_mode(tmp_path):
    key = Ed25519PrivateKey.generate()
    shape = ShapeKey.of("fp32", {"intermediate_size": 64})
    config = FORWARD.candidates(shape)[0]
    choice = Choice(kernel=FORWARD, key=shape, ranges=((1, 8, config),))
    bundle = write_bundle(tmp_path / "a.rltune", key, [choice])
    trust = write_trust(tmp_path / "trust", key)
    answer = load(
        tmp_path,
        RLTUNE_BUNDLE_PATH=str(bundle),
        RLTUNE_TRUST_DIR=str(trust),
        RLTUNE_MODE="strict",
    )
    check_hardened(answer)
    assert answer["stderr"] == ""
    (found,) = answer["status"]["bundles"]
    assert (found["verdict"], found["path"]) == ("accepted", str(bundle))
    kernels = {item["kernel"]: item["outcome"] for item in answer["status"]["kernels"]}
    assert kernels["silu/forward"] == "unknown"  # no device has been used
    assert kernels["silu/backward"] == "miss"


def test_mode_off_imports_nothing_of_the_runtime():
    script = (
        "import sys, rltune_kernels; from rltune import runtime; runtime.load();"
        "print([n for n in sys.modules if n.startswith(('rltune.runtime.', 'rltune.bundle', 'cryptography'))])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": f"{ROOT}:{ROOT / 'kernels'}", "RLTUNE_MODE": "off"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
