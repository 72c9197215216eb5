"""Log-probabilities on tensors: checks, layout, autograd, registration."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from rltune.runtime.launcher import launch
from rltune_kernels._host import (
    check_device,
    check_elements,
    dtype_name,
    flat,
    flat_integers,
    needs_grad,
    needs_registered_op,
    new_like,
    refused,
    rows,
)
from rltune_kernels.logprob.spec import BACKWARD, FORWARD, IGNORE_INDEX, MERGE, SHARD

MAX_TOKENS = 2**31 - 1
"""Programs along one axis of a grid."""


def logprob(
    logits: torch.Tensor,
    ids: torch.Tensor,
    *,
    ignore_index: int = IGNORE_INDEX,
    temperature: float = 1.0,
    vocab_size: int | None = None,
) -> torch.Tensor:
    """Log-probability of one selected token in each row, log_softmax(logits / T)[ids].

    The bytes of a token depend on its own row and id alone, not on the batch.

    Args:
        logits: [..., padded_vocab_size] in bf16, fp16 or fp32; any strides.
        ids: [...] in int64 or int32; any strides. ``ignore_index`` gives 0 and no gradient,
            and the row is not read; any other id outside the vocabulary gives NaN.
        ignore_index: id of a token that has no log-probability.
        temperature: T; finite and above 0.
        vocab_size: columns that count, from the first; the rest is padding and not read.
            All of them if None.

    Returns:
        A contiguous fp32 tensor [...], never above 0.

    Raises:
        OperatorArgumentError: an argument is not as described.
    """
    columns, scale = check_logprob("logprob", logits, ids, temperature, vocab_size)
    if needs_registered_op(logits, ids):
        result: torch.Tensor = _logprob_op(logits, ids, ignore_index, scale, columns)[0]
    elif needs_grad(logits):
        result = _Logprob.apply(logits, ids, ignore_index, scale, columns)  # type: ignore[no-untyped-call]
    else:
        result = _forward(logits, ids, ignore_index, scale, columns)[0]
    return result


def check_logprob(
    operator: str,
    logits: torch.Tensor,
    ids: torch.Tensor,
    temperature: float,
    vocab_size: int | None,
) -> tuple[int, float]:
    """Check logits, ids and temperature; give the columns that count, and 1 / temperature.

    Raises:
        OperatorArgumentError: an argument does not fit; the message names ``operator``.
    """
    check_logits(operator, "logits", logits)
    check_ids(operator, ids, logits)
    return check_columns(operator, logits, vocab_size), check_temperature(operator, temperature)


def check_logits(operator: str, name: str, logits: torch.Tensor) -> None:
    """Check that logits are rows of a supported type with at least one column.

    Raises:
        OperatorArgumentError: they are not.
    """
    check_elements(operator, name, logits, "[..., padded_vocab_size]")
    if not 1 <= logits.shape[-1] < 2**31:
        raise refused(operator, name, "from 1 to 2**31 - 1 columns", logits.shape[-1])


def check_ids(operator: str, ids: torch.Tensor, logits: torch.Tensor) -> None:
    """Check that ``ids`` holds one integer for each row of ``logits``.

    Raises:
        OperatorArgumentError: it does not.
    """
    if not isinstance(ids, torch.Tensor):
        raise refused(operator, "ids", "a tensor [...] of token ids", type(ids).__name__)
    if ids.dtype not in (torch.int64, torch.int32):
        raise refused(operator, "ids", "element type torch.int64, torch.int32", ids.dtype)
    if ids.shape != logits.shape[:-1]:
        expected = f"the rows of logits, {tuple(logits.shape[:-1])}"
        raise refused(operator, "ids", expected, tuple(ids.shape))
    if ids.numel() > MAX_TOKENS:
        raise refused(operator, "ids", f"at most {MAX_TOKENS} tokens", ids.numel())
    check_device(operator, "ids", ids, logits)


def check_columns(operator: str, logits: torch.Tensor, vocab_size: int | None) -> int:
    """Columns of ``logits`` that count.

    Raises:
        OperatorArgumentError: it has fewer, or none shall count.
    """
    columns = logits.shape[-1] if vocab_size is None else vocab_size
    if not 1 <= columns <= logits.shape[-1]:
        raise refused(operator, "vocab_size", f"from 1 to {logits.shape[-1]}", vocab_size)
    return columns


def check_temperature(operator: str, temperature: float) -> float:
    """1 / ``temperature``.

    Raises:
        OperatorArgumentError: that is not a finite number above 0.
    """
    if not (math.isfinite(temperature) and temperature > 0 and math.isfinite(1 / temperature)):
        raise refused(operator, "temperature", "a finite number above 0", temperature)
    return 1 / temperature


def launch_forward(
    logits: torch.Tensor,
    ids: torch.Tensor,
    results: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    ignore_index: int,
    scale: float,
    columns: int,
) -> None:
    """One launch of ``forward``: logits [num_tokens, padded_vocab_size], the rest [num_tokens]."""
    num_tokens, padded = logits.shape
    axes = {"num_tokens": num_tokens, "vocab_size": columns, "padded_vocab_size": padded}
    arguments = (logits, ids, *results, num_tokens, ignore_index, scale)
    launch(FORWARD, axes, dtype_name(logits), arguments)


def launch_shard(
    logits: torch.Tensor,
    ids: torch.Tensor,
    parts: torch.Tensor,
    vocab_start: int,
    ignore_index: int,
    scale: float,
    columns: int,
    num_shards: int,
) -> None:
    """One launch of ``shard``: logits [num_tokens, padded_vocab_size], parts [3, num_tokens]."""
    num_tokens, padded = logits.shape
    axes = {
        "num_tokens": num_tokens,
        "vocab_size": columns,
        "padded_vocab_size": padded,
        "num_shards": num_shards,
    }
    arguments = (logits, ids, parts, num_tokens, vocab_start, ignore_index, scale)
    launch(SHARD, axes, dtype_name(logits), arguments)


def launch_merge(
    parts: torch.Tensor,
    ids: torch.Tensor,
    results: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    vocab_size: int,
    shard_size: int,
    ignore_index: int,
    scale: float,
) -> None:
    """One launch of ``merge``: parts [num_shards, 3, num_tokens], the rest [num_tokens]."""
    num_shards, _, num_tokens = parts.shape
    axes = {
        "num_tokens": num_tokens,
        "num_shards": num_shards,
        "vocab_size": vocab_size,
        "shard_size": shard_size,
    }
    arguments = (parts, ids, *results, num_tokens, vocab_size, shard_size, ignore_index, scale)
    launch(MERGE, axes, "fp32", arguments)


def launch_backward(
    dlogprob: torch.Tensor,
    logits: torch.Tensor,
    ids: torch.Tensor,
    row_max: torch.Tensor,
    row_sum: torch.Tensor,
    dlogits: torch.Tensor,
    vocab_start: int,
    ignore_index: int,
    scale: float,
    columns: int,
) -> None:
    """One launch of ``backward``: logits, dlogits [num_tokens, padded_vocab_size]."""
    num_tokens, padded = logits.shape
    axes = {"num_tokens": num_tokens, "vocab_size": columns, "padded_vocab_size": padded}
    arguments = (
        dlogprob,
        logits,
        ids,
        row_max,
        row_sum,
        dlogits,
        num_tokens,
        vocab_start,
        ignore_index,
        scale,
    )
    launch(BACKWARD, axes, dtype_name(logits), arguments)


def row_results(ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Uninitialised logprob, row_max and row_sum [...] fp32 of the rows of ``ids``."""
    made = [torch.empty(ids.shape, dtype=torch.float32, device=ids.device) for _ in range(3)]
    return made[0], made[1], made[2]


