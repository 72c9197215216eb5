"""Where the trust store lies, and who may have written it."""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from rltune.errors import TrustStoreError

TRUST_DIR_VARIABLE = "RLTUNE_TRUST_DIR"
SYSTEM_TRUST_DIR = Path("/etc/rltune/trust")

MAX_TRUST_BYTES = 2**20
"""Largest ``trust.json`` or key file that is read."""

_AT_SECURE = 23
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def running_privileged() -> bool:
    """Whether this process has more rights than who started it (AT_SECURE)."""
    try:
        getauxval = ctypes.CDLL(None).getauxval
    except (OSError, AttributeError):
        return os.geteuid() != os.getuid() or os.getegid() != os.getgid()
    getauxval.restype, getauxval.argtypes = ctypes.c_ulong, [ctypes.c_ulong]
    return bool(getauxval(_AT_SECURE))


def find_trust_store(
    argument: Path | None, environ: Mapping[str, str], *, privileged: bool | None = None
) -> Path | None:
    """The folder to load, or None if none is named and the system has none.

    Args:
        argument: what the caller names; comes first.
        environ: environment variables; ``RLTUNE_TRUST_DIR`` comes second.
        privileged: whether the environment is the caller's who must not choose;
            asked of the system if None.

    Raises:
        TrustStoreError: the folder that is named does not exist.
    """
    if argument is not None:
        return _existing(argument, "the argument")
    named = environ.get(TRUST_DIR_VARIABLE, "")
    if named and not (running_privileged() if privileged is None else privileged):
        return _existing(Path(named), TRUST_DIR_VARIABLE)
    return SYSTEM_TRUST_DIR if SYSTEM_TRUST_DIR.is_dir() else None


def _existing(path: Path, named_by: str) -> Path:
    if not path.is_dir():
        raise TrustStoreError(
            f"{path}: {named_by} names it as trust store, and it is no folder",
            advice="Name a folder that holds trust.json.",
        )
    return path


class TrustFolder:
    """An open trust folder; files are read relative to it.

    Args:
        path: the folder.

    Raises:
        TrustStoreError: it cannot be opened, or others may write to it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            raise TrustStoreError(f"{path}: cannot be opened: {error}") from None

    def __enter__(self) -> Self:
        try:
            _check_writers(self.path, self._descriptor, sticky_is_fine=True)
        except TrustStoreError:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    def read(self, name: str) -> bytes:
        """Read a file of the folder.

        Raises:
            TrustStoreError: it cannot be read, is too large, or others may write to it.
        """
        path = self.path / name
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        try:
            descriptor = os.open(name, flags, dir_fd=self._descriptor)
        except (OSError, ValueError) as error:
            raise TrustStoreError(f"{path}: cannot be opened: {error}") from None
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise TrustStoreError(f"{path}: expected a regular file")
            _check_writers(path, descriptor, sticky_is_fine=False)
            data = _read_all(descriptor)
        finally:
            os.close(descriptor)
        if len(data) > MAX_TRUST_BYTES:
            raise TrustStoreError(f"{path}: expected at most {MAX_TRUST_BYTES} bytes")
        return data


def _read_all(descriptor: int) -> bytes:
    """Bytes of a file up to one more than is allowed."""
    data = bytearray()
    while len(data) <= MAX_TRUST_BYTES:
        piece = os.read(descriptor, MAX_TRUST_BYTES + 1 - len(data))
        if not piece:
            break
        data += piece
    return bytes(data)


def _check_writers(path: Path, descriptor: int, *, sticky_is_fine: bool) -> None:
    status = os.fstat(descriptor)
    if status.st_uid not in (0, os.geteuid()):
        raise TrustStoreError(
            f"{path}: owned by user {status.st_uid}, expected root or user {os.geteuid()}",
            advice="Change its owner.",
        )
    if not status.st_mode & _OTHERS_WRITE or (sticky_is_fine and status.st_mode & stat.S_ISVTX):
        return
    if os.fstatvfs(descriptor).f_flag & os.ST_RDONLY:
        return
    raise TrustStoreError(
        f"{path}: group or others may write to it, mode {stat.S_IMODE(status.st_mode):04o}",
        advice=f"Run chmod go-w {path}.",
    )
