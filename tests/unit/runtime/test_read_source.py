"""Source text is read, never executed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rltune.errors import SourceError
from rltune.runtime.sources import read_source


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "read_me_not_run"
    (folder / "inner").mkdir(parents=True)
    for file in (folder / "__init__.py", folder / "inner/__init__.py", folder / "inner/leaf.py"):
        file.write_text(f"raise RuntimeError({file.name!r})\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return folder


def test_source_is_read_without_executing_package_or_module(package):
    assert read_source("read_me_not_run.inner.leaf") == "raise RuntimeError('leaf.py')\n"
    assert read_source("read_me_not_run.inner") == "raise RuntimeError('__init__.py')\n"


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ("read_me_not_run.other", "read_me_not_run.other is not installed"),
        ("read_me_not_run.inner.leaf.deeper", "read_me_not_run.inner.leaf is not a package"),
        ("no_such_package_at_all", "no_such_package_at_all is not installed"),
    ],
)
def test_module_that_cannot_be_read_is_a_source_error(package, module, message):
    with pytest.raises(SourceError, match=message):
        read_source(module)


def test_module_without_source_text_is_a_source_error():
    with pytest.raises(SourceError, match="no source text"):
        read_source("time")


def test_undecodable_source_is_a_source_error(package):
    (package / "inner" / "leaf.py").write_bytes(b"# \xff\n")
    with pytest.raises(SourceError, match="cannot be read"):
        read_source("read_me_not_run.inner.leaf")


def test_kernel_source_needs_neither_torch_nor_triton():
    script = (
        "import sys; from rltune.runtime.sources import read_source;"
        "assert 'triton.jit' in read_source('rltune_kernels.silu.kernel');"
        "assert not {'torch', 'triton', 'rltune_kernels'} & set(sys.modules)"
    )
    environ = {"PYTHONPATH": ":".join(map(str, (Path.cwd(), Path.cwd() / "kernels")))}
    subprocess.run([sys.executable, "-c", script], check=True, env=environ)
