"""Progress of a sweep: plain lines without a terminal, bars on one."""

import io

from rich.console import Console

from rltune.report.progress import ProgressObserver


def show(*, terminal: bool, verbose: bool = False) -> str:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=100, _environ={})
    with ProgressObserver(console, verbose=verbose) as observer:
        observer.stage("compile", 3)
        observer.advance("one", resumed=True)
        observer.advance("two")
        observer.dropped("silu/forward | BLOCK=1", "same program: as BLOCK=2")
        observer.dropped("silu/forward | BLOCK=4", "same program: as BLOCK=2")
        observer.dropped("silu/forward | BLOCK=8", "bytes: y_ptr[0] differs")
        observer.stage("qualify", 1)
        observer.advance("case")
        observer.note("a [note] as it is")
    return stream.getvalue()


def test_plain_lines_count_items_resumed_ones_and_causes():
    text = show(terminal=False)
    assert "\x1b" not in text
    assert "compile: 2/3 in 0.0 s, 1 from the journal\n" in text
    assert "qualify: 1/1 in 0.0 s\n" in text
    assert "dropped candidates: 2 same program, 1 bytes\n" in text
    assert "a [note] as it is\n" in text
    assert "BLOCK=8" not in text


def test_verbose_names_each_dropped_candidate():
    assert "dropped silu/forward | BLOCK=8: bytes: y_ptr[0] differs\n" in show(
        terminal=False, verbose=True
    )


def test_terminal_gets_bars():
    text = show(terminal=True)
    assert "\x1b[" in text
    assert "2/3" in text
    assert "1/1" in text
