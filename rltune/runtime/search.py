"""Where bundles are looked for, in order.

``RLTUNE_BUNDLE_PATH``, then ``/opt/rltune/bundles``, then installed packages
(entry points of group ``rltune.bundles``). All that is found is loaded: a
bundle is trusted for its signature, not for its place.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

PATH_VARIABLE = "RLTUNE_BUNDLE_PATH"
SYSTEM_DIRECTORY = Path("/opt/rltune/bundles")
ENTRY_POINT_GROUP = "rltune.bundles"
SUFFIX = ".rltune"


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """A place that was named or found.

    Attributes:
        path: a bundle file, or the name of what should have been one.
        problem: why there is no file, or ``""``.
    """

    path: str
    problem: str = ""


def find_bundles(environ: Mapping[str, str], *, secure: bool) -> tuple[Found, ...]:
    """Every bundle file of this machine, in search order, each path once.

    Args:
        environ: environment variables.
        secure: whether the process runs with raised privileges (AT_SECURE); its
            environment then chooses no bundle.
    """
    places: list[Found] = []
    if not secure:
        for entry in filter(None, environ.get(PATH_VARIABLE, "").split(os.pathsep)):
            places += _expand(Path(entry), named_by=PATH_VARIABLE)
    if SYSTEM_DIRECTORY.is_dir():
        places += _expand(SYSTEM_DIRECTORY, named_by="the system")
    places += _installed()
    first: dict[str, Found] = {}
    for place in places:
        first.setdefault(place.path, place)
    return tuple(first.values())


def _expand(path: Path, *, named_by: str) -> Iterator[Found]:
    try:
        if not path.is_dir():
            problem = "" if path.exists() else f"{named_by} names it, but there is no such file"
            yield Found(path=str(path), problem=problem)
            return
        for name in sorted(name for name in os.listdir(path) if name.endswith(SUFFIX)):  # noqa: PTH208 - names are all that is needed
            yield Found(path=str(path / name))
    except OSError as error:
        yield Found(path=str(path), problem=f"{named_by} names it, but it is unreadable: {error}")


def _installed() -> Iterator[Found]:
    for point in metadata.entry_points(group=ENTRY_POINT_GROUP):
        named_by = f"entry point {point.name} ({point.value})"
        try:
            value = point.load()
        except Exception as error:  # noqa: BLE001 - a package's import may raise anything
            yield Found(path=point.value, problem=f"{named_by} fails: {error!r}")
            continue
        if isinstance(value, str | os.PathLike):
            yield from _expand(Path(value), named_by=named_by)
        else:
            problem = f"{named_by}: expected a path, got {type(value).__name__}"
            yield Found(path=point.value, problem=problem)
