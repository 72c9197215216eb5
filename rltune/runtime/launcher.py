"""Launch a kernel: decide, bind once, launch.

A plan is what holds for one kernel, structural key and device: it is made on
the first call and found by one dictionary lookup afterwards; the count then
takes one bisection.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rltune.core.launch import LaunchConfig
from rltune.core.operator import KernelSpec
from rltune.errors import RltuneError
from rltune.runtime.arguments import Arguments, check_arguments
from rltune.runtime.program import BoundProgram, bind_program, launch_bound
from rltune.runtime.reasons import BaselineKept, Hit, Lookup, Miss, Pinned
from rltune.runtime.state import Calls, Runtime, current
from rltune.runtime.table import Entry
from rltune.runtime.triton_launch import hooks_are_set, launch_triton

__all__ = ["BoundProgram", "bind_program", "launch", "launch_with"]

_log = logging.getLogger("rltune")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Call:
    kernel: KernelSpec
    axes: Mapping[str, int]
    dtype: str
    arguments: Arguments
    index: int | None


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
    call = _Call(kernel=kernel, axes=axes, dtype=dtype, arguments=arguments, index=index)
    runtime.count(_dispatch(call, launch_config, program))


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
    call = _Call(kernel=kernel, axes=axes, dtype=dtype, arguments=arguments, index=index)
    _dispatch(call, launch_config, program)


def _dispatch(call: _Call, launch_config: LaunchConfig, program: BoundProgram | None) -> Calls:
    kernel = call.kernel
    sizes = kernel.all_axes(call.axes)
    grid = kernel.grid(sizes, launch_config)
    if 0 in grid:
        return Calls()
    with _on_device(call.index):
        if program is not None and not hooks_are_set():
            launch_bound(program, kernel, grid, call.arguments, _stream(program.device_index))
            return Calls(bound=1)
        constexprs = kernel.constexprs(sizes, call.dtype, launch_config)
        compiled = launch_triton(
            kernel, grid, call.arguments, constexprs, launch_config, call.index
        )
    return Calls(triton_launched=1, compiled=int(compiled))


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


@contextlib.contextmanager
def _on_device(index: int | None) -> Iterator[None]:
    if index is None:
        yield
        return
    import torch

    with torch.cuda.device(index):
        yield


def _stream(index: int) -> int:
    import torch

    return int(torch.cuda.current_stream(index).cuda_stream)
