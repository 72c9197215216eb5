"""Journals cut or altered at every byte."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from rltune.errors import JournalError
from rltune.sweep.journal import Journal, read_records

PLAN = "0f" * 32
KEYS = [("compile", "a"), ("qualify", "b\u00e9"), ("measure", "c")]


def journal_bytes(path: Path) -> bytes:
    with Journal.create(path, PLAN) as journal:
        for kind, key in KEYS:
            journal.append(kind, key, {"time_ps": len(key), "list": [True, None, "x"]})
    return path.read_bytes()


def test_every_prefix_resumes_with_exactly_its_complete_records(tmp_path: Path) -> None:
    path = tmp_path / "j"
    data = journal_bytes(path)

    for size in range(len(data) + 1):
        path.write_bytes(data[:size])
        with Journal.resume(path, PLAN) as journal:
            complete = data[:size].count(b"\n")
            assert list(journal.records) == KEYS[:complete]
            for kind, key in KEYS[complete:]:
                journal.append(kind, key, {"time_ps": len(key), "list": [True, None, "x"]})
        assert path.read_bytes() == data


def test_every_altered_byte_is_refused_or_cuts_only_the_last_line(tmp_path: Path) -> None:
    path = tmp_path / "j"
    data = journal_bytes(path)
    whole = read_records(path, PLAN)

    for position in range(len(data)):
        for value in {data[position] ^ 1, data[position] ^ 0x20, 0x0A, 0x30} - {data[position]}:
            path.write_bytes(data[:position] + bytes([value]) + data[position + 1 :])
            try:
                records = read_records(path, PLAN)
            except JournalError:
                continue
            assert position == len(data) - 1, "only the last newline makes a torn line"
            assert records == {key: whole[key] for key in KEYS[:2]}


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abc_", min_size=1, max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=25, deadline=None)
@given(bodies=st.lists(st.dictionaries(st.sampled_from("abc"), values, max_size=3), max_size=4))
def test_what_was_appended_is_read_back(
    tmp_path_factory: object, bodies: list[dict[str, object]]
) -> None:
    path: Path = tmp_path_factory.mktemp("journal") / "j"  # type: ignore[attr-defined]
    with Journal.create(path, PLAN) as journal:
        for number, body in enumerate(bodies):
            journal.append("measure", str(number), body)

    expected = {("measure", str(number)): body for number, body in enumerate(bodies)}
    assert read_records(path, PLAN) == expected
