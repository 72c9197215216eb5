"""What one process holds: the loaded bundles and everything bound from them.

Decisions of the loaded bundles never change after loading; what grows is what
is learnt on first use: facts of a device, tables of a kernel, bound programs.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from rltune.bundle.schema_v1 import Launch
from rltune.core.operator import KernelSpec, OperatorSpec
from rltune.core.shapes import ShapeKey
from rltune.errors import SourceError, StaleSourceError
from rltune.runtime import _remembered
from rltune.runtime.device import DeviceFacts, differences, probe_device
from rltune.runtime.modes import read_mode
from rltune.runtime.pins import check_names, pinned_config, variable_of
from rltune.runtime.program import BoundProgram
from rltune.runtime.reasons import (
    BaselineDiffers,
    Clash,
    Lookup,
    Miss,
    MissReason,
    ModeOff,
    NoBundle,
    Pinned,
    SourceDiffers,
    TargetDiffers,
    Undecided,
)
from rltune.runtime.registry import LoadedBundle, Registry
from rltune.runtime.sources import installed_fingerprint
from rltune.runtime.table import Entry, KernelTable, combine
from rltune.runtime.triton_launch import reset_after_fork

Specs = Callable[[], tuple[OperatorSpec, ...]]
"""Gives the declared operators; called only when they are needed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelState:
    """What the loaded bundles say about one kernel on one device.

    Attributes:
        table: keys that are decided here; read-only.
        reasons: one for each bundle that decides the kernel but not here.
    """

    table: KernelTable
    reasons: tuple[MissReason, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Calls:
    """Counts of launches in this process.

    Attributes:
        bound: launches of a shipped program through the driver.
        triton_launched: launches through Triton's own launcher.
        compiled: those among them for which Triton had no program yet.
    """

    bound: int = 0
    triton_launched: int = 0
    compiled: int = 0


Way = Literal["bound", "triton_launched", "compiled"]
"""How a launch went: a shipped program, a program Triton had, or one it had to compile."""


def _no_calls() -> dict[Way, int]:
    return {"bound": 0, "triton_launched": 0, "compiled": 0}


class Runtime:
    """The registry of one process and what was learnt on first use.

    Attributes:
        registry: what was loaded; immutable.
        lock: guards first use; recursive.
        plans: what the launcher derived for a key; cleared in a forked child.
        programs: bound programs by device and digest, None for one that cannot be
            loaded; cleared in a forked child.
        problems: what went wrong after loading, one sentence each.
    """

    def __init__(self, registry: Registry, specs: Iterable[Specs] = ()) -> None:
        self.registry = registry
        self.lock = threading.RLock()
        self.plans: dict[object, object] = {}
        self.programs: dict[tuple[int, str], BoundProgram | None] = {}
        self.problems: list[str] = []
        self._specs = list(specs)
        self._facts: dict[int | None, DeviceFacts] = {}
        self._kernels: dict[tuple[str, int | None], KernelState] = {}
        self._fingerprints: dict[str, str] = {}
        self._counts = _no_calls()

    @property
    def calls(self) -> Calls:
        """Counts up to now."""
        with self.lock:
            bound, through_triton, compiled = self._counts.values()
        return Calls(bound=bound, triton_launched=through_triton + compiled, compiled=compiled)

    @property
    def devices(self) -> Mapping[int | None, DeviceFacts]:
        """Facts of the devices used up to now; None is the interpreter."""
        return MappingProxyType(dict(self._facts))

    @property
    def kernels(self) -> tuple[KernelSpec, ...]:
        """The registered kernels."""
        operators = [operator for specs in self._specs for operator in specs()]
        return tuple(kernel for operator in operators for kernel in operator.kernels)

    def register(self, specs: Specs) -> None:
        """Add operators of this process and check the pins against all of them.

        Raises:
            UsageError: a pin names no registered kernel.
        """
        if specs not in self._specs:
            self._specs.append(specs)
        if self.registry.pins:
            check_names(self.registry.pins, [kernel.kernel_id for kernel in self.kernels])

    def count(self, way: Way) -> None:
        """Count a launch by the way it took."""
        with self.lock:
            self._counts[way] += 1

    def facts(self, index: int | None) -> DeviceFacts:
        """Facts of a device, probed on first use; None is the interpreter.

        Raises:
            EnvironmentUnfitError: there is no such device.
        """
        with self.lock:
            if index not in self._facts:
                self._facts[index] = probe_device(index)
            return self._facts[index]

    def kernel_state(self, kernel: KernelSpec, index: int | None) -> KernelState:
        """What the bundles say about ``kernel`` on a device, built on first use."""
        with self.lock:
            place = (kernel.kernel_id, index)
            if place not in self._kernels:
                self._kernels[place] = self._build(kernel, index)
            return self._kernels[place]

    def pinned(self, kernel: KernelSpec, key: ShapeKey) -> Pinned | None:
        """The pin of ``kernel`` for ``key``, if its variable is set.

        Raises:
            UsageError: the pin names no launch config of the kernel's space.
        """
        variable = variable_of(kernel.kernel_id)
        pin = self.registry.pins.get(variable)
        if pin is None:
            return None
        return Pinned(variable=variable, launch_config=pinned_config(pin, kernel, key))

    def entry(self, kernel: KernelSpec, key: ShapeKey, index: int | None) -> Entry | Miss:
        """What decides ``kernel`` for ``key`` on a device, whatever the count."""
        if self.registry.mode == "off":
            return Miss(reasons=(ModeOff(),))
        if not self.registry.bundles:
            return Miss(reasons=(NoBundle(),))
        state = self.kernel_state(kernel, index)
        found = state.table.get(key)
        if found is None:
            what = f"{kernel.kernel_id} for {key}" if state.table else kernel.kernel_id
            return Miss(reasons=state.reasons or (Undecided(what=what),))
        if isinstance(found, Clash):
            return Miss(reasons=(found,))
        differs = _baseline_differs(found.baseline.bundle, kernel, key, found.baseline.launch)
        return found if differs is None else Miss(reasons=(differs,))

    def lookup(self, kernel: KernelSpec, key: ShapeKey, count: int, index: int | None) -> Lookup:
        """The launch of one call, with its reason.

        Args:
            kernel: the kernel.
            key: its structural key.
            count: size of the dynamic axis.
            index: CUDA device index, or None for the interpreter.
        """
        pinned = self.pinned(kernel, key)
        if pinned is not None:
            return pinned
        entry = self.entry(kernel, key, index)
        return entry if isinstance(entry, Miss) else entry.lookup(count)

    def source_reason(self, kernel: KernelSpec, bundle: LoadedBundle) -> SourceDiffers | None:
        """Why the bundle's source is not the installed one; None if it is."""
        expected = bundle.fingerprints.get(kernel.kernel_id, "none")
        found = self._fingerprint(kernel)
        if expected == found:
            return None
        return SourceDiffers(bundle=bundle.path, expected=expected, found=found)

    def baseline_reason(self, kernel: KernelSpec, bundle: LoadedBundle) -> BaselineDiffers | None:
        """Why the bundle's baseline is not the installed one; None if all keys agree."""
        for key, decision in bundle.decisions.get(kernel.kernel_id, {}).items():
            reason = _baseline_differs(bundle.path, kernel, key, decision.baseline)
            if reason is not None:
                return reason
        return None

    def bundle(self, path: str) -> LoadedBundle:
        """The loaded bundle of that path."""
        return next(item for item in self.registry.bundles if item.path == path)

    def forget_bindings(self) -> None:
        """Drop all that is bound to a device; a forked child has no such device."""
        self.lock = threading.RLock()
        self.plans = {}
        self.programs = {}
        self._facts = {}
        self._kernels = {}
        self._counts = _no_calls()

    def _fingerprint(self, kernel: KernelSpec) -> str:
        with self.lock:
            if kernel.kernel_id not in self._fingerprints:
                try:
                    value = installed_fingerprint(kernel)
                except SourceError as error:
                    value = f"none ({error.message})"
                self._fingerprints[kernel.kernel_id] = value
            return self._fingerprints[kernel.kernel_id]

    def _build(self, kernel: KernelSpec, index: int | None) -> KernelState:
        reasons: list[MissReason] = []
        fitting = []
        for bundle in self.registry.bundles:
            if kernel.kernel_id not in bundle.decisions:
                continue
            differing = differences(bundle.predicate.target, self.facts(index))
            reason: MissReason | None = None
            if differing:
                reason = TargetDiffers(bundle=bundle.path, differences=differing)
            else:
                reason = self.source_reason(kernel, bundle)
            if reason is None:
                fitting.append((bundle.path, bundle.decisions))
            else:
                reasons.append(reason)
        return KernelState(table=combine(kernel.kernel_id, fitting), reasons=tuple(reasons))


def _baseline_differs(
    path: str, kernel: KernelSpec, key: ShapeKey, baseline: Launch
) -> BaselineDiffers | None:
    installed = kernel.baseline(key)
    if baseline.launch_config == installed:
        return None
    return BaselineDiffers(
        bundle=path,
        expected=baseline.launch_config.candidate_id,
        found=installed.candidate_id,
    )


class _Process:
    """The runtime of this process, made once."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.runtime: Runtime | None = None

    def after_fork_in_child(self) -> None:
        self.lock = threading.RLock()
        reset_after_fork()
        if self.runtime is not None:
            self.runtime.forget_bindings()


_process = _Process()
os.register_at_fork(after_in_child=_process.after_fork_in_child)


def require_sources(runtime: Runtime) -> None:
    """Check, for strict mode, every registered kernel that a fitting bundle decides.

    Raises:
        StaleSourceError: source or baseline differ from the bundle's.
    """
    for bundle in runtime.registry.fitting_here():
        for kernel in runtime.kernels:
            if kernel.kernel_id not in bundle.decisions:
                continue
            reason = runtime.source_reason(kernel, bundle) or runtime.baseline_reason(
                kernel, bundle
            )
            if reason is not None:
                raise StaleSourceError(
                    f"{kernel.kernel_id}: {reason}",
                    advice="Sweep again from the installed source, or install the bundle's.",
                )


def load_process(specs: Specs | None = None) -> Runtime:
    """Load once in this process; later calls only add what they register.

    Raises:
        RltuneError: in strict mode, the first reason not to use a bundle.
        UsageError: an environment variable of this project cannot be understood.
    """
    with _process.lock:
        runtime = _process.runtime
        if runtime is None:
            runtime = Runtime(_read_registry(), _remembered)
        if specs is not None:
            runtime.register(specs)
            if runtime.registry.mode == "strict":
                require_sources(runtime)
        _process.runtime = runtime
        return runtime


def _read_registry() -> Registry:
    if read_mode() == "off":  # then the libraries that check signatures are not needed either
        return Registry(mode="off", bundles=(), findings=(), clashes=(), pins={})
    from rltune.runtime.loader import load_registry

    return load_registry(os.environ)


def current() -> Runtime:
    """The runtime of this process; loads if nothing has loaded yet."""
    return _process.runtime or load_process()
