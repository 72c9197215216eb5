"""SiLU: x * sigmoid(x).

The function is imported on first use, so that the declaration and the kernel
load without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rltune_kernels.silu.op import silu

__all__ = ["silu"]


def __getattr__(name: str) -> Any:
    if name == "silu":
        from rltune_kernels.silu import op

        return op.silu
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
