"""Policy ratio and KL on tensors: checks, layout, autograd, registration."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from rltune.runtime.launcher import launch
from rltune_kernels._arguments import flat_mask
from rltune_kernels._host import (
    check_device,
    check_matches,
    dtype_name,
    flat,
    flat_integers,
    needs_grad,
    needs_registered_op,
    new_like,
    refused,
    rows,
)
from rltune_kernels.logprob.op import (
    check_columns,
    check_ids,
    check_logits,
    check_temperature,
    row_axes,
)
from rltune_kernels.ratio_kl.spec import BACKWARD, FORWARD

Results = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""Ratio, kl, kl_slope, row_max and row_sum, each [...] fp32."""

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""Logits and ref_logits [..., padded_vocab_size], ids, mask and old_logprob [...]."""

Saved = tuple[
    torch.Tensor,
    torch.Tensor,
    torch.Tensor,
    torch.Tensor,
    torch.Tensor,
    torch.Tensor,
    torch.Tensor,
]
"""Logits, ids, mask, ratio, kl_slope, row_max and row_sum: what a gradient needs."""


def ratio_kl(
    logits: torch.Tensor,
    ref_logits: torch.Tensor,
    ids: torch.Tensor,
    old_logprob: torch.Tensor,
    *,
    mask: torch.Tensor | None = None,
    temperature: float = 1.0,
    vocab_size: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Ratio to the old policy and k3 KL to a reference model, of one selected token in each row.

    The bytes of a token depend on its own rows alone, not on the batch.

    Args:
        logits: the policy's, [..., padded_vocab_size] in bf16, fp16 or fp32; any strides.
        ref_logits: the reference model's, of the shape, type and device of ``logits``; no
            gradient reaches them.
        ids: [...] in int64 or int32; one outside the vocabulary gives NaN.
        old_logprob: [...] fp32, as ``logprob`` gave it when the tokens were sampled.
        mask: [...] bool or uint8; where it is 0, ratio is 1, kl 0, the gradient 0, and the
            rows, the id and old_logprob are not read. None: every token counts.
        temperature: T of both models; finite and above 0.
        vocab_size: columns that count, from the first; the rest is padding and not read.
            All of them if None.

    Returns:
        (ratio, kl), contiguous fp32 tensors [...]; their gradient reaches ``logits``.

    Raises:
        OperatorArgumentError: an argument is not as described.
    """
    mask = _check(logits, ref_logits, ids, old_logprob, mask)
    columns = check_columns("ratio_kl", logits, vocab_size)
    scale = check_temperature("ratio_kl", temperature)
    inputs = logits, ref_logits, ids, mask, old_logprob
    if needs_registered_op(*inputs):
        made = _ratio_kl_op(*inputs, scale, columns)
        return made[0], made[1]
    if needs_grad(logits):
        result: tuple[torch.Tensor, torch.Tensor] = _RatioKL.apply(scale, columns, *inputs)  # type: ignore[no-untyped-call]
        return result
    made = _forward(inputs, scale, columns)
    return made[0], made[1]


def _check(
    logits: torch.Tensor,
    ref_logits: torch.Tensor,
    ids: torch.Tensor,
    old_logprob: torch.Tensor,
    mask: torch.Tensor | None,
) -> torch.Tensor:
    check_logits("ratio_kl", "logits", logits)
    axes = "[..., padded_vocab_size]"
    shape = tuple(logits.shape)
    check_matches("ratio_kl", "ref_logits", ref_logits, shape=shape, axes=axes, like=logits)
    check_ids("ratio_kl", ids, logits)
    _check_row("old_logprob", old_logprob, ids, (torch.float32,))
    if mask is None:
        return torch.ones(ids.shape, dtype=torch.uint8, device=ids.device)
    _check_row("mask", mask, ids, (torch.bool, torch.uint8))
    return mask


def _check_row(
    name: str, value: torch.Tensor, ids: torch.Tensor, dtypes: tuple[torch.dtype, ...]
) -> None:
    if not isinstance(value, torch.Tensor):
        raise refused("ratio_kl", name, "a tensor [...]", type(value).__name__)
    if value.dtype not in dtypes:
        expected = f"element type {', '.join(str(item) for item in dtypes)}"
        raise refused("ratio_kl", name, expected, value.dtype)
    if value.shape != ids.shape:
        raise refused("ratio_kl", name, f"the shape of ids, {tuple(ids.shape)}", tuple(value.shape))
    check_device("ratio_kl", name, value, ids)


def launch_forward(inputs: Inputs, results: Results, scale: float, columns: int) -> None:
    """One launch of ``forward``: logits [num_tokens, padded_vocab_size], the rest [num_tokens]."""
    axes = row_axes(inputs[0], columns)
    launch(FORWARD, axes, dtype_name(inputs[0]), (*inputs, *results, scale))


