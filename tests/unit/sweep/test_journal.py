"""The journal: durable, one writer, of one plan, never silently wrong."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rltune.errors import EnvironmentUnfitError, JournalError
from rltune.sweep.journal import Journal, read_records

PLAN = "ab" * 32
REPOSITORY = Path(__file__).parents[3]


def write(path: Path, count: int) -> None:
    with Journal.create(path, PLAN) as journal:
        for number in range(count):
            journal.append("measure", f"point {number}", {"median_ps": number, "why": None})


def test_journal_records_what_was_appended_in_order(tmp_path: Path) -> None:
    path = tmp_path / "sweep.jsonl"
    body = {"times_ps": [1, 2], "ok": True, "note": "\u00e9", "of": {"a": None}}
    with Journal.create(path, PLAN) as journal:
        journal.append("measure", "z", body)
        journal.append("compile", "a", {})

        assert list(journal.records.items()) == [(("measure", "z"), body), (("compile", "a"), {})]
        assert journal.done("compile", "a")
        assert not journal.done("compile", "z")

    assert read_records(path, PLAN) == {("measure", "z"): body, ("compile", "a"): {}}


def test_resume_goes_on_after_the_last_record(tmp_path: Path) -> None:
    path = tmp_path / "sweep.jsonl"
    write(path, 2)

    with Journal.resume(path, PLAN) as journal:
        journal.append("measure", "point 2", {"median_ps": 2, "why": None})
    whole = tmp_path / "whole.jsonl"
    write(whole, 3)

    assert path.read_bytes() == whole.read_bytes()


def test_later_change_of_a_body_does_not_reach_the_record(tmp_path: Path) -> None:
    times_ps = [1]
    with Journal.create(tmp_path / "j", PLAN) as journal:
        journal.append("measure", "a", {"times_ps": times_ps})
        times_ps.append(2)

        assert journal.records["measure", "a"] == {"times_ps": [1]}


def test_create_refuses_an_existing_file(tmp_path: Path) -> None:
    write(tmp_path / "j", 1)

    with pytest.raises(JournalError, match=r"the journal exists.*Resume it"):
        Journal.create(tmp_path / "j", PLAN)


def test_missing_places_are_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentUnfitError, match=r"none/j: the journal cannot be created"):
        Journal.create(tmp_path / "none" / "j", PLAN)
    with pytest.raises(EnvironmentUnfitError, match="the journal cannot be opened"):
        Journal.resume(tmp_path / "j", PLAN)
    with pytest.raises(EnvironmentUnfitError, match="the journal cannot be read"):
        read_records(tmp_path / "j", PLAN)


def test_resume_refuses_another_plan(tmp_path: Path) -> None:
    write(tmp_path / "j", 2)

    with pytest.raises(JournalError, match="line 1: belongs to another plan"):
        Journal.resume(tmp_path / "j", "cd" * 32)


def test_resume_refuses_lines_that_are_not_in_order(tmp_path: Path) -> None:
    path = tmp_path / "j"
    write(path, 4)
    lines = path.read_bytes().splitlines(keepends=True)

    for changed in (
        [lines[0], lines[2], lines[1], lines[3]],
        [lines[0], lines[2], lines[3]],
        [lines[0], lines[1], lines[1], lines[2]],
    ):
        path.write_bytes(b"".join(changed))
        with pytest.raises(JournalError, match=r"line [23]: does not follow"):
            Journal.resume(path, PLAN)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"[]", "line 3: expected an object with body"),
        (b'{"body":{} }', "line 3: not canonical JSON"),
        (b"", "line 3: not canonical JSON"),
    ],
)
def test_resume_refuses_lines_of_another_form(tmp_path: Path, line: bytes, message: str) -> None:
    path = tmp_path / "j"
    write(path, 2)
    path.write_bytes(path.read_bytes() + line + b"\n")

    with pytest.raises(JournalError, match=message):
        Journal.resume(path, PLAN)
    assert path.read_bytes().endswith(line + b"\n")


def test_a_second_writer_is_refused_until_the_first_has_closed(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with Journal.create(path, PLAN) as journal:
        journal.append("measure", "a", {})
        with pytest.raises(JournalError, match="another process writes this journal"):
            Journal.resume(path, PLAN)
        assert len(read_records(path, PLAN)) == 1

    Journal.resume(path, PLAN).close()


def test_append_refuses_what_it_could_not_give_back(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "j", PLAN) as journal:
        journal.append("measure", "a", {})
        with pytest.raises(JournalError, match="measure a is recorded already"):
            journal.append("measure", "a", {})
        with pytest.raises(JournalError, match=r"measure b: .*float has no canonical form"):
            journal.append("measure", "b", {"median_us": 1.5})
        journal.append("measure", "b", {"median_ps": 1})

    assert len(read_records(tmp_path / "j", PLAN)) == 2
    with pytest.raises(JournalError, match="the journal is closed"):
        journal.append("measure", "c", {})


def test_reading_changes_no_byte(tmp_path: Path) -> None:
    path = tmp_path / "j"
    write(path, 2)
    torn = path.read_bytes()[:-3]
    path.write_bytes(torn)

    assert len(read_records(path, PLAN)) == 1
    assert path.read_bytes() == torn


def test_full_disk_loses_only_the_item_in_hand(tmp_path: Path) -> None:
    path = tmp_path / "j"
    write(path, 2)
    before = path.read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with Journal.resume(path, PLAN) as journal:
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 40, hard))
            with pytest.raises(EnvironmentUnfitError, match="the journal cannot be written"):
                journal.append("measure", "point 2", {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)

    assert path.read_bytes() == before
    with Journal.resume(path, PLAN) as journal:
        journal.append("measure", "point 2", {})
        assert len(journal.records) == 3


WRITER = f"""
import sys
from pathlib import Path
from rltune.sweep.journal import Journal
with Journal.create(Path(sys.argv[1]), {PLAN!r}) as journal:
    number = 0
    while True:
        journal.append("measure", f"point {{number}}", {{"text": "x" * 20000}})
        print(number, flush=True)
        number += 1
"""


def test_killed_writer_leaves_every_acknowledged_record(tmp_path: Path) -> None:
    path = tmp_path / "j"
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        text=True,
    )
    assert writer.stdout is not None
    assert writer.stdout.readline() == "0\n"
    time.sleep(0.05)
    writer.kill()
    acknowledged = 1 + len(writer.stdout.readlines())
    writer.stdout.close()
    writer.wait()

    with Journal.resume(path, PLAN) as journal:
        assert acknowledged <= len(journal.records) <= acknowledged + 1
        journal.append("measure", "after", {})
    assert ("measure", "after") in read_records(path, PLAN)
