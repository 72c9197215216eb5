"""Keeps the sources and the journal of a new committed bundle beside its tests.

``python tools/snapshot_kernels.py BUNDLE JOURNAL`` writes ``NAME.sources.tar.gz`` (kernels and
presets) and ``NAME.journal.xz`` to ``tests/golden/assets``, where NAME is the bundle's file
name: its programs can be rebuilt, and its decisions made again, after the kernels have moved
on. The archive depends on nothing but the files.
"""

from __future__ import annotations

import gzip
import io
import lzma
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ASSETS = ROOT / "tests" / "golden" / "assets"


def snapshot() -> bytes:
    """A gzipped tar of ``kernels/`` and ``presets/`` without times, owners and compiled files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for folder, pattern in ((ROOT / "kernels", "**/*.py"), (ROOT, "presets/*.toml")):
            for path in sorted(folder.glob(pattern)):
                data = path.read_bytes()
                entry = tarfile.TarInfo(str(path.relative_to(folder)))
                entry.size, entry.mode = len(data), 0o644
                archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(buffer.getvalue(), mtime=0)


def main(arguments: Sequence[str]) -> int:
    """Write both assets of one bundle; return the exit status."""
    if len(arguments) != 2 or not arguments[0].endswith(".rltune"):
        sys.stderr.write("expected: python tools/snapshot_kernels.py NAME.rltune JOURNAL\n")
        return 2
    name = Path(arguments[0]).stem
    (ASSETS / f"{name}.sources.tar.gz").write_bytes(snapshot())
    journal = Path(arguments[1]).read_bytes()
    (ASSETS / f"{name}.journal.xz").write_bytes(lzma.compress(journal, preset=9))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
