"""The wheel, built from the sdist, installed alone, used outside the checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRESETS = sorted(path.name for path in (ROOT / "presets").glob("*.toml"))
OPERATORS = [
    *("silu", "swiglu", "rms_norm", "add_rms_norm", "embedding", "rope"),
    *("logprob", "ratio_kl", "grpo_norm", "grpo_loss"),
]

pytestmark = pytest.mark.slow


def run(command: list[str], cwd: Path, **environ: str) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        env={"PATH": os.environ["PATH"], "HOME": str(cwd), **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def source_files() -> list[str]:
    """Tracked and new files of the checkout, as a commit of everything would hold them."""
    listed = run(["git", "ls-files", "-co", "--exclude-standard", "-z"], ROOT)
    return [name for name in listed.split("\0") if name and os.path.lexists(ROOT / name)]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the sdist, and the wheel that was built from it."""
    source = tmp_path_factory.mktemp("source")
    for name in source_files():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, source / name, follow_symlinks=False)
    output = tmp_path_factory.mktemp("dist")
    # without --sdist or --wheel the wheel is built from the unpacked sdist
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(output), "."]
    run(command, source, PYTHONWARNINGS="default")
    return output


@pytest.fixture(scope="module")
def python(dist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Interpreter of a fresh environment that holds the wheel; other packages are borrowed."""
    folder = tmp_path_factory.mktemp("environment")
    run([sys.executable, "-m", "venv", "--without-pip", "venv"], folder)
    python = folder / "venv" / "bin" / "python"
    (wheel,) = dist.glob("*.whl")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    run([*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], folder)
    (site_packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    # A folder named in a .pth file is searched, but .pth files in it, such as those of an
    # editable install of this checkout, are not read.
    paths = sysconfig.get_paths()
    borrowed = sorted({paths["purelib"], paths["platlib"]})
    (site_packages / "borrowed.pth").write_text("\n".join(borrowed) + "\n")
    return python


def test_sdist_holds_what_builds_the_wheel_and_the_documents(dist: Path) -> None:
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as sdist:
        members = {item.name.partition("/")[2]: item for item in sdist.getmembers()}
    wanted = [
        *("pyproject.toml", "README.md", "LICENSE", "docs/architecture.md", "docs/CHANGELOG.md"),
        *(f"rltune/presets/{name}" for name in PRESETS),
        *(f"kernels/rltune_kernels/{name}/kernel.py" for name in OPERATORS),
    ]
    assert [name for name in wanted if name not in members] == []
    assert [name for name, item in members.items() if item.issym() or item.islnk()] == []
    # tests and committed bundles belong to a checkout
    assert [name for name in members if name.split("/")[0] in {"tests", "artifacts"}] == []


def test_wheel_holds_both_packages_and_nothing_else(dist: Path) -> None:
    (archive,) = dist.glob("*.whl")
    with zipfile.ZipFile(archive) as wheel:
        names = set(wheel.namelist())
        for name in PRESETS:
            assert wheel.read(f"rltune/presets/{name}") == (ROOT / "presets" / name).read_bytes()
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"rltune", "rltune_kernels"}
    assert {"rltune/py.typed", "rltune_kernels/py.typed"} <= names
    sources = [name for name in source_files() if name.endswith(".py")]
    expected = {
        name.removeprefix("kernels/")
        for name in sources
        if name.startswith(("rltune/", "kernels/rltune_kernels/"))
    }
    assert {name for name in names if name.endswith(".py")} == expected


def test_installed_packages_are_the_wheels(python: Path, tmp_path: Path) -> None:
    code = """
import json, rltune, rltune_kernels
print(json.dumps([rltune.__file__, rltune_kernels.__file__, list(rltune_kernels.OPERATORS)]))
"""
    first, second, operators = json.loads(run([str(python), "-c", code], tmp_path))
    environment = python.parents[1]
    assert Path(first).is_relative_to(environment)
    assert Path(second).is_relative_to(environment)
    assert operators == OPERATORS


def test_program_runs_outside_the_checkout(python: Path, tmp_path: Path) -> None:
    program = str(python.with_name("rltune"))
    assert "sweep" in run([program, "--help"], tmp_path)
    rows = json.loads(run([program, "presets", "--format", "json"], tmp_path))
    assert [f"{row['preset']}.toml" for row in rows] == PRESETS


def test_kernel_source_can_be_read_and_has_the_checkouts_fingerprint(
    python: Path, tmp_path: Path
) -> None:
    code = """
import inspect, json
from rltune.runtime.sources import installed_fingerprint
from rltune_kernels.silu.kernel import _silu_fwd_kernel
from rltune_kernels.silu.spec import FORWARD
print(json.dumps([inspect.getsource(_silu_fwd_kernel.fn), installed_fingerprint(FORWARD)]))
"""
    from rltune.runtime.sources import installed_fingerprint
    from rltune_kernels.silu.spec import FORWARD

    source, fingerprint = json.loads(run([str(python), "-c", code], tmp_path, RLTUNE_MODE="off"))
    assert "def _silu_fwd_kernel(" in source
    assert fingerprint == installed_fingerprint(FORWARD)
