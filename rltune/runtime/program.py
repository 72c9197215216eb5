"""A shipped program, loaded on a device and ready to launch."""

from __future__ import annotations

from dataclasses import dataclass

from rltune.bundle.schema_v1 import Program
from rltune.core.launch import Grid
from rltune.core.operator import KernelSpec
from rltune.errors import EnvironmentUnfitError
from rltune.runtime.arguments import Arguments, pack
from rltune.runtime.driver import LoadedFunction, ensure_context, launch_function, load_function

_WARP_SIZE = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class BoundProgram:
    """A program loaded on one device.

    Attributes:
        digest: hex sha256 of the binary.
        function: the loaded kernel function.
        threads: threads per program.
        device_index: CUDA device it is loaded on, as torch counts.
    """

    digest: str
    function: LoadedFunction
    threads: int
    device_index: int


def bind_program(program: Program, binary: bytes, device_index: int) -> BoundProgram:
    """Load a program on a device.

    Args:
        program: what the bundle says about it.
        binary: its bytes, already checked against the digest.
        device_index: CUDA device, as torch counts.

    Raises:
        EnvironmentUnfitError: the program needs scratch memory or a cluster.
        DriverError: the driver is missing or refuses the program.
    """
    if program.global_scratch_bytes or program.num_ctas != 1:
        raise EnvironmentUnfitError(
            f"program {program.digest[:12]} ({program.entry}) needs "
            f"{program.global_scratch_bytes} bytes of scratch and clusters of {program.num_ctas}; "
            "expected 0 bytes and clusters of 1"
        )
    function = load_function(
        binary, program.entry, shared_bytes=program.shared_bytes, device_index=device_index
    )
    return BoundProgram(
        digest=program.digest,
        function=function,
        threads=_WARP_SIZE * program.num_warps,
        device_index=device_index,
    )


def launch_bound(
    program: BoundProgram, kernel: KernelSpec, grid: Grid, arguments: Arguments, stream: int
) -> None:
    """Launch a bound program; its device must be the current one.

    Args:
        program: the program.
        kernel: declares the arguments.
        grid: programs along x, y, z; all at least 1.
        arguments: values in the order of ``kernel.arguments``.
        stream: CUstream on the program's device.

    Raises:
        DriverError: the driver refuses the launch.
    """
    ensure_context(program.device_index)
    launch_function(
        program.function,
        grid,
        threads=program.threads,
        stream=stream,
        parameters=pack(kernel.arguments, arguments),
    )
