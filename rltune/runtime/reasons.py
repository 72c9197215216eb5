"""Why a call takes the launch it takes: small frozen values, one a case."""

from __future__ import annotations

from dataclasses import dataclass

from rltune.bundle.schema_v1 import Launch
from rltune.core.launch import LaunchConfig
from rltune.core.shapes import ShapeKey, TokenRange
from rltune.runtime.device import Difference


@dataclass(frozen=True, kw_only=True, slots=True)
class ModeOff:
    """Tuning is switched off."""

    def __str__(self) -> str:
        return "RLTUNE_MODE=off"


@dataclass(frozen=True, kw_only=True, slots=True)
class NoBundle:
    """No bundle was found, or none was accepted."""

    def __str__(self) -> str:
        return "no bundle is loaded"


@dataclass(frozen=True, kw_only=True, slots=True)
class Undecided:
    """No bundle that fits this device decides the kernel or its key.

    Attributes:
        what: kernel id, with the key where the kernel itself is decided.
    """

    what: str

    def __str__(self) -> str:
        return f"no loaded bundle decides {self.what}"


@dataclass(frozen=True, kw_only=True, slots=True)
class TargetDiffers:
    """A bundle decides the kernel, for another target.

    Attributes:
        bundle: path of the bundle.
        differences: fields with what was expected and what is here.
    """

    bundle: str
    differences: tuple[Difference, ...]

    def __str__(self) -> str:
        fields = "; ".join(str(item) for item in self.differences)
        return f"{self.bundle} is for another target: {fields}"


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceDiffers:
    """A bundle decides the kernel, made from other source.

    Attributes:
        bundle: path of the bundle.
        expected: source fingerprint in the bundle.
        found: fingerprint of the installed source, or why it has none.
    """

    bundle: str
    expected: str
    found: str

    def __str__(self) -> str:
        return (
            f"{self.bundle} was made from other source: "
            f"fingerprint: expected {self.expected}, found {self.found}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Clash:
    """Two streams decide the same counts of one kernel and key, so neither does.

    Attributes:
        kernel: kernel id.
        key: structural key.
        bundles: paths of the two bundles.
    """

    kernel: str
    key: ShapeKey
    bundles: tuple[str, str]

    def __str__(self) -> str:
        return f"{self.bundles[0]} and {self.bundles[1]} both decide {self.kernel} for {self.key}"


@dataclass(frozen=True, kw_only=True, slots=True)
class BaselineDiffers:
    """A bundle's bytes equal those of another baseline than the installed one.

    Attributes:
        bundle: path of the bundle.
        expected: id of the bundle's baseline launch.
        found: id of the installed baseline launch.
    """

    bundle: str
    expected: str
    found: str

    def __str__(self) -> str:
        return (
            f"{self.bundle} was qualified against another baseline: "
            f"launch_config: expected {self.expected}, found {self.found}"
        )


MissReason = (
    ModeOff | NoBundle | Undecided | TargetDiffers | SourceDiffers | BaselineDiffers | Clash
)
"""Why the fixed launch is taken without a bundle's program."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Hit:
    """A bundle selects a launch for this count.

    Attributes:
        bundle: path of the bundle.
        tokens: the counts the selection holds for.
        launch: the selected launch.
        why: the sweep's reason.
    """

    bundle: str
    tokens: TokenRange
    launch: Launch
    why: str

    def __str__(self) -> str:
        return f"{self.bundle} selects it for {self.tokens.first}..{self.tokens.last}: {self.why}"


@dataclass(frozen=True, kw_only=True, slots=True)
class BaselineKept:
    """A bundle decides the key and keeps the baseline for this count.

    Attributes:
        bundle: path of the bundle.
        launch: the baseline with its shipped program.
        why: the sweep's reason.
    """

    bundle: str
    launch: Launch
    why: str

    def __str__(self) -> str:
        return f"{self.bundle} keeps the baseline for this count: {self.why}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Pinned:
    """An environment variable fixes the launch config.

    Attributes:
        variable: its name.
        launch_config: the config it names.
    """

    variable: str
    launch_config: LaunchConfig

    def __str__(self) -> str:
        return f"{self.variable} pins it"


@dataclass(frozen=True, kw_only=True, slots=True)
class Miss:
    """No bundle decides: the fixed launch.

    Attributes:
        reasons: one for each bundle that decides the kernel, or one for all.
    """

    reasons: tuple[MissReason, ...]

    def __str__(self) -> str:
        return "; ".join(str(reason) for reason in self.reasons)


Lookup = Hit | BaselineKept | Pinned | Miss
"""Outcome of a lookup."""
