"""Progress of a sweep: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

_PLAIN_INTERVAL_S = 10.0


class ProgressObserver:
    """Shows stages, items done, rate and dropped candidates on a console.

    Args:
        console: where to write, standard error as a rule.
        verbose: also show each dropped candidate with its reason.
    """

    def __init__(self, console: Console, *, verbose: bool = False) -> None:
        self._console = console
        self._verbose = verbose
        self._bars = _bars(console) if console.is_terminal else None
        self._task: TaskID | None = None
        self._stage = ""
        self._done = self._resumed = self._total = 0
        self._started = self._last_line = time.monotonic()
        self._dropped: Counter[str] = Counter()

    def __enter__(self) -> Self:
        if self._bars:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._finish_stage()
        if self._bars:
            self._bars.stop()
        if self._dropped:
            causes = ", ".join(f"{count} {cause}" for cause, count in self._dropped.most_common())
            self._print(f"dropped candidates: {causes}")

    def stage(self, name: str, total: int) -> None:
        """Begin a stage of ``total`` items."""
        self._finish_stage()
        self._stage, self._total, self._done, self._resumed = name, total, 0, 0
        self._started = self._last_line = time.monotonic()
        if self._bars:
            self._task = self._bars.add_task(name, total=total, item="")

    def _finish_stage(self) -> None:
        if not self._stage:
            return
        if not self._bars:
            self._print(self._line())
        self._stage = ""

    def _line(self) -> str:
        seconds = time.monotonic() - self._started
        resumed = f", {self._resumed} from the journal" if self._resumed else ""
        return f"{self._stage}: {self._done}/{self._total} in {seconds:.1f} s{resumed}"

    def advance(self, item: str, *, resumed: bool = False) -> None:
        """Count one item of the stage; ``item`` is shown beside the bar."""
        self._done += 1
        self._resumed += resumed
        if self._bars and self._task is not None:
            self._bars.update(self._task, advance=1, item=item)
        elif time.monotonic() - self._last_line > _PLAIN_INTERVAL_S:
            self._last_line = time.monotonic()
            self._print(self._line())

    def dropped(self, launch: str, reason: str) -> None:
        """Count a dropped candidate by the cause its reason begins with."""
        self._dropped[reason.partition(":")[0]] += 1
        if self._verbose:
            self._print(f"dropped {launch}: {reason}")

    def note(self, text: str) -> None:
        """Print one line."""
        self._print(text)

    def _print(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


def _bars(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:10}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[item]}", style="dim"),
        console=console,
    )
