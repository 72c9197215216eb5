"""Take typed fields out of decoded JSON; every refusal names the JSON path."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime

from rltune.errors import BundleError, RltuneError

TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_PART = r"[a-z0-9][a-z0-9._-]*"
_STREAM = re.compile(rf"{_PART}(?:/{_PART}/{_PART})?", re.ASCII)
_SHOWN = 60


class Fields:
    """The fields of one JSON object, taken out by type.

    Args:
        value: the decoded value.
        where: its JSON path.
        names: fields that must be there; no others may be.
        optional: fields that may be there.
        error: class of what is raised.
    """

    __slots__ = ("_error", "_value", "where")

    def __init__(
        self,
        value: object,
        where: str,
        names: Collection[str],
        *,
        optional: Collection[str] = (),
        error: type[RltuneError] = BundleError,
    ) -> None:
        self.where = where
        self._error = error
        if not isinstance(value, dict):
            raise error(f"{where}: expected an object, got {shown(value)}")
        self._value: dict[str, object] = value
        if value.keys() != set(names):
            self._check_names(names, optional)

    def _check_names(self, names: Collection[str], optional: Collection[str]) -> None:
        missing = [name for name in names if name not in self._value]
        if missing:
            raise self._error(f"{self.where}: field {missing[0]!r} is missing")
        unknown = [name for name in self._value if name not in names and name not in optional]
        if unknown:
            raise self._error(f"{self.where}: unknown field {shown(unknown[0])}")

    def __contains__(self, name: str) -> bool:
        return name in self._value

    def path(self, name: str) -> str:
        """JSON path of a field."""
        return f"{self.where}.{name}"

    def raw(self, name: str) -> object:
        """The value of a field, of any type."""
        return self._value[name]

    def text(self, name: str) -> str:
        """A non-empty text without control characters, fit for a terminal."""
        value = self._value[name]
        if type(value) is not str or not value or not value.isprintable():
            raise self._wrong(name, "a text of printable characters")
        return value

    def choice(self, name: str, options: Collection[str]) -> str:
        """One of the given texts."""
        value = self._value[name]
        if type(value) is not str or value not in options:
            raise self._wrong(name, " or ".join(repr(item) for item in options))
        return value

    def sha256(self, name: str) -> str:
        """A sha256 as 64 lower-case hex digits."""
        return self._sha256(self._value[name], name)

    def _sha256(self, value: object, name: str) -> str:
        if type(value) is not str or not _SHA256.fullmatch(value):
            raise self._error(
                f"{self.path(name)}: expected 64 lower-case hex digits, got {shown(value)}"
            )
        return value

    def sha256_list(self, name: str) -> tuple[str, ...]:
        """A list of sha256 digests, each at most once."""
        items = self._list(name)
        digests = tuple(self._sha256(item, f"{name}[{index}]") for index, item in enumerate(items))
        if len(set(digests)) != len(digests):
            raise self._error(f"{self.path(name)}: expected each entry once")
        return digests

    def integer(self, name: str, least: int = 0) -> int:
        """An integer of at least ``least``; true and false are none."""
        value = self._value[name]
        if type(value) is not int or value < least:
            raise self._wrong(name, f"an integer of at least {least}")
        return value

    def boolean(self, name: str) -> bool:
        """True or false."""
        value = self._value[name]
        if type(value) is not bool:
            raise self._wrong(name, "true or false")
        return value

    def time(self, name: str) -> str:
        """An RFC 3339 UTC time, to the second."""
        value = self._value[name]
        if type(value) is not str or parse_time(value) is None:
            raise self._wrong(name, "a UTC time such as 2026-12-01T09:30:00Z")
        return value

    def instant(self, name: str) -> datetime:
        """The same, as a datetime."""
        return datetime.strptime(self.time(name), TIME_FORMAT).replace(tzinfo=UTC)

    def stream(self, name: str) -> str:
        """A stream name."""
        value = self._value[name]
        if type(value) is not str or not is_stream(value):
            raise self._wrong(name, "a stream such as product/device-class/channel")
        return value

    def items(self, name: str) -> Iterator[tuple[object, str]]:
        """The elements of a list, each with its JSON path."""
        where = self.path(name)
        for index, item in enumerate(self._list(name)):
            yield item, f"{where}[{index}]"

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts, which may hold any character."""
        for item, where in self.items(name):
            if type(item) is not str:
                raise self._error(f"{where}: expected a text, got {shown(item)}")
        return tuple(str(item) for item in self._list(name))

    def text_map(self, name: str) -> Mapping[str, str]:
        """An object whose values are texts."""
        value = self._value[name]
        if not isinstance(value, dict):
            raise self._wrong(name, "an object")
        inner = Fields(value, self.path(name), tuple(value), error=self._error)
        return {key: inner.text(key) for key in value}

    def _list(self, name: str) -> list[object]:
        value = self._value[name]
        if not isinstance(value, list):
            raise self._wrong(name, "a list")
        return value

    def _wrong(self, name: str, expected: str) -> RltuneError:
        return self._error(
            f"{self.path(name)}: expected {expected}, got {shown(self._value[name])}"
        )


def shown(value: object) -> str:
    """A value for a message: escaped and cut."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = ascii(value[:_SHOWN] if isinstance(value, str) else value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def is_stream(text: str) -> bool:
    """Whether ``text`` names a stream: product/device class/channel, or one word."""
    return _STREAM.fullmatch(text) is not None


def parse_time(text: str) -> datetime | None:
    """The UTC time ``text`` stands for, or None if it is no such time."""
    if not _TIME.fullmatch(text):
        return None
    try:
        return datetime.strptime(text, TIME_FORMAT).replace(tzinfo=UTC)
    except ValueError:
        return None


def format_time(instant: datetime) -> str:
    """RFC 3339 UTC text of an aware datetime, to the second."""
    return instant.astimezone(UTC).strftime(TIME_FORMAT)
