"""GRPO's loss: clipped policy ratio, k3 divergence, and how tokens are averaged.

The function is imported on first use, so that the declaration and the kernel
load without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rltune_kernels.grpo_loss.op import grpo_loss

__all__ = ["grpo_loss"]


def __getattr__(name: str) -> Any:
    if name == "grpo_loss":
        from rltune_kernels.grpo_loss import op

        return op.grpo_loss
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
