"""What an import loads and leaves behind, seen in fresh processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROBE = """
import importlib, json, sys, threading
before = set(sys.modules)
for name in sys.argv[1:]:
    importlib.import_module(name)
torch = sys.modules.get("torch")
with open("/proc/self/maps") as maps:
    libraries = maps.read()
print(json.dumps({
    "modules": sorted(set(sys.modules) - before),
    "threads": threading.active_count(),
    "driver": "libcuda.so" in libraries,
    "context": torch is not None and torch.cuda.is_initialized(),
}))
"""

TOOLS = {"typer", "rich", "pydantic", "rltune.sweep", "rltune.adopt", "rltune.report", "rltune.cli"}
HEAVY = {"torch", "triton", "numpy", "zstandard"}


def modules_of(package: str) -> list[str]:
    """Every module below ``rltune`` or ``rltune_kernels``, the package's own name first."""
    parent = ROOT / "kernels" if package.startswith("rltune_kernels") else ROOT
    files = sorted((parent / package.replace(".", "/")).rglob("*.py"))
    names = [".".join(path.relative_to(parent).with_suffix("").parts) for path in files]
    return sorted(name.removesuffix(".__init__") for name in names if "__main__" not in name)


def import_fresh(folder: Path, names: Sequence[str], mode: str = "load") -> dict[str, Any]:
    """Import modules in a new process with empty home, working and temporary folders."""
    folders = {name: folder / name for name in ("home", "work", "temporary")}
    for path in folders.values():
        path.mkdir()
    environ = {
        "HOME": str(folders["home"]),
        "TMPDIR": str(folders["temporary"]),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels")]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "RLTUNE_MODE": mode,
    }
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *names],
        cwd=folders["work"],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    found["written"] = [str(path) for path in folder.rglob("*") if path not in folders.values()]
    return found


def assert_left_nothing(found: dict[str, Any]) -> None:
    assert found["written"] == []
    assert found["threads"] == 1
    assert not found["context"]


def loaded(found: dict[str, Any], names: set[str]) -> set[str]:
    return names & set(found["modules"])


@pytest.mark.parametrize("package", ["rltune", "rltune.errors", "rltune.core"])
def test_core_loads_the_standard_library_only(package: str, tmp_path: Path) -> None:
    names = modules_of(package) if package == "rltune.core" else [package]
    found = import_fresh(tmp_path, names)
    others = {name.partition(".")[0] for name in found["modules"]} - {"rltune"}
    assert others <= sys.stdlib_module_names
    rooms = {f"rltune.{room}" for room in ("bundle", "runtime", "sweep", "report", "cli")}
    assert not loaded(found, rooms)
    assert_left_nothing(found)


def test_bundle_loads_neither_kernels_nor_tools(tmp_path: Path) -> None:
    found = import_fresh(tmp_path, modules_of("rltune.bundle"))
    assert not loaded(found, TOOLS | HEAVY | {"rltune.runtime"})
    assert not found["driver"]
    assert_left_nothing(found)


def test_runtime_package_alone_loads_nothing_else(tmp_path: Path) -> None:
    found = import_fresh(tmp_path, ["rltune.runtime"])
    ours = [name for name in found["modules"] if name.startswith("rltune")]
    assert ours == ["rltune", "rltune.runtime"]
    assert not loaded(found, TOOLS | HEAVY | {"cryptography"})


def test_no_module_of_the_runtime_loads_kernels_or_tools(tmp_path: Path) -> None:
    found = import_fresh(tmp_path, modules_of("rltune.runtime"))
    assert not loaded(found, TOOLS | HEAVY)
    assert not found["driver"]
    assert_left_nothing(found)


@pytest.mark.parametrize("mode", ["load", "off"])
def test_declarations_of_operators_load_no_torch(mode: str, tmp_path: Path) -> None:
    names = ["rltune_kernels"]
    for name in modules_of("rltune_kernels"):
        if name.count(".") == 1 and (ROOT / "kernels" / name.replace(".", "/")).is_dir():
            names += [name, f"{name}.spec", f"{name}.candidates"]
    assert len(names) > 3
    found = import_fresh(tmp_path, names, mode)
    assert not loaded(found, TOOLS | HEAVY)
    assert mode == "load" or "cryptography" not in found["modules"]
    assert not found["driver"]
    assert_left_nothing(found)


def test_package_in_mode_off_reads_no_bundle(tmp_path: Path) -> None:
    found = import_fresh(tmp_path, ["rltune_kernels"], "off")
    assert not loaded(found, {"cryptography", "rltune.bundle", "rltune.runtime.state"})


@pytest.mark.parametrize(
    "name", [name for name in modules_of("rltune_kernels") if name.endswith(".kernel")]
)
def test_kernel_module_loads_triton_and_little_else(name: str, tmp_path: Path) -> None:
    found = import_fresh(tmp_path, [name], "off")
    assert "triton" in found["modules"]
    assert not loaded(found, TOOLS | {"torch", "cryptography", "zstandard", "rltune.bundle"})
    package = name.rpartition(".")[0]
    operators = {item.split(".")[1] for item in modules_of("rltune_kernels") if item.count(".") > 1}
    others = {f"rltune_kernels.{item}" for item in operators} - {package}
    assert not loaded(found, others)
    assert not found["driver"]
    assert_left_nothing(found)


def test_importing_everything_leaves_no_thread_file_or_context(tmp_path: Path) -> None:
    names = [*modules_of("rltune"), *modules_of("rltune_kernels")]
    assert "rltune.sweep.worker" in names
    found = import_fresh(tmp_path, names)
    assert "torch" in found["modules"]
    assert_left_nothing(found)


def test_kernels_is_a_source_root_and_no_package() -> None:
    assert not (ROOT / "kernels" / "__init__.py").exists()
