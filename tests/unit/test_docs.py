"""What the documents name exists: files, make targets, commands, options, error codes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

import rltune_kernels
from rltune.cli.main import build_app
from rltune.errors import RltuneError
from tests.unit.test_imports import modules_of

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

each_document = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)

LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`\n]+)`")
MAKE = re.compile(r"\bmake ([a-z][a-z-]+)")
COMMAND = re.compile(r"\brltune ([a-z][a-z-]*)((?:[^\n`]|\\\n)*)")
ERROR_CODE = re.compile(r"\bRLT-[A-Z]+-[0-9]+\b")
ABSOLUTE = re.compile(r"(?<![\w./…-])/(?:home|root|tmp|work|mnt|Users|workspace)\b")


def code_of(text: str) -> str:
    """Fenced blocks and code spans of a document, a span a line."""
    blocks = FENCE.findall(text)
    return "\n".join([*blocks, *CODE.findall(FENCE.sub("", text))])


def anchors(text: str) -> set[str]:
    """Anchors of a document's headings, as forges make them."""
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def commands() -> dict[str, set[str]]:
    """Options of each command of the program, by its name."""
    group: Any = typer.main.get_command(build_app())  # typer has its own copy of click
    return {
        name: {word for item in command.params for word in (*item.opts, *item.secondary_opts)}
        for name, command in group.commands.items()
    }


def error_codes() -> set[str]:
    """Codes of all error classes, those defined outside ``rltune.errors`` included."""
    for name in modules_of("rltune.sweep"):
        __import__(name)
    found, pending = set(), [RltuneError]
    while pending:
        kind = pending.pop()
        found.add(kind.code)
        pending += kind.__subclasses__()
    return found


@each_document
def test_relative_links_resolve(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    for target in LINK.findall(FENCE.sub("", text)):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        linked = (document.parent / path).resolve() if path else document
        assert linked.exists(), f"{document.name} links to {target}"
        if anchor:
            assert anchor in anchors(linked.read_text(encoding="utf-8")), target


@each_document
def test_make_targets_exist(document: Path) -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))
    named = set(MAKE.findall(code_of(document.read_text(encoding="utf-8"))))
    assert named <= targets


@each_document
def test_commands_and_their_options_exist(document: Path) -> None:
    known = commands()
    for name, rest in COMMAND.findall(code_of(document.read_text(encoding="utf-8"))):
        assert name in known, f"{document.name} names rltune {name}"
        options = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", rest.partition("#")[0]))
        assert options <= known[name], f"{document.name}: rltune {name}{rest}"


@each_document
def test_error_codes_exist(document: Path) -> None:
    named = set(ERROR_CODE.findall(document.read_text(encoding="utf-8")))
    assert named <= error_codes()


@each_document
def test_no_path_of_one_machine_is_named(document: Path) -> None:
    assert ABSOLUTE.findall(document.read_text(encoding="utf-8")) == []


def test_readme_has_exactly_two_commands_for_set_up() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.partition("## Set-up")[2].partition("\n## ")[0]
    block = FENCE.findall(section)[0]
    assert re.findall(r"^(make \w+)", block, re.MULTILINE) == ["make sweep", "make test"]


def test_readme_names_every_operator() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name for name in rltune_kernels.OPERATORS if f"`{name}`" not in readme] == []


def test_architecture_names_every_room_and_module() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    names = {name.rpartition(".")[2] for name in modules_of("rltune") if name.count(".") == 2}
    assert sorted(name for name in names if f"`{name}`" not in text) == []
