"""GRPO's advantages: rewards centred, and scaled, within their group.

The function is imported on first use, so that the declaration and the kernel
load without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rltune_kernels.grpo_norm.op import grpo_norm

__all__ = ["grpo_norm"]


def __getattr__(name: str) -> Any:
    if name == "grpo_norm":
        from rltune_kernels.grpo_norm import op

        return op.grpo_norm
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