def _forward(
    logits: torch.Tensor, ids: torch.Tensor, ignore_index: int, scale: float, columns: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    results = row_results(ids)
    if ids.numel():
        chosen, row_max, row_sum = results
        flat_results = flat(chosen), flat(row_max), flat(row_sum)
        launch_forward(rows(logits), flat_integers(ids), flat_results, ignore_index, scale, columns)
    return results


def logprob_backward(
    dlogprob: torch.Tensor,
    logits: torch.Tensor,
    ids: torch.Tensor,
    row_max: torch.Tensor,
    row_sum: torch.Tensor,
    *,
    ignore_index: int,
    scale: float,
    columns: int,
    vocab_start: int = 0,
) -> torch.Tensor:
    """Dlogits, contiguous, of the shape and type of ``logits``; not seen by autograd."""
    dlogits = new_like(logits)
    if ids.numel():
        launch_backward(
            flat(dlogprob),
            rows(logits),
            flat_integers(ids),
            flat(row_max),
            flat(row_sum),
            rows(dlogits),
            vocab_start,
            ignore_index,
            scale,
            columns,
        )
    return dlogits


class _Logprob(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: torch.Tensor,
        ids: torch.Tensor,
        ignore_index: int,
        scale: float,
        columns: int,
    ) -> torch.Tensor:
        result, row_max, row_sum = _forward(logits, ids, ignore_index, scale, columns)
        ctx.save_for_backward(logits, ids, row_max, row_sum)
        ctx.constants = {"ignore_index": ignore_index, "scale": scale, "columns": columns}
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dlogprob: torch.Tensor) -> tuple[torch.Tensor, None, None, None, None]:
        return (
            logprob_backward(dlogprob, *ctx.saved_tensors, **ctx.constants),
            None,
            None,
            None,
            None,
        )


