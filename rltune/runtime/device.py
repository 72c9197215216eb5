"""Device facts: what this place is, and how it differs from a bundle's target.

A sweep writes :meth:`DeviceFacts.to_target` of the device it ran on, and a job
compares :func:`probe_device` of the device it uses with it: the same function
on both sides. Matching is exact, never nearest.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from rltune.bundle.schema_v1 import (
    CompileTarget,
    Device,
    Driver,
    RecordedFact,
    Target,
    TargetKind,
)
from rltune.errors import EnvironmentUnfitError
from rltune.runtime.environment import (
    ABSENT,
    TRITON_DISTRIBUTIONS,
    codegen_environment,
    installed_version,
    ptxas_fact,
)
from rltune.runtime.nvml import probe_host

INTERPRETER_DEVICE = Device(
    name="Triton interpreter",
    compute_capability=ABSENT,
    multiprocessor_count=0,
    memory_bytes=0,
    partition=ABSENT,
)
INTERPRETER_COMPILE_TARGET = CompileTarget(backend="cuda", arch=90, warp_size=32)
"""A sweep without a GPU cross-compiles its candidates for this target."""

_PARTITION_MARK = " MIG "


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One field in which a place differs from a target.

    Attributes:
        field: path of the field in the target, such as ``device.name``.
        expected: what the bundle was made for.
        found: what is here.
    """

    field: str
    expected: str
    found: str

    def __str__(self) -> str:
        return f"{self.field}: expected {self.expected}, found {self.found}"

    def to_json(self) -> dict[str, object]:
        """The JSON object that stands for this difference."""
        return {"field": self.field, "expected": self.expected, "found": self.found}


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceFacts:
    """All facts of one device that a bundle's target is matched against.

    Attributes:
        kind: ``cuda`` or ``interpreter``.
        device: device model.
        driver: driver version, or ``none``.
        compile_target: what Triton compiles for here.
        triton: installed Triton version, or ``none``.
        ptxas: ``bundled``, or ``custom:`` with the digest of the replacement.
        codegen_environment: variables that change values and are set.
        torch: installed torch version, or ``none``.
        unit: UUID of this one device, or ``none``.
    """

    kind: TargetKind
    device: Device
    driver: str
    compile_target: CompileTarget
    triton: str
    ptxas: str
    codegen_environment: Mapping[str, str]
    torch: str
    unit: str

    def to_target(
        self, *, evidence: str, match_torch: bool = False, match_unit: bool = False
    ) -> Target:
        """The target of a bundle made on this device.

        Args:
            evidence: id of the evidence blob of this driver's qualification.
            match_torch: whether a loader must have the same torch.
            match_unit: whether only this one device may load it.
        """
        return Target(
            kind=self.kind,
            device=self.device,
            drivers=(Driver(version=self.driver, evidence=evidence),),
            compile_target=self.compile_target,
            triton=self.triton,
            ptxas=self.ptxas,
            codegen_environment=dict(self.codegen_environment),
            torch=RecordedFact(value=self.torch, match=match_torch),
            unit=RecordedFact(value=self.unit, match=match_unit),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class HostFacts:
    """What is known before a device is used: no context, no torch.

    Attributes:
        driver: driver version, or ``none``.
        models: (name, compute capability) of each GPU NVML lists; may be empty.
        interpreter: the facts of the interpreter here, which need no device.
    """

    driver: str
    models: tuple[tuple[str, str], ...]
    interpreter: DeviceFacts


def probe_host_facts(environ: Mapping[str, str] | None = None) -> HostFacts:
    """Facts of this host, without a CUDA context."""
    host = probe_host()
    return HostFacts(
        driver=host.driver, models=host.models, interpreter=_interpreter_facts(environ)
    )


def probe_device(index: int | None, environ: Mapping[str, str] | None = None) -> DeviceFacts:
    """Facts of one device. Call it on first use: torch creates its context.

    Args:
        index: CUDA device index as torch counts; None for the Triton interpreter.
        environ: environment variables; the process's own if None.

    Raises:
        EnvironmentUnfitError: torch is not installed or has no such device.
    """
    facts = _interpreter_facts(environ)
    if index is None:
        return facts
    try:
        import torch
    except ImportError as error:
        raise EnvironmentUnfitError(
            f"cuda:{index}: torch is not installed: {error}", advice="Install rltune[torch]."
        ) from None
    if index >= torch.cuda.device_count():
        raise EnvironmentUnfitError(
            f"cuda:{index}: torch sees {torch.cuda.device_count()} CUDA devices"
        )
    properties = torch.cuda.get_device_properties(index)
    arch = properties.major * 10 + properties.minor
    backend = "hip" if torch.version.hip else "cuda"
    return replace(
        facts,
        kind="cuda",
        device=_device(properties),
        driver=probe_host().driver,
        compile_target=CompileTarget(
            backend=backend, arch=arch, warp_size=int(getattr(properties, "warp_size", 32))
        ),
        ptxas=ptxas_fact(os.environ if environ is None else environ, arch),
        unit=str(getattr(properties, "uuid", ABSENT)),
    )


def differences(target: Target, facts: DeviceFacts) -> tuple[Difference, ...]:
    """Every field in which ``facts`` differ from ``target``; empty means it may load."""
    if target.kind != facts.kind:
        return tuple(_compare([("kind", target.kind, facts.kind)]))
    wanted, found = target.device, facts.device
    rows = [
        ("device.name", wanted.name, found.name),
        ("device.compute_capability", wanted.compute_capability, found.compute_capability),
        ("device.multiprocessor_count", wanted.multiprocessor_count, found.multiprocessor_count),
        ("device.memory_bytes", wanted.memory_bytes, found.memory_bytes),
        ("device.partition", wanted.partition, found.partition),
        ("compile_target", _text(target.compile_target), _text(facts.compile_target)),
    ]
    if target.unit.match:
        rows.append(("unit", target.unit.value, facts.unit))
    return (
        *_compare(rows),
        *_driver_differences(target, facts.driver),
        *_software_differences(target, facts, facts.ptxas),
    )


def host_differences(target: Target, host: HostFacts) -> tuple[Difference, ...]:
    """Fields that are known to differ before any device is used.

    An empty result does not mean a match: the device's own facts come on first use.
    """
    if target.kind == "interpreter":
        return differences(target, host.interpreter)
    model = (target.device.name, target.device.compute_capability)
    rows = []
    # NVML reports a partition's parent, and HIP devices not at all: a bare model only.
    if host.models and target.device.partition == ABSENT and model not in host.models:
        found = "; ".join(sorted({" ".join(item) for item in host.models}))
        rows.append(("device.name", " ".join(model), found))
    ptxas = ptxas_fact(os.environ, target.compile_target.arch)
    return (
        *_compare(rows),
        *_driver_differences(target, host.driver),
        *_software_differences(target, host.interpreter, ptxas),
    )


def _driver_differences(target: Target, driver: str) -> Iterable[Difference]:
    versions = [item.version for item in target.drivers]
    if driver in versions:
        return ()
    return (Difference(field="driver", expected=" or ".join(versions), found=driver),)


def _software_differences(target: Target, facts: DeviceFacts, ptxas: str) -> Iterable[Difference]:
    wanted, found = target.codegen_environment, facts.codegen_environment
    rows = [("triton", target.triton, facts.triton), ("ptxas", target.ptxas, ptxas)]
    rows += [
        (f"codegen_environment.{name}", wanted.get(name, "unset"), found.get(name, "unset"))
        for name in sorted({*wanted, *found})
    ]
    if target.torch.match:
        rows.append(("torch", target.torch.value, facts.torch))
    return _compare(rows)


def _compare(rows: Iterable[tuple[str, object, object]]) -> list[Difference]:
    return [
        Difference(field=field, expected=str(expected), found=str(found))
        for field, expected, found in rows
        if expected != found
    ]


def _text(target: CompileTarget) -> str:
    return f"{target.backend}:{target.arch}:{target.warp_size}"


def _interpreter_facts(environ: Mapping[str, str] | None) -> DeviceFacts:
    environ = os.environ if environ is None else environ
    return DeviceFacts(
        kind="interpreter",
        device=INTERPRETER_DEVICE,
        driver=ABSENT,
        compile_target=INTERPRETER_COMPILE_TARGET,
        triton=installed_version(*TRITON_DISTRIBUTIONS),
        ptxas=ptxas_fact(environ, INTERPRETER_COMPILE_TARGET.arch),
        codegen_environment=codegen_environment(environ),
        torch=installed_version("torch"),
        unit=ABSENT,
    )


def _device(properties: Any) -> Device:
    name = str(properties.name)
    _, mark, partition = name.partition(_PARTITION_MARK)
    return Device(
        name=name,
        compute_capability=f"{properties.major}.{properties.minor}",
        multiprocessor_count=int(properties.multi_processor_count),
        memory_bytes=int(properties.total_memory),
        partition=partition if mark else ABSENT,
    )
