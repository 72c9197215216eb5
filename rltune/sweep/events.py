"""What a sweep tells whoever watches. The sweep itself prints nothing."""

from __future__ import annotations

from typing import Protocol


class Observer(Protocol):
    """Receives progress; methods return at once and never raise."""

    def stage(self, name: str, total: int) -> None:
        """A stage of ``total`` items begins; those a resumed journal already has count too."""

    def advance(self, item: str, *, resumed: bool = False) -> None:
        """One item of the stage is done; ``resumed`` if the journal already had it."""

    def dropped(self, launch: str, reason: str) -> None:
        """A candidate is out; ``launch`` names kernel, key and candidate."""

    def note(self, text: str) -> None:
        """Something worth a line that is not progress."""
