"""RMSNorm of a residual stream: x is added to it, then the sum is normed.

The function is imported on first use, so that the declaration and the kernel
load without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rltune_kernels.add_rms_norm.op import add_rms_norm

__all__ = ["add_rms_norm"]


def __getattr__(name: str) -> Any:
    if name == "add_rms_norm":
        from rltune_kernels.add_rms_norm import op

        return op.add_rms_norm
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
