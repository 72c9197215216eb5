"""Log-probabilities on tensors: checks, layout, autograd, registration."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

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

Results = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Logprob, row_max and row_sum, each [...] fp32."""

Saved = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""Logits, ids, row_max and row_sum: what a gradient needs."""


class Vocabulary(NamedTuple):
    """How rows of logits are read.

    Attributes:
        ignore_index: id of a token without a log-probability.
        inverse_temperature: what logits are multiplied with.
        vocab_size: columns of this shard that count.
        vocab_start: id of this shard's first column.
    """

    ignore_index: int
    inverse_temperature: float
    vocab_size: int
    vocab_start: int = 0

    def scalars(self) -> tuple[int, int, float]:
        """vocab_start, ignore_index and inverse_temperature, as kernels take them."""
        return self.vocab_start, self.ignore_index, self.inverse_temperature


def row_axes(logits: torch.Tensor, vocab_size: int) -> dict[str, int]:
    """Sizes of a launch over ``logits`` [num_tokens, padded_vocab_size]."""
    num_tokens, padded = logits.shape
    return {"num_tokens": num_tokens, "vocab_size": vocab_size, "padded_vocab_size": padded}


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
    check_logits("logprob", "logits", logits)
    check_ids("logprob", ids, logits)
    columns = check_columns("logprob", logits, vocab_size)
    vocabulary = Vocabulary(ignore_index, check_temperature("logprob", temperature), columns)
    if needs_registered_op(logits, ids):
        result: torch.Tensor = _logprob_op(logits, ids, *vocabulary[:3])[0]
    elif needs_grad(logits):
        result = _Logprob.apply(logits, ids, vocabulary)  # type: ignore[no-untyped-call]
    else:
        result = _forward(logits, ids, vocabulary)[0]
    return result


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
    logits: torch.Tensor, ids: torch.Tensor, results: Results, vocabulary: Vocabulary
) -> None:
    """One launch of ``forward``: logits [num_tokens, padded_vocab_size], the rest [num_tokens]."""
    scalars = (vocabulary.ignore_index, vocabulary.inverse_temperature)
    axes = row_axes(logits, vocabulary.vocab_size)
    launch(FORWARD, axes, dtype_name(logits), (logits, ids, *results, *scalars))


def launch_shard(
    logits: torch.Tensor,
    ids: torch.Tensor,
    parts: torch.Tensor,
    vocabulary: Vocabulary,
    num_shards: int,
) -> None:
    """One launch of ``shard``: logits [num_tokens, padded_vocab_size], parts [3, num_tokens]."""
    axes = {**row_axes(logits, vocabulary.vocab_size), "num_shards": num_shards}
    arguments = (logits, ids, parts, logits.shape[0], *vocabulary.scalars())
    launch(SHARD, axes, dtype_name(logits), arguments)


def launch_merge(
    parts: torch.Tensor,
    ids: torch.Tensor,
    results: Results,
    vocabulary: Vocabulary,
    shard_size: int,
) -> None:
    """One launch of ``merge``: parts [num_shards, 3, num_tokens], the rest [num_tokens].

    ``vocabulary`` is that of all shards, whose padded sizes are ``shard_size``.
    """
    num_shards, _, num_tokens = parts.shape
    axes = {
        "num_tokens": num_tokens,
        "num_shards": num_shards,
        "vocab_size": vocabulary.vocab_size,
        "shard_size": shard_size,
    }
    arguments = (
        parts,
        ids,
        *results,
        num_tokens,
        vocabulary.vocab_size,
        shard_size,
        vocabulary.ignore_index,
        vocabulary.inverse_temperature,
    )
    launch(MERGE, axes, "fp32", arguments)


def launch_backward(
    dlogprob: torch.Tensor, saved: Saved, dlogits: torch.Tensor, vocabulary: Vocabulary
) -> None:
    """One launch of ``backward``: logits, dlogits [num_tokens, padded_vocab_size]."""
    logits, *rest = saved
    arguments = (dlogprob, logits, *rest, dlogits, *vocabulary.scalars())
    launch(BACKWARD, row_axes(logits, vocabulary.vocab_size), dtype_name(logits), arguments)


def row_results(ids: torch.Tensor) -> Results:
    """Uninitialised logprob, row_max and row_sum [...] fp32 of the rows of ``ids``."""
    made = [torch.empty(ids.shape, dtype=torch.float32, device=ids.device) for _ in range(3)]
    return made[0], made[1], made[2]


def flat_results(results: Results) -> Results:
    """The three results as views [num_tokens]."""
    return flat(results[0]), flat(results[1]), flat(results[2])


def _forward(logits: torch.Tensor, ids: torch.Tensor, vocabulary: Vocabulary) -> Results:
    results = row_results(ids)
    if ids.numel():
        launch_forward(rows(logits), flat_integers(ids), flat_results(results), vocabulary)
    return results


def logprob_backward(dlogprob: torch.Tensor, saved: Saved, vocabulary: Vocabulary) -> torch.Tensor:
    """Dlogits, contiguous, of the shape and type of the saved logits; not seen by autograd."""
    logits, ids, row_max, row_sum = saved
    dlogits = new_like(logits)
    if ids.numel():
        flat_saved = (rows(logits), flat_integers(ids), flat(row_max), flat(row_sum))
        launch_backward(flat(dlogprob), flat_saved, rows(dlogits), vocabulary)
    return dlogits


class _Logprob(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, logits: torch.Tensor, ids: torch.Tensor, vocabulary: Vocabulary
    ) -> torch.Tensor:
        result, row_max, row_sum = _forward(logits, ids, vocabulary)
        ctx.save_for_backward(logits, ids, row_max, row_sum)
        ctx.vocabulary = vocabulary
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dlogprob: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return logprob_backward(dlogprob, ctx.saved_tensors, ctx.vocabulary), None, None


# A registered operator takes plain numbers: the fields of ``Vocabulary`` without its start.
@torch.library.custom_op("rltune::logprob", mutates_args=())
def _logprob_op(
    logits: torch.Tensor,
    ids: torch.Tensor,
    ignore_index: int,
    inverse_temperature: float,
    vocab_size: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return _forward(logits, ids, Vocabulary(ignore_index, inverse_temperature, vocab_size))


@torch.library.custom_op("rltune::logprob_backward", mutates_args=())
def _logprob_backward_op(
    dlogprob: torch.Tensor,
    saved: list[torch.Tensor],
    ignore_index: int,
    inverse_temperature: float,
    vocab_size: int,
) -> torch.Tensor:
    logits, ids, row_max, row_sum = saved
    vocabulary = Vocabulary(ignore_index, inverse_temperature, vocab_size)
    return logprob_backward(dlogprob, (logits, ids, row_max, row_sum), vocabulary)


@_logprob_op.register_fake
def _logprob_fake(
    _logits: torch.Tensor, ids: torch.Tensor, _ignore_index: int, _scale: float, _columns: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return row_results(ids)


@_logprob_backward_op.register_fake
def _logprob_backward_fake(
    _dlogprob: torch.Tensor,
    saved: list[torch.Tensor],
    _ignore_index: int,
    _scale: float,
    _columns: int,
) -> torch.Tensor:
    return new_like(saved[0])


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
    dlogits = _logprob_backward_op(dlogprob, list(ctx.saved_tensors), *ctx.constants)
    return dlogits, None, None, None, None


_logprob_op.register_autograd(_backward_registered, setup_context=_setup_context)
