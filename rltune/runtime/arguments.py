"""The arguments of one launch: checked against their declaration, packed for the driver."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from rltune.core.operator import Argument, KernelSpec, Scalar, Tensor
from rltune.errors import OperatorArgumentError
from rltune.runtime.driver import Parameter

ALIGNMENT_BYTES = 16
"""Programs are compiled for pointers that are multiples of this."""

Arguments = tuple[Any, ...]
"""Tensors and numbers in the order of ``KernelSpec.arguments``."""

_TORCH_DTYPES = {
    "bf16": "torch.bfloat16",
    "fp16": "torch.float16",
    "fp32": "torch.float32",
    "fp64": "torch.float64",
    "i64": "torch.int64",
    "i32": "torch.int32",
    "u8": "torch.uint8",
}
_SCRATCH_POINTERS = 2  # Triton appends a global and a profile scratch pointer to every kernel


def check_arguments(kernel: KernelSpec, dtype: str, arguments: Arguments) -> int | None:
    """Check what a program's numbers depend on; give the device.

    Returns:
        The CUDA device index of all tensors, or None if they lie in host memory.

    Raises:
        OperatorArgumentError: number, dtype, alignment or device of an argument is
            not as declared; the message names it.
    """
    if len(arguments) != len(kernel.arguments):
        raise OperatorArgumentError(
            f"{kernel.kernel_id}: expected {len(kernel.arguments)} arguments, got {len(arguments)}"
        )
    device: Any = None
    for declared, value in zip(kernel.arguments, arguments, strict=True):
        if isinstance(declared, Scalar):
            _check_scalar(kernel, declared, value)
            continue
        _check_tensor(kernel, declared, value, dtype)
        device = value.device if device is None else device
        if value.device != device:
            raise _error(kernel, declared, f"device {device} as the other tensors", value.device)
    if device is None or device.type == "cpu":
        return None
    if device.type != "cuda":
        raise OperatorArgumentError(f"{kernel.kernel_id}: expected CUDA or CPU, got {device}")
    return int(device.index)


def pack(declared: tuple[Argument, ...], arguments: Arguments) -> list[Parameter]:
    """The parameter block of a launch: the arguments, then null scratch pointers."""
    block: list[Parameter] = []
    for item, value in zip(declared, arguments, strict=True):
        if isinstance(item, Tensor):
            block.append(ctypes.c_uint64(value.data_ptr()))
        elif item.dtype == "i64":
            block.append(ctypes.c_int64(value))
        else:
            block.append(ctypes.c_float(value))
    return block + [ctypes.c_uint64(0) for _ in range(_SCRATCH_POINTERS)]


@functools.cache
def _text(dtype: object) -> str:
    return str(dtype)


def _check_tensor(kernel: KernelSpec, declared: Tensor, value: Any, dtype: str) -> None:
    found = getattr(value, "dtype", None)
    expected = _TORCH_DTYPES[declared.element_type(dtype)]
    if _text(found) != expected:
        found = type(value).__name__ if found is None else found
        raise _error(kernel, declared, f"a tensor of {expected}", found)
    address = value.data_ptr()
    if address % ALIGNMENT_BYTES:
        raise _error(
            kernel,
            declared,
            f"an address that is a multiple of {ALIGNMENT_BYTES} bytes",
            f"one with remainder {address % ALIGNMENT_BYTES}",
        )


def _check_scalar(kernel: KernelSpec, declared: Scalar, value: object) -> None:
    if declared.dtype == "i64":
        if type(value) is not int or not -(2**63) <= value < 2**63:
            raise _error(kernel, declared, "a 64-bit integer", value)
    elif type(value) not in (int, float):
        raise _error(kernel, declared, "a number", value)


def _error(
    kernel: KernelSpec, declared: Argument, expected: str, found: object
) -> OperatorArgumentError:
    return OperatorArgumentError(
        f"{kernel.kernel_id}: argument {declared.name}: expected {expected}, got {found}"
    )
