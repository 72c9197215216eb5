"""``RLTUNE_PIN_<KERNEL>``: one launch config by hand, for debugging.

Only launch configs of the kernel's own space are accepted, so a pin can change
the speed of a run and which program computes it, never what a kernel may be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from rltune.core.launch import LaunchConfig
from rltune.core.operator import KernelSpec
from rltune.core.shapes import ShapeKey
from rltune.errors import UsageError

PREFIX = "RLTUNE_PIN_"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pin:
    """One variable, decoded.

    Attributes:
        variable: its name.
        text: its value.
        fields: knobs and options by name, such as ``BLOCK`` or ``num_warps``.
    """

    variable: str
    text: str
    fields: Mapping[str, int]


def variable_of(kernel_id: str) -> str:
    """Name of the variable that pins ``kernel_id``."""
    return PREFIX + kernel_id.upper().replace("/", "_")


def read_pins(environ: Mapping[str, str]) -> Mapping[str, Pin]:
    """All pins of the environment, by variable.

    Raises:
        UsageError: a value is not ``key=value,key=value`` with whole numbers.
    """
    names = sorted(name for name in environ if name.startswith(PREFIX))
    return MappingProxyType({name: _decode(name, environ[name]) for name in names})


def check_names(pins: Mapping[str, Pin], kernel_ids: Iterable[str]) -> None:
    """Refuse pins of kernels that do not exist.

    Raises:
        UsageError: a variable names no registered kernel.
    """
    known = {variable_of(kernel_id) for kernel_id in kernel_ids}
    for name in pins:
        if name not in known:
            raise UsageError(
                f"{name} pins no registered kernel; expected one of {', '.join(sorted(known))}"
            )


def pinned_config(pin: Pin, kernel: KernelSpec, key: ShapeKey) -> LaunchConfig:
    """The one launch config of the kernel's space that ``pin`` names.

    Raises:
        UsageError: no config of the space fits, or several do.
    """
    space = (kernel.baseline(key), *kernel.candidates(key))
    fitting = [config for config in dict.fromkeys(space) if _fits(pin, config)]
    if len(fitting) == 1:
        return fitting[0]
    found = ", ".join(f"({config.candidate_id})" for config in fitting or space)
    what = "fits several launch configs" if fitting else "is no launch config"
    raise UsageError(
        f"{pin.variable}={pin.text} {what} of {kernel.kernel_id} for {key}: {found}",
        advice="Name enough knobs to single out one of the listed launch configs.",
    )


def _fits(pin: Pin, config: LaunchConfig) -> bool:
    values = {**config.options(), **dict(config.knobs)}
    return all(name in values and values[name] == value for name, value in pin.fields.items())


def _decode(name: str, text: str) -> Pin:
    fields: dict[str, int] = {}
    for part in text.split(","):
        field, mark, number = part.strip().partition("=")
        if not mark or not field or not number.isascii() or not number.isdigit() or field in fields:
            raise UsageError(
                f"{name}={text}: expected key=value,... with whole numbers and each key once, "
                f"got {part.strip()!r}"
            )
        fields[field] = int(number)
    return Pin(variable=name, text=text, fields=MappingProxyType(fields))