@torch.library.custom_op("rltune::logprob", mutates_args=())
def _logprob_op(
    logits: torch.Tensor, ids: torch.Tensor, ignore_index: int, scale: float, columns: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return _forward(logits, ids, ignore_index, scale, columns)


@torch.library.custom_op("rltune::logprob_backward", mutates_args=())
def _logprob_backward_op(
    dlogprob: torch.Tensor,
    logits: torch.Tensor,
    ids: torch.Tensor,
    row_max: torch.Tensor,
    row_sum: torch.Tensor,
    ignore_index: int,
    scale: float,
    columns: int,
) -> torch.Tensor:
    return logprob_backward(
        dlogprob,
        logits,
        ids,
        row_max,
        row_sum,
        ignore_index=ignore_index,
        scale=scale,
        columns=columns,
    )


@_logprob_op.register_fake
def _logprob_fake(
    _logits: torch.Tensor, ids: torch.Tensor, _ignore_index: int, _scale: float, _columns: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return row_results(ids)


@_logprob_backward_op.register_fake
def _logprob_backward_fake(
    _dlogprob: torch.Tensor,
    logits: torch.Tensor,
    _ids: torch.Tensor,
    _row_max: torch.Tensor,
    _row_sum: torch.Tensor,
    _ignore_index: int,
    _scale: float,
    _columns: int,
) -> torch.Tensor:
    return new_like(logits)


def _setup_context(
    ctx: Any,
    inputs: tuple[torch.Tensor, torch.Tensor, int, float, int],
    output: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
) -> None:
    logits, ids, *constants = inputs
    _, row_max, row_sum = output
    ctx.mark_non_differentiable(row_max, row_sum)
    ctx.save_for_backward(logits, ids, row_max, row_sum)
    ctx.constants = constants


def _backward_registered(
    ctx: Any, dlogprob: torch.Tensor, _dmax: torch.Tensor | None, _dsum: torch.Tensor | None
) -> tuple[torch.Tensor, None, None, None, None]:
    dlogits = _logprob_backward_op(dlogprob, *ctx.saved_tensors, *ctx.constants)
    return dlogits, None, None, None, None


_logprob_op.register_autograd(_backward_registered, setup_context=_setup_context)
