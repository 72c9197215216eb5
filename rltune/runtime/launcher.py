"""Launch a kernel: decide, bind once, launch.

A plan is what holds for one kernel, structural key and device: it is made on
the first call and found by one dictionary lookup afterwards; the count then
takes one bisection.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass

from rltune.core.launch import LaunchConfig
from rltune.core.operator import KernelSpec
from rltune.errors import RltuneError
from rltune.runtime.arguments import Arguments, check_arguments
from rltune.runtime.program import BoundProgram, bind_program, launch_bound
from rltune.runtime.reasons import BaselineKept, Hit, Lookup, Miss, Pinned
from rltune.runtime.state import Runtime, Way, current
from rltune.runtime.table import Entry
from rltune.runtime.triton_launch import hooks_are_set, launch_triton

__all__ = ["BoundProgram", "bind_program", "launch", "launch_with"]

_log = logging.getLogger("rltune")
_NOWHERE_ELSE: contextlib.AbstractContextManager[object] = contextlib.nullcontext()


_Call = tuple[KernelSpec, Mapping[str, int], str, Arguments, int | None]
"""What one launch is called with, and its device; a plain tuple, as calls are many."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Plan:
    decided: Entry | Pinned | Miss
    baseline: LaunchConfig

    def lookup(self, count: int) -> Lookup:
        return self.decided.lookup(count) if isinstance(self.decided, Entry) else self.decided


def launch(kernel: KernelSpec, axes: Mapping[str, int], dtype: str, arguments: Arguments) -> None:
    """Launch ``kernel`` once, with what the loaded bundles decide for this call.

    Without a decision it is the fixed launch. The caller's current device is
    kept; the launch goes to torch's current stream of the tensors' device.

    Args:
        kernel: the kernel.
        axes: sizes of its structural axes and its dynamic axis.
        dtype: element type of the operator, a key of ``ACCUMULATION``.
        arguments: values in the order of ``kernel.arguments``.

    Raises:
        OperatorArgumentError: an argument is not as declared.
        UsageError: a pin names no launch config of the kernel's space.
        EnvironmentUnfitError: this place cannot launch the kernel.
    """
    runtime = current()
    index = check_arguments(kernel, dtype, arguments)
    plan = _plan(runtime, kernel, axes, dtype, index)
    found = plan.lookup(axes[kernel.dynamic_axis])
    program: BoundProgram | None = None
    if isinstance(found, Hit | BaselineKept):
        launch_config = found.launch.launch_config
        if index is not None:
            program = _program(runtime, found, index)
    elif isinstance(found, Pinned):
        launch_config = found.launch_config
    else:
        launch_config = plan.baseline
    call = kernel, axes, dtype, arguments, index
    way = _dispatch(call, launch_config, program)
    if way:
        runtime.count(way)


def launch_with(
    kernel: KernelSpec,
    axes: Mapping[str, int],
    dtype: str,
    arguments: Arguments,
    launch_config: LaunchConfig,
    program: BoundProgram | None,
) -> None:
    """Launch ``kernel`` once with a given launch config; reads no bundle.

    Args:
        kernel: the kernel.
        axes: sizes of its structural axes and its dynamic axis.
        dtype: element type of the operator, a key of ``ACCUMULATION``.
        arguments: values in the order of ``kernel.arguments``.
        launch_config: the knobs.
        program: what the config compiles to, bound on the tensors' device; None
            to go through Triton.

    Raises:
        OperatorArgumentError: an argument is not as declared.
        DriverError: the driver refuses the launch.
    """
    index = check_arguments(kernel, dtype, arguments)
    _dispatch((kernel, axes, dtype, arguments, index), launch_config, program)


def _dispatch(call: _Call, launch_config: LaunchConfig, program: BoundProgram | None) -> Way | None:
    """Launch, if the grid holds a program; give the way that was taken."""
    kernel, axes, dtype, arguments, index = call
    sizes = kernel.all_axes(axes)
    grid = kernel.grid(sizes, launch_config)
    if 0 in grid:
        return None
    with _on_device(index):
        if program is not None and not hooks_are_set():
            launch_bound(program, kernel, grid, arguments, _stream(program.device_index))
            return "bound"
        constexprs = kernel.constexprs(sizes, dtype, launch_config)
        compiled = launch_triton(kernel, grid, arguments, constexprs, launch_config, index)
    return "compiled" if compiled else "triton_launched"


def _plan(
    runtime: Runtime, kernel: KernelSpec, axes: Mapping[str, int], dtype: str, index: int | None
) -> _Plan:
    place = (kernel.kernel_id, index, dtype, *(axes[name] for name in kernel.structural_axes))
    plan = runtime.plans.get(place)
    if isinstance(plan, _Plan):
        return plan
    with runtime.lock:
        plan = runtime.plans.get(place)
        if not isinstance(plan, _Plan):
            key = kernel.shape_key(dtype, axes)
            decided = runtime.pinned(kernel, key) or runtime.entry(kernel, key, index)
            plan = _Plan(decided=decided, baseline=kernel.baseline(key))
            runtime.plans[place] = plan
        return plan


def _program(runtime: Runtime, found: Hit | BaselineKept, index: int) -> BoundProgram | None:
    place = (index, found.launch.program)
    if place in runtime.programs:
        return runtime.programs[place]
    with runtime.lock:
        if place not in runtime.programs:
            runtime.programs[place] = _bind(runtime, found, index)
        return runtime.programs[place]


def _bind(runtime: Runtime, found: Hit | BaselineKept, index: int) -> BoundProgram | None:
    bundle = runtime.bundle(found.bundle)
    try:
        program, binary = bundle.read_program(found.launch.program)
        with _on_device(index):
            return bind_program(program, binary, index)
    except (RltuneError, OSError) as error:
        text = (
            f"{bundle.path}: program {found.launch.program[:12]} cannot be loaded on "
            f"cuda:{index}, so Triton compiles {found.launch.candidate_id}: {error}"
        )
        runtime.problems.append(text)
        _log.warning("%s", text)
        return None


def _on_device(index: int | None) -> contextlib.AbstractContextManager[object]:
    """Make a device current for a while; costs nothing where it is already."""
    if index is None:
        return _NOWHERE_ELSE
    import torch

    if torch.cuda.current_device() == index:
        return _NOWHERE_ELSE
    return torch.cuda.device(index)


def _stream(index: int) -> int:
    """The current CUstream of a device, without an object around it."""
    import torch

    return int(torch._C._cuda_getCurrentRawStream(index))  # noqa: SLF001 - as Triton asks for it
