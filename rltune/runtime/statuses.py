"""``status()``: what is loaded, and for each kernel hit or miss and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from rltune.bundle.schema_v1 import Target
from rltune.core.operator import KernelSpec
from rltune.runtime.device import Difference, HostFacts, host_differences, probe_host_facts
from rltune.runtime.modes import Mode
from rltune.runtime.pins import variable_of
from rltune.runtime.reasons import (
    BaselineDiffers,
    Miss,
    MissReason,
    ModeOff,
    NoBundle,
    SourceDiffers,
    TargetDiffers,
    Undecided,
)
from rltune.runtime.registry import Finding, LoadedBundle
from rltune.runtime.state import Calls, Runtime, current

Outcome = Literal["hit", "miss", "unknown"]
"""``unknown``: nothing speaks against a bundle, but no device has been used yet."""

NOT_USED = "no device used yet"


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelStatus:
    """One kernel on one device.

    Attributes:
        kernel: kernel id.
        device: ``cuda:0``, ``interpreter`` or ``no device used yet``.
        outcome: whether a bundle decides the kernel here.
        reason: why, in one line.
        differences: fields in which this place differs from a bundle's target, its
            source or its baseline.
        keys: number of structural keys that are decided here.
        pin: value of the kernel's pin, or ``""``.
    """

    kernel: str
    device: str
    outcome: Outcome
    reason: str
    differences: tuple[Difference, ...]
    keys: int
    pin: str

    def __str__(self) -> str:
        pin = f"; pinned to {self.pin}" if self.pin else ""
        return f"{self.kernel} ({self.device}): {self.outcome}: {self.reason}{pin}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Status:
    """The state of this process's runtime.

    Attributes:
        mode: ``off``, ``load`` or ``strict``.
        bundles: what became of each file that was found, in search order.
        clashes: what two bundles both decide, so that neither does.
        kernels: each registered kernel on each device used up to now.
        pins: pinned kernels: value by variable.
        calls: counts of launches.
        problems: what went wrong after loading.
    """

    mode: Mode
    bundles: tuple[Finding, ...]
    clashes: tuple[str, ...]
    kernels: tuple[KernelStatus, ...]
    pins: Mapping[str, str]
    calls: Calls
    problems: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """The JSON object that stands for this status."""
        return {
            "mode": self.mode,
            "bundles": [
                {"verdict": type(item).__name__.lower(), **asdict(item)} for item in self.bundles
            ],
            "clashes": list(self.clashes),
            "kernels": [asdict(item) for item in self.kernels],
            "pins": dict(self.pins),
            "calls": asdict(self.calls),
            "problems": list(self.problems),
        }

    def __str__(self) -> str:
        calls = self.calls
        lines = [f"mode {self.mode}"]
        lines += [f"bundle {item}" for item in self.bundles] or ["no bundle was found"]
        lines += [f"clash {item}" for item in self.clashes]
        lines += [f"kernel {item}" for item in self.kernels]
        lines += [f"pin {name}={value}" for name, value in self.pins.items()]
        lines += [f"problem {item}" for item in self.problems]
        lines.append(
            f"calls {calls.bound} bound, {calls.triton_launched} launched by Triton, "
            f"{calls.compiled} of them compiled"
        )
        return "\n".join(lines)


def read_status() -> Status:
    """The status of this process. Uses no device that was not used before.

    Raises:
        UsageError: an environment variable of this project cannot be understood.
    """
    return status_of(current())


def status_of(runtime: Runtime, only: str = "") -> Status:
    """The status of ``runtime``; of one kernel if ``only`` names it."""
    registry = runtime.registry
    places = tuple(runtime.devices)
    host = probe_host_facts() if registry.bundles and not places else None
    kernels = [
        _unused(runtime, kernel, host) if not places else _used(runtime, kernel, index)
        for kernel in runtime.kernels
        if only in ("", kernel.kernel_id)
        for index in (places or (None,))
    ]
    return Status(
        mode=registry.mode,
        bundles=registry.findings,
        clashes=tuple(str(item) for item in registry.clashes),
        kernels=tuple(kernels),
        pins={name: pin.text for name, pin in registry.pins.items()},
        calls=runtime.calls,
        problems=tuple(runtime.problems),
    )


def device_name(index: int | None) -> str:
    """``cuda:N``, or ``interpreter`` for None."""
    return "interpreter" if index is None else f"cuda:{index}"


def reason_differences(reasons: tuple[MissReason, ...]) -> tuple[Difference, ...]:
    """The fields that the reasons name, expected and found."""
    rows: list[Difference] = []
    for reason in reasons:
        if isinstance(reason, TargetDiffers):
            rows += reason.differences
        elif isinstance(reason, SourceDiffers):
            rows.append(
                Difference(field="source_fingerprint", expected=reason.expected, found=reason.found)
            )
        elif isinstance(reason, BaselineDiffers):
            rows.append(Difference(field="baseline", expected=reason.expected, found=reason.found))
    return tuple(rows)


def _used(runtime: Runtime, kernel: KernelSpec, index: int | None) -> KernelStatus:
    general = _general_miss(runtime, kernel)
    if general is not None:
        return _status(runtime, kernel, device_name(index), "miss", (general,))
    state = runtime.kernel_state(kernel, index)
    reasons = list(state.reasons)
    decided = 0
    for key in state.table:
        found = runtime.entry(kernel, key, index)
        if isinstance(found, Miss):
            reasons += found.reasons
        else:
            decided += 1
    if not decided:
        return _status(runtime, kernel, device_name(index), "miss", tuple(reasons))
    text = f"{decided} keys decided here"
    return _status(runtime, kernel, device_name(index), "hit", tuple(reasons), text, decided)


def _unused(runtime: Runtime, kernel: KernelSpec, host: HostFacts | None) -> KernelStatus:
    general = _general_miss(runtime, kernel)
    if general is not None or host is None:
        return _status(runtime, kernel, NOT_USED, "miss", (general or NoBundle(),))
    reasons: list[MissReason] = []
    hopeful: list[str] = []
    for bundle in runtime.registry.bundles:
        if kernel.kernel_id not in bundle.decisions:
            continue
        reason = _known_miss(runtime, kernel, bundle, host)
        if reason is None:
            hopeful.append(f"{bundle.path} is for {describe_target(bundle.predicate.target)}")
        else:
            reasons.append(reason)
    if not hopeful:
        return _status(runtime, kernel, NOT_USED, "miss", tuple(reasons))
    text = "; ".join(hopeful)
    return _status(runtime, kernel, NOT_USED, "unknown", tuple(reasons), text)


def _known_miss(
    runtime: Runtime, kernel: KernelSpec, bundle: LoadedBundle, host: HostFacts
) -> MissReason | None:
    differing = host_differences(bundle.predicate.target, host)
    if differing:
        return TargetDiffers(bundle=bundle.path, differences=differing)
    return runtime.source_reason(kernel, bundle) or runtime.baseline_reason(kernel, bundle)


def describe_target(target: Target) -> str:
    """A target in one phrase."""
    drivers = " or ".join(item.version for item in target.drivers)
    return (
        f"{target.device.name} (compute capability {target.device.compute_capability}, "
        f"driver {drivers}, triton {target.triton})"
    )


def _general_miss(runtime: Runtime, kernel: KernelSpec) -> MissReason | None:
    registry = runtime.registry
    if registry.mode == "off":
        return ModeOff()
    if not registry.bundles:
        return NoBundle()
    if not any(kernel.kernel_id in bundle.decisions for bundle in registry.bundles):
        return Undecided(what=kernel.kernel_id)
    return None


def _status(
    runtime: Runtime,
    kernel: KernelSpec,
    device: str,
    outcome: Outcome,
    reasons: tuple[MissReason, ...],
    text: str = "",
    keys: int = 0,
) -> KernelStatus:
    pin = runtime.registry.pins.get(variable_of(kernel.kernel_id))
    return KernelStatus(
        kernel=kernel.kernel_id,
        device=device,
        outcome=outcome,
        reason="; ".join([text] * bool(text) + [str(item) for item in reasons]),
        differences=reason_differences(reasons),
        keys=keys,
        pin=pin.text if pin else "",
    )
