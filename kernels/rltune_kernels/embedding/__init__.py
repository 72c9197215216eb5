"""Embedding: rows of a weight, by token id.

The function is imported on first use, so that the declaration and the kernel
load without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rltune_kernels.embedding.op import embedding

__all__ = ["embedding"]


def __getattr__(name: str) -> Any:
    if name == "embedding":
        from rltune_kernels.embedding import op

        return op.embedding
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
