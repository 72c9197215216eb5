"""RoPE: pairs of a head's elements, rotated by angles of the token's position.

The function is imported on first use, so that the declaration and the kernel
load without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rltune_kernels.rope.op import rope

__all__ = ["rope"]


def __getattr__(name: str) -> Any:
    if name == "rope":
        from rltune_kernels.rope import op

        return op.rope
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
