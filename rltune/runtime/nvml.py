"""What NVML says about the host without a CUDA context."""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from pathlib import Path

LIBRARY = "libnvidia-ml.so.1"
PROC_VERSION = Path("/proc/driver/nvidia/version")

_TEXT_BYTES = 96


@dataclass(frozen=True, kw_only=True, slots=True)
class HostDevices:
    """The GPUs of the host, as far as they are known without using one.

    Attributes:
        driver: driver version, or ``none``.
        models: (name, compute capability) of each GPU; empty if NVML does not answer.
    """

    driver: str
    models: tuple[tuple[str, str], ...]


def probe_host() -> HostDevices:
    """Driver version and models of the host. Creates no context."""
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        return HostDevices(driver=_proc_version(), models=())
    if library.nvmlInit_v2() != 0:
        return HostDevices(driver=_proc_version(), models=())
    try:
        text = ctypes.create_string_buffer(_TEXT_BYTES)
        failed = library.nvmlSystemGetDriverVersion(text, _TEXT_BYTES) != 0
        driver = _proc_version() if failed else text.value.decode("ascii", "replace")
        return HostDevices(driver=driver, models=_models(library))
    finally:
        library.nvmlShutdown()


def _models(library: ctypes.CDLL) -> tuple[tuple[str, str], ...]:
    count = ctypes.c_uint()
    if library.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
        return ()
    models = []
    for index in range(count.value):
        handle = ctypes.c_void_p()
        name = ctypes.create_string_buffer(_TEXT_BYTES)
        major, minor = ctypes.c_int(), ctypes.c_int()
        if (
            library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == 0
            and library.nvmlDeviceGetName(handle, name, _TEXT_BYTES) == 0
            and library.nvmlDeviceGetCudaComputeCapability(
                handle, ctypes.byref(major), ctypes.byref(minor)
            )
            == 0
        ):
            models.append((name.value.decode("ascii", "replace"), f"{major.value}.{minor.value}"))
    return tuple(models)


def _proc_version() -> str:
    try:
        text = PROC_VERSION.read_text(encoding="ascii", errors="replace")
    except OSError:
        return "none"
    # The line names the module's flavour in words before the first dotted number.
    found = re.search(r"^NVRM version:.*?\s(\d+(?:\.\d+)+)\s", text, re.MULTILINE)
    return found.group(1) if found else "none"
