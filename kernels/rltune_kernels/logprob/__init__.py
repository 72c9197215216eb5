"""Log-probability of a selected token, whole or over vocabulary shards.

The functions are imported on first use, so that the declaration and the kernels
load without torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rltune_kernels.logprob.op import logprob
    from rltune_kernels.logprob.shards import (
        merge_shards,
        shard_gradient,
        shard_parts,
        tensor_parallel_logprob,
    )

__all__ = ["logprob", "merge_shards", "shard_gradient", "shard_parts", "tensor_parallel_logprob"]


def __getattr__(name: str) -> Any:
    if name == "logprob":
        from rltune_kernels.logprob import op

        return op.logprob
    if name in __all__:
        from rltune_kernels.logprob import shards

        return getattr(shards, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
