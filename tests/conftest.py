"""Before anything imports Triton: on a machine without a GPU, kernels run in its interpreter."""

import ctypes
import os


def _device_count() -> int:
    """CUDA devices the driver sees; asked without torch, and without a context."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = ctypes.c_int(0)
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return 0
    return count.value


if _device_count() == 0:
    os.environ.setdefault("TRITON_INTERPRET", "1")
