"""The launch through Triton's own JIT: the fixed launch, and the interpreter."""

from __future__ import annotations

import functools
import importlib
import sys
import threading
from collections.abc import Mapping
from typing import Any

from rltune.core.launch import Grid, LaunchConfig
from rltune.core.operator import KernelSpec
from rltune.runtime.arguments import Arguments

_interpreter_lock = threading.Lock()  # the interpreter patches triton.language while it runs


def launch_triton(
    kernel: KernelSpec,
    grid: Grid,
    arguments: Arguments,
    constexprs: Mapping[str, int],
    launch_config: LaunchConfig,
    device_index: int | None,
) -> bool:
    """Launch through Triton on the current device, or on its interpreter.

    Returns:
        Whether Triton had no program for this launch yet and compiled it.

    Raises:
        EnvironmentUnfitError: the interpreter cannot run here.
    """
    keywords = {**constexprs, **launch_config.options()}
    if device_index is None:
        from rltune.runtime.interpreter import ensure_interpreter

        with _interpreter_lock:
            ensure_interpreter()
            _jit_function(kernel.jit)[grid](*arguments, **keywords)
        return False
    function = _jit_function(kernel.jit)
    before = _program_count(function, device_index)
    function[grid](*arguments, **keywords)
    return _program_count(function, device_index) > before


def hooks_are_set() -> bool:
    """Whether a profiler asked Triton to be told of each launch."""
    knobs = sys.modules.get("triton.knobs")
    if knobs is None:
        return False
    runtime = knobs.runtime
    return any(
        getattr(hook, "calls", hook)
        for hook in (runtime.launch_enter_hook, runtime.launch_exit_hook)
    )


def reset_after_fork() -> None:
    """Replace the lock, which another thread of the parent may have held."""
    global _interpreter_lock  # noqa: PLW0603 - one per process, as the interpreter's state is
    _interpreter_lock = threading.Lock()


@functools.cache
def _jit_function(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def _program_count(function: Any, device_index: int) -> int:
    caches = getattr(function, "device_caches", {})
    return len(caches[device_index][0]) if device_index in caches else 0
