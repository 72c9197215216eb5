"""``rltune keygen``: an Ed25519 key, and a trust store that accepts it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from rltune.bundle.atomic import exclusive
from rltune.bundle.fields import is_stream
from rltune.bundle.signing import encode_public_key, generate_key, key_id
from rltune.bundle.trust import (
    TRUST_FILE,
    StreamRule,
    TrustedKey,
    TrustStore,
    load_trust_store,
    make_trust_dir,
    write_trust_store,
)
from rltune.cli.common import ask_passphrase, read_passphrase
from rltune.errors import KeyFileError, UsageError


def keygen(
    key: Annotated[Path, typer.Option(help="File for the private key; must not exist.")],
    trust_dir: Annotated[
        Path | None, typer.Option(help="Trust store that shall accept the key.")
    ] = None,
    stream: Annotated[
        str | None, typer.Option(help="Stream it may sign: product/device-class/channel.")
    ] = None,
    valid_days: Annotated[int, typer.Option(min=1, help="How long it is accepted.")] = 365,
    encrypt: Annotated[bool, typer.Option("--encrypt", help="Ask for a passphrase.")] = False,
    passphrase_fd: Annotated[
        int | None, typer.Option(min=0, help="Read the passphrase from this descriptor.")
    ] = None,
) -> None:
    """Make a signing key, readable by its owner only, and its public key beside it."""
    if (trust_dir is None) != (stream is None):
        raise UsageError("--trust-dir and --stream: give both or neither")
    if stream is not None and not is_stream(stream):
        raise UsageError(f"--stream: expected product/device-class/channel, got {stream!a}")
    now = datetime.now(UTC).replace(microsecond=0)
    if trust_dir:  # before anything is written: a store that cannot be extended costs no key
        _load_or_begin(trust_dir, now, valid_days)
    public_path = key.with_name(f"{key.stem}.pub.pem")
    if public_path.exists():
        raise KeyFileError(f"{public_path}: exists", advice="Name another key file.")
    public_key = generate_key(key, _passphrase(encrypt, passphrase_fd)).public_key()
    public_path.write_bytes(encode_public_key(public_key))
    if trust_dir and stream:
        make_trust_dir(trust_dir)
        with exclusive(trust_dir / TRUST_FILE):
            store = _load_or_begin(trust_dir, now, valid_days)
            write_trust_store(trust_dir, _extend(store, public_key, stream, now, valid_days))
        typer.echo(f"{trust_dir / TRUST_FILE} accepts it for stream {stream}", err=True)
    typer.echo(f"private key {key}, public key {public_path}; key id:", err=True)
    typer.echo(key_id(public_key))


def _passphrase(encrypt: bool, descriptor: int | None) -> bytes | None:
    if descriptor is not None:
        return read_passphrase(descriptor)
    if not encrypt:
        return None
    passphrase = ask_passphrase("Passphrase: ")
    if ask_passphrase("Again: ") != passphrase:
        raise UsageError("the two passphrases differ")
    return passphrase


def _load_or_begin(trust_dir: Path, now: datetime, valid_days: int) -> TrustStore:
    where = trust_dir / TRUST_FILE
    if where.exists():
        return load_trust_store(trust_dir)
    return TrustStore(where=where, expires=now + timedelta(days=valid_days), keys=(), streams=())


def _extend(
    store: TrustStore, public_key: Ed25519PublicKey, stream: str, now: datetime, valid_days: int
) -> TrustStore:
    added = TrustedKey(
        key_id=key_id(public_key),
        public_key=public_key,
        not_before=now,
        not_after=now + timedelta(days=valid_days),
    )
    rule = store.stream(stream) or StreamRule(
        stream=stream, key_ids=(), threshold=1, min_sequence=0
    )
    rule = replace(rule, key_ids=(*rule.key_ids, added.key_id))
    others = tuple(item for item in store.streams if item.stream != stream)
    return replace(store, keys=(*store.keys, added), streams=(*others, rule))
