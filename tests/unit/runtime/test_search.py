"""Where bundles are looked for, and in which order."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from rltune.runtime import search
from rltune.runtime.search import find_bundles


@pytest.fixture(autouse=True)
def system(tmp_path, monkeypatch):
    directory = tmp_path / "system"
    monkeypatch.setattr(search, "SYSTEM_DIRECTORY", directory)
    return directory


def install(folder, monkeypatch, module: str, text: str, value: str) -> None:
    """Put a real distribution with an entry point on the import path."""
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[rltune.bundles]\nmain = {value}\n")
    (folder / f"{module}.py").write_text(text)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.delitem(sys.modules, module, raising=False)


def paths(environ, *, secure=False) -> list[str]:
    return [item.path for item in find_bundles(environ, secure=secure)]


def test_variable_then_system_then_packages_each_path_once(tmp_path, system, monkeypatch):
    first, second, packaged = (tmp_path / name for name in ("first", "second", "packaged"))
    for folder in (first, second, system, packaged):
        folder.mkdir()
    for file in (
        first / "b.rltune",
        first / "a.rltune",
        first / "note.txt",
        second / "c.rltune",
        system / "d.rltune",
        packaged / "e.rltune",
    ):
        file.touch()
    install(
        tmp_path / "site",
        monkeypatch,
        "bundle_pack",
        f"PLACE = {str(packaged)!r}\n",
        "bundle_pack:PLACE",
    )
    variable = os.pathsep.join([str(second / "c.rltune"), "", str(first), str(second)])
    assert [Path(path).name for path in paths({"RLTUNE_BUNDLE_PATH": variable})] == [
        "c.rltune",
        "a.rltune",
        "b.rltune",
        "d.rltune",
        "e.rltune",
    ]


def test_nothing_set_and_nothing_installed_finds_nothing():
    assert paths({}) == []


def test_raised_privileges_ignore_the_variable(tmp_path, system):
    system.mkdir()
    (system / "d.rltune").touch()
    (tmp_path / "a.rltune").touch()
    environ = {"RLTUNE_BUNDLE_PATH": str(tmp_path / "a.rltune")}
    assert paths(environ, secure=True) == [str(system / "d.rltune")]


def test_named_file_that_does_not_exist_is_a_problem(tmp_path):
    (found,) = find_bundles({"RLTUNE_BUNDLE_PATH": str(tmp_path / "no.rltune")}, secure=False)
    assert "no such file" in found.problem


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("raise RuntimeError('broken')\n", "broken"),
        ("", "AttributeError"),
        ("PLACE = 3\n", "expected a path, got int"),
    ],
)
def test_broken_entry_point_is_a_problem_and_no_exception(tmp_path, monkeypatch, text, problem):
    install(tmp_path / "site", monkeypatch, "bundle_pack", text, "bundle_pack:PLACE")
    (found,) = find_bundles({}, secure=False)
    assert problem in found.problem
