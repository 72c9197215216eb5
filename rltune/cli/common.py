"""What several commands need: passphrases, times, paths, output formats."""

from __future__ import annotations

import json
import os
import sys
from datetime import UTC, datetime
from enum import StrEnum
from getpass import getpass
from pathlib import Path

import typer

from rltune.bundle.fields import parse_time
from rltune.bundle.trust import TrustStore, find_trust_store, load_trust_store
from rltune.core.operator import OperatorSpec
from rltune.errors import TrustStoreError, UsageError

_MAX_PASSPHRASE_BYTES = 4096


class OutputFormat(StrEnum):
    """How a command writes its data."""

    TEXT = "text"
    JSON = "json"


def installed_operators() -> tuple[OperatorSpec, ...]:
    """The operators installed here. Loads no bundle: the commands judge bundles themselves."""
    os.environ["RLTUNE_MODE"] = "off"
    import rltune_kernels

    return rltune_kernels.operator_specs()


def require_file(path: Path) -> None:
    """Check that a file named on the command line is there.

    Raises:
        UsageError: it is not.
    """
    if not path.exists():
        raise UsageError(f"{path}: no such file", advice="Check the path.")


def open_trust_store(argument: Path | None) -> TrustStore:
    """The trust store of this machine.

    Args:
        argument: what the command line names, or None.

    Raises:
        TrustStoreError: there is none, or it cannot be used.
    """
    directory = find_trust_store(argument, os.environ)
    if directory is None:
        raise TrustStoreError(
            "no trust store: neither --trust-dir nor RLTUNE_TRUST_DIR is given, and "
            "/etc/rltune/trust does not exist",
            advice="Name one with --trust-dir, or make one with rltune keygen.",
        )
    return load_trust_store(directory)


def read_instant(text: str | None) -> datetime:
    """The instant ``--now`` names, the present one if it is not given.

    Raises:
        UsageError: it is no RFC 3339 UTC time.
    """
    if text is None:
        return datetime.now(UTC)
    instant = parse_time(text)
    if instant is None:
        raise UsageError(f"--now: expected a UTC time such as 2026-12-01T09:30:00Z, got {text!a}")
    return instant


def read_passphrase(descriptor: int) -> bytes:
    """The first line of a file descriptor.

    Raises:
        UsageError: the descriptor cannot be read, or the line is empty.
    """
    data = bytearray()
    try:
        while b"\n" not in data and len(data) <= _MAX_PASSPHRASE_BYTES:
            piece = os.read(descriptor, _MAX_PASSPHRASE_BYTES)
            if not piece:
                break
            data += piece
    except OSError as error:
        raise UsageError(f"--passphrase-fd {descriptor}: {error.strerror}") from None
    passphrase = bytes(data).partition(b"\n")[0]
    if not passphrase:
        raise UsageError(f"--passphrase-fd {descriptor}: no passphrase there")
    return passphrase


def ask_passphrase(prompt: str) -> bytes:
    """Ask at the terminal.

    Raises:
        UsageError: there is no terminal, or the answer is empty.
    """
    if not sys.stdin.isatty():
        raise UsageError(
            "a passphrase is needed, and there is no terminal to ask at",
            advice="Give it with --passphrase-fd.",
        )
    passphrase = getpass(prompt).encode("utf-8")
    if not passphrase:
        raise UsageError("the passphrase is empty")
    return passphrase


def print_json(value: object) -> None:
    """Write one JSON document to standard output."""
    typer.echo(json.dumps(value, indent=2))
