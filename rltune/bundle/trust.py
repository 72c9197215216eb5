"""The trust store: which keys may speak for which stream.

``trust.json`` is edited by people, so its layout is free; its content is strict.
``docs/bundle-format.md`` is normative.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NoReturn

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from rltune.bundle.atomic import write_atomically
from rltune.bundle.fields import Fields, format_time, shown
from rltune.bundle.keys import decode_public_key, encode_public_key, key_id
from rltune.bundle.trust_files import TrustFolder, find_trust_store, running_privileged
from rltune.errors import KeyFileError, TrustStoreError

__all__ = [
    "TRUST_FILE",
    "StreamRule",
    "TrustStore",
    "TrustedKey",
    "find_trust_store",
    "load_trust_store",
    "running_privileged",
    "write_trust_store",
]

TRUST_FILE = "trust.json"
VERSION = 1
_LISTS = ("keys", "streams", "revoked_key_ids", "revoked_payload_digests")
_OPTIONAL = ("bind_not_after_at_load",)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrustedKey:
    """A key this machine knows.

    Attributes:
        key_id: hex sha256 of its SPKI DER.
        public_key: the key.
        not_before: first instant at which its signatures count.
        not_after: last instant at which they do.
    """

    key_id: str
    public_key: Ed25519PublicKey
    not_before: datetime
    not_after: datetime


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamRule:
    """Who may sign a stream.

    Attributes:
        stream: product, device class, channel.
        key_ids: keys whose signatures count.
        threshold: how many distinct keys must have signed, at least 1.
        min_sequence: lowest sequence that is accepted.
    """

    stream: str
    key_ids: tuple[str, ...]
    threshold: int
    min_sequence: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TrustStore:
    """What a machine accepts.

    Attributes:
        where: path of the ``trust.json`` it comes from.
        expires: from this instant on nothing is accepted.
        keys: known keys, each once.
        streams: known streams, each once.
        revoked_key_ids: keys whose signatures never count.
        revoked_payload_digests: payloads that are never accepted.
        bind_not_after_at_load: whether a bundle's ``not_after`` binds a loader too.
    """

    where: Path
    expires: datetime
    keys: tuple[TrustedKey, ...]
    streams: tuple[StreamRule, ...]
    revoked_key_ids: tuple[str, ...] = ()
    revoked_payload_digests: tuple[str, ...] = ()
    bind_not_after_at_load: bool = False

    def key(self, wanted_id: str) -> TrustedKey | None:
        """The known key with this id."""
        return next((item for item in self.keys if item.key_id == wanted_id), None)

    def stream(self, name: str) -> StreamRule | None:
        """The rule of a stream."""
        return next((item for item in self.streams if item.stream == name), None)


def load_trust_store(directory: Path) -> TrustStore:
    """Read ``trust.json`` of a folder, and the key files it names.

    Args:
        directory: the folder.

    Raises:
        TrustStoreError: unreadable, writable by others, or malformed; names the
            file and the JSON path.
    """
    where = directory / TRUST_FILE
    with TrustFolder(directory) as folder:
        document = _parse(folder.read(TRUST_FILE), str(where))
        names = ("version", "expires", *_LISTS)
        fields = Fields(document, f"{where}: $", names, optional=_OPTIONAL, error=TrustStoreError)
        if fields.integer("version") != VERSION:
            raise TrustStoreError(f"{fields.path('version')}: expected {VERSION}")
        store = TrustStore(
            where=where,
            expires=fields.instant("expires"),
            keys=tuple(_key(item, path, folder) for item, path in fields.items("keys")),
            streams=tuple(_stream(*item) for item in fields.items("streams")),
            revoked_key_ids=fields.sha256_list("revoked_key_ids"),
            revoked_payload_digests=fields.sha256_list("revoked_payload_digests"),
            bind_not_after_at_load=_OPTIONAL[0] in fields and fields.boolean(_OPTIONAL[0]),
        )
    _check_store(store)
    return store


def make_trust_dir(directory: Path) -> None:
    """Make the folder if it is missing, open to nobody else's writing.

    Raises:
        OSError: it cannot be made.
    """
    if not directory.is_dir():
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o755)


def write_trust_store(directory: Path, store: TrustStore) -> None:
    """Write ``trust.json`` and a PEM file for each key; what is there is replaced.

    Args:
        directory: the folder, made if missing, open to nobody else's writing.
        store: what to write; its ``where`` is not used.

    Raises:
        TrustStoreError: the store contradicts itself.
        OSError: the folder cannot be written.
    """
    _check_store(store)
    make_trust_dir(directory)
    for item in store.keys:
        path = directory / _key_file(item.key_id)
        write_atomically(path, [encode_public_key(item.public_key)], mode=0o644)
    text = json.dumps(_to_json(store), indent=2) + "\n"
    write_atomically(directory / TRUST_FILE, [text.encode("ascii")], mode=0o644)


def _to_json(store: TrustStore) -> dict[str, object]:
    return {
        "version": VERSION,
        "expires": format_time(store.expires),
        "keys": [
            {
                "key_id": item.key_id,
                "file": _key_file(item.key_id),
                "not_before": format_time(item.not_before),
                "not_after": format_time(item.not_after),
            }
            for item in store.keys
        ],
        "streams": [
            {
                "stream": item.stream,
                "key_ids": list(item.key_ids),
                "threshold": item.threshold,
                "min_sequence": item.min_sequence,
            }
            for item in store.streams
        ],
        "revoked_key_ids": list(store.revoked_key_ids),
        "revoked_payload_digests": list(store.revoked_payload_digests),
        "bind_not_after_at_load": store.bind_not_after_at_load,
    }


def _key_file(name: str) -> str:
    return f"{name[:12]}.pub.pem"


def _key(value: object, where: str, folder: TrustFolder) -> TrustedKey:
    names = ("key_id", "not_before", "not_after")
    fields = Fields(value, where, names, optional=("file", "pem"), error=TrustStoreError)
    if ("file" in fields) == ("pem" in fields):
        raise TrustStoreError(f"{where}: expected either 'file' or 'pem'")
    public_key = _public_key(fields, folder)
    if key_id(public_key) != fields.sha256("key_id"):
        raise TrustStoreError(
            f"{fields.path('key_id')}: expected {key_id(public_key)}, the sha256 of this key's "
            f"SPKI DER, got {fields.sha256('key_id')}"
        )
    key = TrustedKey(
        key_id=fields.sha256("key_id"),
        public_key=public_key,
        not_before=fields.instant("not_before"),
        not_after=fields.instant("not_after"),
    )
    if key.not_after < key.not_before:
        raise TrustStoreError(f"{fields.path('not_after')}: expected a time after not_before")
    return key


def _public_key(fields: Fields, folder: TrustFolder) -> Ed25519PublicKey:
    try:
        if "pem" in fields:
            pem = str(fields.raw("pem")).encode("ascii", "replace")
            return decode_public_key(pem, fields.path("pem"))
        name = fields.text("file")
        if os.path.basename(name) != name or name in {".", ".."}:  # noqa: PTH119 - a name, no path
            raise TrustStoreError(
                f"{fields.path('file')}: expected the name of a file in the same folder"
            )
        return decode_public_key(folder.read(name), f"{fields.path('file')}: {name}")
    except KeyFileError as error:
        raise TrustStoreError(error.message, advice=error.advice) from None


def _stream(value: object, where: str) -> StreamRule:
    names = ("stream", "key_ids", "threshold", "min_sequence")
    fields = Fields(value, where, names, error=TrustStoreError)
    return StreamRule(
        stream=fields.stream("stream"),
        key_ids=fields.sha256_list("key_ids"),
        threshold=fields.integer("threshold", 1),
        min_sequence=fields.integer("min_sequence"),
    )


def _check_store(store: TrustStore) -> None:
    _require_unique([item.key_id for item in store.keys], f"{store.where}: $.keys")
    _require_unique([item.stream for item in store.streams], f"{store.where}: $.streams")
    known = {item.key_id for item in store.keys}
    for index, rule in enumerate(store.streams):
        where = f"{store.where}: $.streams[{index}]"
        unknown = [item for item in rule.key_ids if item not in known]
        if unknown:
            raise TrustStoreError(f"{where}.key_ids: {unknown[0]} is not in keys")
        if rule.threshold > len(rule.key_ids):
            raise TrustStoreError(
                f"{where}.threshold: {rule.threshold} signatures, but {len(rule.key_ids)} keys"
            )


def _require_unique(values: list[str], where: str) -> None:
    for index, value in enumerate(values):
        if value in values[:index]:
            raise TrustStoreError(f"{where}[{index}]: {value} occurs twice")


class _Pairs(list[tuple[str, object]]):
    """A JSON object as its pairs, before duplicates are looked for."""


def _parse(data: bytes, where: str) -> object:
    try:
        value = json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_Pairs,
            parse_float=_refuse_number,
            parse_constant=_refuse_number,
        )
        return _unpaired(value, f"{where}: $")
    except (ValueError, RecursionError) as error:
        raise TrustStoreError(f"{where}: not JSON: {error}") from None


def _unpaired(value: object, where: str) -> object:
    if isinstance(value, _Pairs):
        found: dict[str, object] = {}
        for name, item in value:
            if name in found:
                raise TrustStoreError(f"{where}: key {shown(name)} occurs twice")
            found[name] = _unpaired(item, f"{where}.{name}")
        return found
    if isinstance(value, list):
        return [_unpaired(item, f"{where}[{index}]") for index, item in enumerate(value)]
    return value


def _refuse_number(text: str) -> NoReturn:
    raise ValueError(f"number {text[:40]} is not an integer")
