"""RMSNorm: x / rms(x) * weight.

The function is imported on first use, so that the declaration and the kernel
load without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rltune_kernels.rms_norm.op import rms_norm

__all__ = ["rms_norm"]


def __getattr__(name: str) -> Any:
    if name == "rms_norm":
        from rltune_kernels.rms_norm import op

        return op.rms_norm
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
