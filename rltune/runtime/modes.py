"""``RLTUNE_MODE``: whether this process uses bundles."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal

Mode = Literal["off", "load", "strict"]

VARIABLE = "RLTUNE_MODE"


def read_mode(environ: Mapping[str, str] | None = None) -> Mode:
    """The mode of the environment; ``load`` if unset or empty.

    Raises:
        UsageError: the variable holds another word.
    """
    text = (os.environ if environ is None else environ).get(VARIABLE, "") or "load"
    if text == "off":
        return "off"
    if text == "load":
        return "load"
    if text == "strict":
        return "strict"
    from rltune.errors import UsageError

    raise UsageError(f"{VARIABLE}={text}: expected off, load or strict")
