"""SwiGLU: silu(gate) * up.

The function is imported on first use, so that the declaration and the kernel
load without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rltune_kernels.swiglu.op import swiglu

__all__ = ["swiglu"]


def __getattr__(name: str) -> Any:
    if name == "swiglu":
        from rltune_kernels.swiglu import op

        return op.swiglu
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
