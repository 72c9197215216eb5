"""Log-probabilities over vocabulary shards: the bytes of one device, whatever their number.

Each rank reads its own columns once and sends three numbers a token; every rank merges all
parts in the same fixed order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable

from rltune_kernels._host import check_device, flat_integers, needs_grad, refused, rows
from rltune_kernels._vocabulary import SEGMENTS, SHARD_COUNTS
from rltune_kernels.logprob.op import (
    Results,
    Saved,
    Vocabulary,
    check_ids,
    check_logits,
    check_temperature,
    flat_results,
    launch_merge,
    launch_shard,
    logprob_backward,
    row_results,
)
from rltune_kernels.logprob.spec import IGNORE_INDEX

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


def shard_parts(
    logits: torch.Tensor,
    ids: torch.Tensor,
    *,
    shard: int,
    num_shards: int,
    ignore_index: int = IGNORE_INDEX,
    temperature: float = 1.0,
    vocab_size: int | None = None,
) -> torch.Tensor:
    """What one vocabulary shard knows of each token: its largest logit, sum and selected logit.

    Args:
        logits: [..., shard_size], columns shard * shard_size and on of the vocabulary;
            bf16, fp16 or fp32; any strides. ``shard_size`` is a multiple of 8 / num_shards.
        ids: [...] in int64 or int32, counted over the whole vocabulary.
        shard: which shard, from 0.
        num_shards: 1, 2, 4 or 8.
        ignore_index: id of a token that has no log-probability.
        temperature: finite and above 0.
        vocab_size: columns of all shards that count; the rest is padding and not read.

    Returns:
        A contiguous fp32 tensor [3, num_tokens]. Not seen by autograd.

    Raises:
        OperatorArgumentError: an argument is not as described.
    """
    columns = _check_shard(logits, ids, shard, num_shards, vocab_size)
    scale = check_temperature("logprob", temperature)
    vocabulary = Vocabulary(ignore_index, scale, columns, shard * logits.shape[-1])
    parts = torch.empty((3, ids.numel()), dtype=torch.float32, device=logits.device)
    if columns == 0:  # a shard of padding alone
        parts[0] = torch.finfo(torch.float32).min
        parts[1:] = 0.0
    elif ids.numel():
        launch_shard(rows(logits), flat_integers(ids), parts, vocabulary, num_shards)
    return parts


def merge_shards(
    parts: torch.Tensor,
    ids: torch.Tensor,
    *,
    shard_size: int,
    ignore_index: int = IGNORE_INDEX,
    temperature: float = 1.0,
    vocab_size: int | None = None,
) -> Results:
    """Merge the parts of all shards, in the order of one device.

    Args:
        parts: [num_shards, 3, num_tokens] fp32, shard by shard what ``shard_parts`` gave.
        ids: [...] as for ``shard_parts``, num_tokens of them.
        shard_size: columns of a shard, padding included.
        ignore_index: id of a token that has no log-probability.
        temperature: finite and above 0.
        vocab_size: columns of all shards that count.

    Returns:
        (logprob, row_max, row_sum), each contiguous [...] fp32; the last two are what a
        gradient needs. Not seen by autograd.

    Raises:
        OperatorArgumentError: an argument is not as described.
    """
    scale = check_temperature("logprob", temperature)
    if not isinstance(parts, torch.Tensor) or parts.dtype != torch.float32:
        got = parts.dtype if isinstance(parts, torch.Tensor) else type(parts).__name__
        raise refused("logprob", "parts", "a tensor of torch.float32", got)
    fits = parts.dim() == 3 and parts.shape[0] in SHARD_COUNTS
    if not fits or tuple(parts.shape[1:]) != (3, ids.numel()):
        expected = f"[num_shards, 3, num_tokens] of {SHARD_COUNTS} shards, {ids.numel()} tokens"
        raise refused("logprob", "parts", expected, tuple(parts.shape))
    check_device("logprob", "parts", parts, ids)
    total = _check_total(vocab_size, parts.shape[0] * shard_size)
    results = row_results(ids)
    if ids.numel():
        vocabulary = Vocabulary(ignore_index, scale, total)
        own = flat_results(results)
        launch_merge(parts.contiguous(), flat_integers(ids), own, vocabulary, shard_size)
    return results


def tensor_parallel_logprob(
    logits: torch.Tensor,
    ids: torch.Tensor,
    *,
    group: ProcessGroup | None = None,
    ignore_index: int = IGNORE_INDEX,
    temperature: float = 1.0,
    vocab_size: int | None = None,
) -> torch.Tensor:
    """Log-probabilities where each rank holds a shard of the vocabulary.

    The bytes equal those of ``logprob`` on the whole rows, and on every rank. One
    all-gather of 12 bytes a token and rank; the gradient needs no communication.

    Args:
        logits: [..., shard_size], this rank's columns, in the order of ranks.
        ids: [...], the same on every rank, counted over the whole vocabulary.
        group: the ranks that share the vocabulary: 1, 2, 4 or 8; all of them if None.
        ignore_index: id of a token that has no log-probability.
        temperature: finite and above 0.
        vocab_size: columns of all shards that count.

    Returns:
        A contiguous fp32 tensor [...]; its gradient reaches ``logits``.

    Raises:
        OperatorArgumentError: an argument is not as described.
    """
    options = {
        "ignore_index": ignore_index,
        "temperature": temperature,
        "vocab_size": vocab_size,
    }
    if needs_grad(logits):
        result: torch.Tensor = _ParallelLogprob.apply(logits, ids, group, options)  # type: ignore[no-untyped-call]
        return result
    return _gathered(logits, ids, group, options)[0]


def _gathered(
    logits: torch.Tensor, ids: torch.Tensor, group: ProcessGroup | None, options: dict[str, Any]
) -> Results:
    from torch import distributed

    rank, num_shards = distributed.get_rank(group), distributed.get_world_size(group)
    own = shard_parts(logits, ids, shard=rank, num_shards=num_shards, **options)
    parts = own.new_empty((num_shards, *own.shape))
    distributed.all_gather(list(parts.unbind()), own, group=group)
    return merge_shards(parts, ids, shard_size=logits.shape[-1], **options)


class _ParallelLogprob(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: torch.Tensor,
        ids: torch.Tensor,
        group: ProcessGroup | None,
        options: dict[str, Any],
    ) -> torch.Tensor:
        from torch import distributed

        result, row_max, row_sum = _gathered(logits, ids, group, options)
        ctx.save_for_backward(logits, ids, row_max, row_sum)
        ctx.options = {**options, "shard": distributed.get_rank(group)}
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dlogprob: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        return shard_gradient(dlogprob, ctx.saved_tensors, **ctx.options), None, None, None


def shard_gradient(
    dlogprob: torch.Tensor,
    saved: Saved,
    *,
    shard: int,
    ignore_index: int = IGNORE_INDEX,
    temperature: float = 1.0,
    vocab_size: int | None = None,
) -> torch.Tensor:
    """Dlogits of one shard, of the shape and type of its logits.

    Args:
        dlogprob: [...] fp32, the same for every shard.
        saved: logits and ids as given to ``shard_parts``, row_max and row_sum of ``merge_shards``.
        shard: which shard, from 0.
        ignore_index: id of a token that has no log-probability.
        temperature: finite and above 0.
        vocab_size: columns of all shards that count.
    """
    shard_size = saved[0].shape[-1]
    start = shard * shard_size
    columns = _own_columns(start, shard_size, vocab_size)
    if columns == 0:
        return torch.zeros_like(saved[0], memory_format=torch.contiguous_format)
    scale = check_temperature("logprob", temperature)
    return logprob_backward(dlogprob, saved, Vocabulary(ignore_index, scale, columns, start))


def _check_shard(
    logits: torch.Tensor, ids: torch.Tensor, shard: int, num_shards: int, vocab_size: int | None
) -> int:
    check_logits("logprob", "logits", logits)
    check_ids("logprob", ids, logits)
    if num_shards not in SHARD_COUNTS:
        raise refused("logprob", "num_shards", f"one of {SHARD_COUNTS}", num_shards)
    if not 0 <= shard < num_shards:
        raise refused("logprob", "shard", f"from 0 to {num_shards - 1}", shard)
    shard_size = logits.shape[-1]
    if num_shards > 1 and shard_size % (SEGMENTS // num_shards):
        multiple = SEGMENTS // num_shards
        expected = (
            f"columns in multiples of {multiple} for {num_shards} shards (pad the vocabulary)"
        )
        raise refused("logprob", "logits", expected, shard_size)
    total = _check_total(vocab_size, num_shards * shard_size)
    return _own_columns(shard * shard_size, shard_size, total)


def _own_columns(start: int, shard_size: int, vocab_size: int | None) -> int:
    """Columns from ``start`` on that count, of a shard's own."""
    end = start + shard_size if vocab_size is None else vocab_size
    return min(max(end - start, 0), shard_size)


def _check_total(vocab_size: int | None, padded: int) -> int:
    total = padded if vocab_size is None else vocab_size
    if not 1 <= total <= padded:
        raise refused("logprob", "vocab_size", f"from 1 to {padded}", vocab_size)
    return total
