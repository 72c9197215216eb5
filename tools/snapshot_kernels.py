"""Keeps the kernel sources of a new committed bundle beside its tests.

``python tools/snapshot_kernels.py BUNDLE`` writes ``tests/golden/assets/NAME.sources.tar.gz``,
where NAME is the bundle's file name, so that its programs can be rebuilt after the kernels
have moved on. The archive depends on nothing but the files.
"""

from __future__ import annotations

import gzip
import io
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KERNELS = ROOT / "kernels"
ASSETS = ROOT / "tests" / "golden" / "assets"


def snapshot() -> bytes:
    """A gzipped tar of ``kernels/`` without times, owners and compiled files."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for path in sorted(KERNELS.rglob("*.py")):
            data = path.read_bytes()
            entry = tarfile.TarInfo(str(path.relative_to(KERNELS)))
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return gzip.compress(buffer.getvalue(), mtime=0)


def main(arguments: Sequence[str]) -> int:
    """Write the snapshot of one bundle; return the exit status."""
    if len(arguments) != 1 or not arguments[0].endswith(".rltune"):
        sys.stderr.write("expected one bundle: python tools/snapshot_kernels.py NAME.rltune\n")
        return 2
    target = ASSETS / f"{Path(arguments[0]).stem}.sources.tar.gz"
    target.write_bytes(snapshot())
    sys.stdout.write(f"{target.relative_to(ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
