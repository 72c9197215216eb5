"""Toolchain facts: versions, ptxas, code-generation variables.

Nothing here imports torch or Triton, runs a program or touches a device.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

ABSENT = "none"
"""Stands for a version or device fact that does not exist here."""

BUNDLED_PTXAS = "bundled"
"""ptxas comes with Triton, so Triton's version names it."""

TRITON_DISTRIBUTIONS = ("triton", "pytorch-triton", "pytorch-triton-rocm")
"""Names under which Triton is distributed."""

VALUE_VARIABLES = frozenset(
    {
        "ALLOW_LHS_TMEM_LAYOUT_CONVERSION",
        "AMDGCN_ANALYZE_SMALL_TENSOR_RANGE",
        "AMDGCN_SCALARIZE_PACKED_FOPS",
        "AMDGCN_USE_BUFFER_ATOMICS",
        "AMDGCN_USE_BUFFER_OPS",
        "CONSAN_INIT_ALLOCATIONS",
        "DISABLE_LLVM_OPT",
        "DISABLE_MMA_V3",
        "DISABLE_MMA_V5",
        "DISABLE_PTXAS_OPT",
        "HIP_USE_COEXEC",
        "HIP_USE_EXPERT",
        "LLVM_EXTRACT_DI_LOCAL_VARIABLES",  # keeps the flag that stops ptxas from optimising
        "LLVM_PASS_PLUGIN_PATH",
        "PTXAS_OPTIONS",
        "TRITON_DEBUG",
        "TRITON_DEFAULT_FP_FUSION",
        "TRITON_ENABLE_ASAN",
        "TRITON_ENABLE_EXPERIMENTAL_CONSAN",
        "TRITON_F32_DEFAULT",
        "TRITON_HIP_USE_ASYNC_COPY",
        "TRITON_HIP_USE_BLOCK_PINGPONG",
        "TRITON_HIP_USE_IN_THREAD_TRANSPOSE",
        "TRITON_INSTRUMENTATION_MODE",
        "TRITON_KERNEL_OVERRIDE",
        "TRITON_LIBDEVICE_PATH",
        "TRITON_OVERRIDE_ARCH",
        "TRITON_PLUGIN_PATHS",
        "TRITON_PREFER_TMEM_16x256_LAYOUT",
        "TRITON_SWAP_MIR",
    }
)
"""Variables that can change the values a kernel computes; matched exactly."""

DEBUG_VARIABLES = frozenset(
    {
        "AMDGCN_ENABLE_DUMP",
        "LLVM_ENABLE_TIMING",
        "LLVM_IR_ENABLE_DUMP",
        "MLIR_DISABLE_MULTITHREADING",
        "MLIR_DUMP_PATH",
        "MLIR_ENABLE_DIAGNOSTICS",
        "MLIR_ENABLE_DUMP",
        "MLIR_ENABLE_TIMING",
        "NVPTX_ENABLE_DUMP",
        "TRITON_DISABLE_LINE_INFO",  # changes the binary's line table, never its instructions
        "TRITON_DUMP_MIR",
        "TRITON_ENABLE_LLVM_DEBUG",
        "TRITON_LLVM_DEBUG_ONLY",
        "TRITON_PARTITION_SCHEDULING_DUMP_DATA_ONLY",
        "TRITON_PARTITION_SCHEDULING_DUMP_LOOP_ONLY",
        "TRITON_PARTITION_SCHEDULING_ENABLE_DUMP_DOT",
        "TRITON_PLUGIN_VERSION_CHECK",
        "USE_IR_LOC",
    }
)
"""Variables of Triton's own cache key that print, time or annotate only; ignored."""


def codegen_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The code-generation variables that change values and are set, by name."""
    return {name: environ[name] for name in sorted(VALUE_VARIABLES) if environ.get(name)}


def ptxas_fact(environ: Mapping[str, str], arch: int) -> str:
    """``bundled``, or ``custom:`` and the digest of the program that replaces it.

    Args:
        environ: environment variables.
        arch: compile target, such as 90; Triton has another ptxas from 100 on.
    """
    name = "TRITON_PTXAS_BLACKWELL_PATH" if arch >= 100 else "TRITON_PTXAS_PATH"
    path = environ.get(name, "")
    if not path:
        return BUNDLED_PTXAS
    try:
        return f"custom:{hashlib.sha256(Path(path).read_bytes()).hexdigest()}"
    except OSError:
        return "custom:unreadable"


def installed_version(*distributions: str) -> str:
    """Version of the first of these distributions installed, or ``none``; imports none."""
    for name in distributions:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return ABSENT
