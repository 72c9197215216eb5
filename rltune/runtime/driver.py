"""The CUDA driver API by ctypes: load a program, launch it.

Needs no compiler and no writable directory. The context is torch's: the primary
context of the device, which exists as soon as a tensor lies there.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass

from rltune.core.launch import Grid
from rltune.errors import DriverError

LIBRARY = "libcuda.so.1"

STATIC_SHARED_LIMIT_BYTES = 48 * 1024
"""Dynamic shared memory above this must be asked for by attribute."""

_MAX_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_PREFER_SHARED = 1  # CU_FUNC_CACHE_PREFER_SHARED
_CAPTURE_MODE_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED

Parameter = ctypes.c_uint64 | ctypes.c_int64 | ctypes.c_float
"""One kernel parameter in the layout the program expects."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoadedFunction:
    """A kernel function in a loaded module.

    Attributes:
        module: CUmodule; stays loaded as long as the process lives.
        handle: CUfunction.
        shared_bytes: dynamic shared memory of a launch.
    """

    module: int
    handle: int
    shared_bytes: int


def load_function(
    binary: bytes, entry: str, *, shared_bytes: int, device_index: int
) -> LoadedFunction:
    """Load a program and find its kernel, on the device's primary context.

    Works while a stream is captured: this thread's capture mode is relaxed for
    the load, which touches no stream.

    Args:
        binary: a cubin.
        entry: name of the kernel function.
        shared_bytes: dynamic shared memory of a launch.
        device_index: CUDA device, as torch counts.

    Raises:
        DriverError: the driver is missing or refuses the program.
    """
    ensure_context(device_index)
    mode = ctypes.c_int(_CAPTURE_MODE_RELAXED)
    _call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    try:
        module, handle = ctypes.c_void_p(), ctypes.c_void_p()
        _call("cuModuleLoadData", ctypes.byref(module), binary)
        _call("cuModuleGetFunction", ctypes.byref(handle), module, entry.encode("ascii"))
        if shared_bytes > STATIC_SHARED_LIMIT_BYTES:
            _call("cuFuncSetCacheConfig", handle, _PREFER_SHARED)
            _call("cuFuncSetAttribute", handle, _MAX_DYNAMIC_SHARED, shared_bytes)
    finally:
        _call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
    return LoadedFunction(
        module=module.value or 0, handle=handle.value or 0, shared_bytes=shared_bytes
    )


def launch_function(
    function: LoadedFunction,
    grid: Grid,
    *,
    threads: int,
    stream: int,
    parameters: Sequence[Parameter],
) -> None:
    """Launch a loaded kernel on a stream of the current context.

    Args:
        function: the kernel.
        grid: programs along x, y, z; all at least 1.
        threads: threads per program.
        stream: CUstream.
        parameters: values in the order of the program's parameters.

    Raises:
        DriverError: the driver refuses the launch.
    """
    block = (ctypes.c_void_p * len(parameters))(
        *(ctypes.addressof(parameter) for parameter in parameters)
    )
    _call(
        "cuLaunchKernel",
        ctypes.c_void_p(function.handle),
        *grid,
        threads,
        1,
        1,
        function.shared_bytes,
        ctypes.c_void_p(stream),
        block,
        None,
    )


def ensure_context(device_index: int) -> None:
    """Make the device's primary context current if this thread has none.

    A thread that only launches has not passed through torch's own first use.

    Raises:
        DriverError: the driver is missing or refuses.
    """
    current = ctypes.c_void_p()
    _call("cuCtxGetCurrent", ctypes.byref(current))
    if not current.value:
        _call("cuCtxSetCurrent", ctypes.c_void_p(_primary_context(device_index)))


@functools.cache
def _primary_context(device_index: int) -> int:
    device, context = ctypes.c_int(), ctypes.c_void_p()
    _call("cuDeviceGet", ctypes.byref(device), device_index)
    _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    return context.value or 0


@functools.cache
def _library() -> ctypes.CDLL:
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise DriverError(f"{LIBRARY} cannot be opened: {error}") from None


def _call(name: str, *arguments: object) -> None:
    library = _library()
    try:
        function = getattr(library, name)
    except AttributeError:
        raise DriverError(f"{LIBRARY} has no {name}") from None
    status = function(*arguments)
    if status != 0:
        raise DriverError(f"{name} failed: {_error_name(library, status)}")


def _error_name(library: ctypes.CDLL, status: int) -> str:
    text = ctypes.c_char_p()
    if library.cuGetErrorName(status, ctypes.byref(text)) != 0 or text.value is None:
        return f"status {status}"
    return f"{text.value.decode('ascii', 'replace')} ({status})"
