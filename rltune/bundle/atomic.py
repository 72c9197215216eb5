"""Replace a file whole or not at all, and one writer at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path


def write_atomically(path: Path, chunks: Iterable[bytes], *, mode: int | None = None) -> None:
    """Write ``chunks`` to ``path``; on any failure what was there stays as it was.

    Args:
        path: the file; where it is a symlink, the file it points to.
        chunks: the content, in order.
        mode: permission bits; as the umask says if None.

    Raises:
        OSError: the folder is missing or the disk is full.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name[:200]}.{secrets.token_hex(8)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Wait until nobody else is in this context for the same file, then hold it.

    A file beside the target is locked, not the target: replacing that would take the
    lock away, and a read-only file cannot be locked on a network file system.

    Args:
        path: the file; where it is a symlink, the file it points to.

    Raises:
        OSError: the folder cannot be written to, or its file system has no locks.
    """
    target = Path(os.path.realpath(path))
    lock = target.with_name(f".{target.name[:200]}.lock")
    descriptor = _take(lock)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        os.close(descriptor)


def _take(lock: Path) -> int:
    """A locked descriptor of the file that is at ``lock`` now."""
    while True:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(lock, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # the one before us removed it, and another file may be there already
            if _is_at(descriptor, lock):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
