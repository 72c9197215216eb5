"""Program binaries of a sweep on disk, by digest."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from rltune.errors import BlobDigestError


class ProgramStore:
    """A folder of ``DIGEST.cubin`` files, written atomically and checked when read.

    Args:
        folder: created if missing.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, digest: str) -> Path:
        """Where the program with this digest lies."""
        return self._folder / f"{digest}.cubin"

    def add(self, digest: str, binary: bytes) -> None:
        """Store a program; an intact one that is already there is kept."""
        path = self.path(digest)
        if self.intact(digest):
            return
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        temporary.write_bytes(binary)
        temporary.replace(path)

    def intact(self, digest: str) -> bool:
        """Whether the program is there and has its digest."""
        try:
            self.read(digest)
        except (OSError, BlobDigestError):
            return False
        return True

    def read(self, digest: str) -> bytes:
        """The program's bytes.

        Raises:
            BlobDigestError: the file's bytes have another digest.
        """
        binary = self.path(digest).read_bytes()
        if hashlib.sha256(binary).hexdigest() != digest:
            raise BlobDigestError(
                f"{self.path(digest)}: bytes differ from the digest in the file's name",
                advice="Delete the file and resume; the program is compiled again.",
            )
        return binary
