"""Presets: the declared cases of a sweep, read from TOML.

Qualification cases and measurement cases are separate lists: the first are
small and odd, chosen to expose another result; the second are real model
shapes, chosen to expose another time.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from rltune.core import canonical
from rltune.core.shapes import ShapeKey
from rltune.errors import PresetError
from rltune.sweep.inputs import BATTERY

PositiveInt = Annotated[int, Field(ge=1, strict=True)]
Dtype = Literal["bf16", "fp16", "fp32"]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Budget(_Table):
    """How much to spend.

    Attributes:
        repeats: launches of each candidate per qualification input, at least 2.
        screen_samples: timing samples per candidate and point in the first pass.
        confirm_samples: timing samples per finalist, point and process.
        processes: fresh processes of the confirmation, at least 5.
        finalists: candidates confirmed per point.
        candidates: most candidates per kernel and key, spread evenly over the space;
            0 for all.
        case_timeout_s: seconds after which a case in hand is given up.
    """

    repeats: PositiveInt = Field(default=2, ge=2)
    screen_samples: PositiveInt = 5
    confirm_samples: PositiveInt = 5
    processes: PositiveInt = Field(default=5, ge=5)
    finalists: PositiveInt = 2
    candidates: int = Field(default=0, ge=0, strict=True)
    case_timeout_s: PositiveInt = 120


class Cases(_Table):
    """Fields that qualification and measurement tables share.

    Attributes:
        operator: operator name.
        kernels: kernel names within the operator; empty for all.
        dtypes: element types.
        axes: structural axes by name.
        num_tokens: sizes of the dynamic axis.
    """

    operator: str
    kernels: list[str] = []
    dtypes: list[Dtype] = Field(min_length=1)
    axes: dict[str, PositiveInt]
    num_tokens: list[PositiveInt] = Field(min_length=1)


class QualificationCases(Cases):
    """Cases whose bytes are compared.

    Attributes:
        seeds: seeds of the input battery.
        generators: names in the input battery; all of it if left out.
    """

    seeds: list[int] = Field(min_length=1)
    generators: list[str] = Field(default=list(BATTERY), min_length=1)

    @field_validator("generators")
    @classmethod
    def _known(cls, names: list[str]) -> list[str]:
        for name in names:
            if name not in BATTERY:
                raise ValueError(f"expected names of {', '.join(BATTERY)}, found {name!r}")
        return names


class MeasurementCases(Cases):
    """Cases that are timed.

    Attributes:
        label: ``small``, ``odd`` or ``throughput``.
    """

    label: Literal["small", "odd", "throughput"]


class Preset(_Table):
    """One preset file.

    Attributes:
        format: ``rltune-preset/1``.
        name: preset name, equal to the file's stem.
        summary: one line.
        source: where the shapes come from.
        budget: how much to spend.
        qualification: cases whose bytes are compared.
        measurement: cases that are timed.
    """

    format: Literal["rltune-preset/1"]
    name: str
    summary: str
    source: str
    budget: Budget = Budget()
    qualification: list[QualificationCases] = Field(min_length=1)
    measurement: list[MeasurementCases] = Field(min_length=1)

    def digest(self) -> str:
        """Hex digest of the preset as parsed; comments and order of fields do not count."""
        return canonical.digest(self.model_dump(mode="json"))


def keys(cases: Cases) -> Iterator[ShapeKey]:
    """The structural keys of a table, one per dtype."""
    for dtype in cases.dtypes:
        yield ShapeKey.of(dtype, cases.axes)


def parse_preset(text: str, where: str) -> Preset:
    """Parse and check a preset.

    Args:
        text: TOML.
        where: file name, for the message.

    Raises:
        PresetError: names the file, the field, and what was expected and found.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PresetError(f"{where}: not TOML: {error}", advice="Mend the line named.") from None
    try:
        preset = Preset.model_validate(document)
    except ValidationError as error:
        raise PresetError(f"{where}: {_first(error)}", advice="Mend the field named.") from None
    _check_measured_is_qualified(preset, where)
    return preset


def _first(error: ValidationError) -> str:
    problem = error.errors()[0]
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"])
    found = problem["input"]
    shown = "" if isinstance(found, Mapping) else f", found {found!r}"
    return f"{path.lstrip('.')}: {problem['msg']}{shown}"


def _check_measured_is_qualified(preset: Preset, where: str) -> None:
    qualified = {(cases.operator, key) for cases in preset.qualification for key in keys(cases)}
    for index, cases in enumerate(preset.measurement):
        for key in keys(cases):
            if (cases.operator, key) not in qualified:
                raise PresetError(
                    f"{where}: measurement[{index}]: {cases.operator} {key} is measured "
                    "but has no [[qualification]] table with the same operator, dtype and axes",
                    advice="Add one: nothing is timed before its bytes are compared.",
                )


def built_in_presets() -> Mapping[str, Path]:
    """Presets that ship with the package, by name."""
    folder = Path(str(resources.files("rltune"))) / "presets"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def load_preset(name_or_path: str) -> Preset:
    """Load a built-in preset by name, or any by the path of a TOML file.

    Raises:
        PresetError: there is no such preset, or it is malformed.
    """
    built_in = built_in_presets()
    path = built_in.get(name_or_path, Path(name_or_path))
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PresetError(
            f"{name_or_path}: neither a built-in preset ({', '.join(built_in)}) "
            f"nor a readable file: {error}",
            advice="See `rltune presets`.",
        ) from None
    return parse_preset(text, str(path))
