"""Policy ratio and k3 KL divergence of selected tokens, from logits.

The function is imported on first use, so that the declaration and the kernels
load without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rltune_kernels.ratio_kl.op import ratio_kl

__all__ = ["ratio_kl"]


def __getattr__(name: str) -> Any:
    if name == "ratio_kl":
        from rltune_kernels.ratio_kl import op

        return op.ratio_kl
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
