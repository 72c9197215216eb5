"""Comments and white space never change a fingerprint, whatever they say."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rltune.core.fingerprint import source_fingerprint
from rltune.errors import SourceError

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "tests" / "golden" / "assets"


def read_source(module: str) -> str:
    for root in (ASSETS, ROOT):
        path = root.joinpath(*module.split("."))
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return file.read_text(encoding="utf-8")
    raise SourceError(f"{module}: no such module")


comments = st.text(st.characters(exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=12)
insertions = st.lists(
    st.tuples(
        st.integers(0, 200),
        st.integers(0, 9),
        st.booleans(),
        comments,
    ),
    max_size=12,
)


def with_insertions(text: str, wanted: list[tuple[int, int, bool, str]], newline: str) -> str:
    """``text`` with comment lines, blank lines and trailing comments in it."""
    lines = text.splitlines()
    for place, indent, own_line, comment in wanted:
        index = place % len(lines)
        if own_line:
            lines.insert(index, " " * indent + (f"#{comment}" if comment else ""))
        elif '"""' not in lines[index]:
            lines[index] += f"{' ' * indent}  #{comment}"
    return newline.join([*lines, ""])


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(wanted=insertions, newline=st.sampled_from(["\n", "\r\n", "\n\n"]))
def test_comments_and_white_space_never_change_the_fingerprint(
    monkeypatch: pytest.MonkeyPatch, wanted: list[tuple[int, int, bool, str]], newline: str
) -> None:
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(ASSETS))
        kernel = importlib.import_module("snapshot_kernels.scale.spec").SPEC.kernels[0]

    def read(module: str) -> str:
        text = read_source(module)
        in_snapshot = module.startswith("snapshot_kernels.")
        return with_insertions(text, wanted, newline) if in_snapshot else text

    assert source_fingerprint(kernel, read) == source_fingerprint(kernel, read_source)
