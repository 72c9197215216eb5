"""``rltune sign``: add a signature to a bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rltune.bundle.signing import is_encrypted, key_id, load_private_key, sign_bundle
from rltune.cli.common import ask_passphrase, read_passphrase, require_file
from rltune.errors import UsageError


def sign(
    file: Annotated[Path, typer.Argument(help="The bundle.")],
    key: Annotated[Path, typer.Option(help="Private key, PKCS#8 PEM, mode 0600.")],
    passphrase_fd: Annotated[
        int | None, typer.Option(min=0, help="Read the passphrase from this descriptor.")
    ] = None,
) -> None:
    """Sign a bundle in place; other keys' signatures stay."""
    require_file(file)
    passphrase = None
    if passphrase_fd is not None:
        passphrase = read_passphrase(passphrase_fd)
    elif is_encrypted(key):
        passphrase = ask_passphrase(f"Passphrase of {key}: ")
    private_key = load_private_key(key, passphrase)
    try:
        sign_bundle(file, private_key)
    except OSError as error:
        raise UsageError(f"{file}: cannot be rewritten: {error.strerror}") from None
    typer.echo(f"{file}: signed by {key_id(private_key.public_key())}", err=True)