def launch_backward(
    dratio: torch.Tensor,
    dkl: torch.Tensor,
    saved: Saved,
    dlogits: torch.Tensor,
    scale: float,
    columns: int,
) -> None:
    """One launch of ``backward``: logits, dlogits [num_tokens, padded_vocab_size]."""
    axes = row_axes(dlogits, columns)
    launch(BACKWARD, axes, dtype_name(dlogits), (dratio, dkl, *saved, dlogits, scale))


def _row_results(ids: torch.Tensor) -> Results:
    a, b, c, d, e = (
        torch.empty(ids.shape, dtype=torch.float32, device=ids.device) for _ in range(5)
    )
    return a, b, c, d, e


def _forward(inputs: Inputs, scale: float, columns: int) -> Results:
    logits, ref_logits, ids, mask, old_logprob = inputs
    results = _row_results(ids)
    if ids.numel():
        a, b, c, d, e = (flat(item) for item in results)
        given = (
            rows(logits),
            rows(ref_logits),
            flat_integers(ids),
            flat_mask(mask),
            flat(old_logprob),
        )
        launch_forward(given, (a, b, c, d, e), scale, columns)
    return results


def _backward(
    dratio: torch.Tensor, dkl: torch.Tensor, saved: Saved, scale: float, columns: int
) -> torch.Tensor:
    logits, ids, mask, *rest = saved
    dlogits = new_like(logits)
    if ids.numel():
        ratio, kl_slope, row_max, row_sum = (flat(item) for item in rest)
        given = rows(logits), flat_integers(ids), flat_mask(mask), ratio, kl_slope, row_max, row_sum
        launch_backward(flat(dratio), flat(dkl), given, rows(dlogits), scale, columns)
    return dlogits


def _saved(inputs: Inputs, results: Results) -> Saved:
    logits, _, ids, mask, _ = inputs
    ratio, _, kl_slope, row_max, row_sum = results
    return logits, ids, mask, ratio, kl_slope, row_max, row_sum


class _RatioKL(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, scale: float, columns: int, *inputs: *Inputs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        results = _forward(inputs, scale, columns)
        ctx.save_for_backward(*_saved(inputs, results))
        ctx.constants = scale, columns
        return results[0], results[1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dratio: torch.Tensor, dkl: torch.Tensor) -> tuple[Any, ...]:
        dlogits = _backward(dratio, dkl, ctx.saved_tensors, *ctx.constants)
        return None, None, dlogits, None, None, None, None


@torch.library.custom_op("rltune::ratio_kl", mutates_args=())
def _ratio_kl_op(
    logits: torch.Tensor,
    ref_logits: torch.Tensor,
    ids: torch.Tensor,
    mask: torch.Tensor,
    old_logprob: torch.Tensor,
    scale: float,
    columns: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    return _forward((logits, ref_logits, ids, mask, old_logprob), scale, columns)


@torch.library.custom_op("rltune::ratio_kl_backward", mutates_args=())
def _ratio_kl_backward_op(
    dratio: torch.Tensor,
    dkl: torch.Tensor,
    saved: list[torch.Tensor],
    scale: float,
    columns: int,
) -> torch.Tensor:
    logits, ids, mask, ratio, kl_slope, row_max, row_sum = saved
    given = logits, ids, mask, ratio, kl_slope, row_max, row_sum
    return _backward(dratio, dkl, given, scale, columns)


@_ratio_kl_op.register_fake
def _ratio_kl_fake(
    _logits: torch.Tensor,
    _ref_logits: torch.Tensor,
    ids: torch.Tensor,
    _mask: torch.Tensor,
    _old_logprob: torch.Tensor,
    _scale: float,
    _columns: int,
) -> Results:
    return _row_results(ids)


@_ratio_kl_backward_op.register_fake
def _ratio_kl_backward_fake(
    _dratio: torch.Tensor,
    _dkl: torch.Tensor,
    saved: list[torch.Tensor],
    _scale: float,
    _columns: int,
) -> torch.Tensor:
    return new_like(saved[0])


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Results) -> None:
    logits, ref_logits, ids, mask, old_logprob, scale, columns = inputs
    ctx.mark_non_differentiable(*output[2:])
    ctx.save_for_backward(*_saved((logits, ref_logits, ids, mask, old_logprob), output))
    ctx.constants = scale, columns


def _backward_registered(
    ctx: Any, dratio: torch.Tensor, dkl: torch.Tensor, *_others: torch.Tensor | None
) -> tuple[Any, ...]:
    dlogits = _ratio_kl_backward_op(dratio, dkl, list(ctx.saved_tensors), *ctx.constants)
    return dlogits, None, None, None, None, None, None


_ratio_kl_op.register_autograd(_backward_registered, setup_context=_setup_context)
