"""The plan of a sweep: what is compiled, qualified and measured, in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rltune.bundle.schema_v1 import Target
from rltune.core import canonical
from rltune.core.launch import LaunchConfig
from rltune.core.operator import KernelSpec, OperatorSpec
from rltune.core.shapes import ShapeKey
from rltune.errors import PresetError
from rltune.sweep.preset import Budget, Cases, MeasurementCases, Preset, keys


@dataclass(frozen=True, kw_only=True, slots=True)
class QualificationCase:
    """One set of inputs whose output bytes are compared.

    Attributes:
        tokens: size of the dynamic axis.
        seed: seed of the generator.
        generator: name in the input battery.
    """

    tokens: int
    seed: int
    generator: str

    @property
    def case_id(self) -> str:
        """Stable id, such as ``tokens=17,seed=1,normal``."""
        return f"tokens={self.tokens},seed={self.seed},{self.generator}"


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelPlan:
    """Everything planned for one kernel and structural key.

    Attributes:
        kernel: the kernel.
        key: structural key.
        baseline: the fixed launch.
        candidates: launch configs under trial, without the baseline.
        control: planted launch config that qualification must reject, or None.
        qualification: cases whose bytes are compared.
        measurement: token counts to time, ascending, with their label.
    """

    kernel: KernelSpec
    key: ShapeKey
    baseline: LaunchConfig
    candidates: tuple[LaunchConfig, ...]
    control: LaunchConfig | None
    qualification: tuple[QualificationCase, ...]
    measurement: tuple[tuple[int, str], ...]

    @property
    def plan_id(self) -> str:
        """Name of this part of the plan, such as ``silu/forward bf16,intermediate_size=256``."""
        return f"{self.kernel.kernel_id} {self.key}"

    @property
    def launches(self) -> dict[str, LaunchConfig]:
        """Baseline, candidates and control by candidate id, in that order."""
        extra = () if self.control is None else (self.control,)
        return {item.candidate_id: item for item in (self.baseline, *self.candidates, *extra)}

    def axes(self, tokens: int) -> dict[str, int]:
        """Sizes by axis name for a token count."""
        return {**dict(self.key.axes), self.kernel.dynamic_axis: tokens}

    def to_json(self) -> dict[str, object]:
        """The plan as it enters the plan digest."""
        return {
            "kernel": self.kernel.kernel_id,
            "key": self.key.to_json(),
            "baseline": self.baseline.candidate_id,
            "candidates": [item.candidate_id for item in self.candidates],
            "control": None if self.control is None else self.control.candidate_id,
            "qualification": [case.case_id for case in self.qualification],
            "measurement": [list(point) for point in self.measurement],
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """A whole sweep.

    Attributes:
        parts: one per kernel and structural key, in order.
        budget: how much to spend.
        target: device, driver and toolchain it is made for.
        fingerprints: source fingerprint by kernel id.
    """

    parts: tuple[KernelPlan, ...]
    budget: Budget
    target: Mapping[str, object]
    fingerprints: Mapping[str, str]

    def digest(self) -> str:
        """Hex digest of everything that decides the sweep's course."""
        return canonical.digest(
            {
                "parts": [part.to_json() for part in self.parts],
                "budget": self.budget.model_dump(mode="json"),
                "target": dict(self.target),
                "fingerprints": dict(self.fingerprints),
            }
        )


def plan_parts(preset: Preset, operators: Sequence[OperatorSpec]) -> tuple[KernelPlan, ...]:
    """Lay out the parts of a preset over the installed operators.

    Raises:
        PresetError: the preset names an operator, kernel or axis that does not exist.
    """
    by_name = {spec.name: spec for spec in operators}
    cases: dict[tuple[str, str, ShapeKey], list[QualificationCase]] = {}
    points: dict[tuple[str, str, ShapeKey], dict[int, str]] = {}
    for table in preset.qualification:
        for slot in _slots(table, by_name):
            cases.setdefault(slot, []).extend(
                QualificationCase(tokens=tokens, seed=seed, generator=generator)
                for tokens in table.num_tokens
                for seed in table.seeds
                for generator in table.generators
            )
    for measured in preset.measurement:
        for slot in _slots(measured, by_name):
            points.setdefault(slot, {}).update(_labelled(measured))
    return tuple(
        _part(
            by_name[operator].kernel(name),
            key,
            cases[operator, name, key],
            points.get((operator, name, key), {}),
            preset.budget.candidates,
        )
        for operator, name, key in sorted(cases)
    )


def _labelled(table: MeasurementCases) -> dict[int, str]:
    return dict.fromkeys(table.num_tokens, table.label)


def _slots(
    table: Cases, operators: Mapping[str, OperatorSpec]
) -> Iterable[tuple[str, str, ShapeKey]]:
    if table.operator not in operators:
        raise PresetError(
            f"operator {table.operator!r} does not exist; there are {', '.join(sorted(operators))}"
        )
    spec = operators[table.operator]
    names = [kernel.name for kernel in spec.kernels]
    unknown = [name for name in table.kernels if name not in names]
    if unknown:
        raise PresetError(f"{spec.name} has no kernel {unknown[0]!r}; it has {', '.join(names)}")
    for kernel in spec.kernels:
        if table.kernels and kernel.name not in table.kernels:
            continue
        expected = set(kernel.structural_axes)
        if set(table.axes) != expected:
            raise PresetError(
                f"{kernel.kernel_id}: expected the axes {', '.join(sorted(expected))}, "
                f"found {', '.join(sorted(table.axes)) or 'none'}"
            )
        for key in keys(table):
            yield spec.name, kernel.name, key


def _part(
    kernel: KernelSpec,
    key: ShapeKey,
    cases: Sequence[QualificationCase],
    points: Mapping[int, str],
    limit: int,
) -> KernelPlan:
    baseline = kernel.baseline(key)
    candidates = [item for item in dict.fromkeys(kernel.candidates(key)) if item != baseline]
    if limit and len(candidates) > limit:
        candidates = [candidates[index * len(candidates) // limit] for index in range(limit)]
    return KernelPlan(
        kernel=kernel,
        key=key,
        baseline=baseline,
        candidates=tuple(candidates),
        control=kernel.control(key) if kernel.control else None,
        qualification=tuple(dict.fromkeys(cases)),
        measurement=tuple(sorted(points.items())),
    )


def target_facts(target: Target) -> dict[str, object]:
    """The facts of a target that bind a plan: a journal of another machine is refused."""
    device = target.device
    return {
        "kind": target.kind,
        "device": [
            device.name,
            device.compute_capability,
            device.multiprocessor_count,
            device.memory_bytes,
            device.partition,
        ],
        "drivers": [driver.version for driver in target.drivers],
        "arch": target.compile_target.arch,
        "triton": target.triton,
        "ptxas": target.ptxas,
        "codegen_environment": dict(target.codegen_environment),
        "torch": target.torch.value,
        "unit": target.unit.value,
    }
