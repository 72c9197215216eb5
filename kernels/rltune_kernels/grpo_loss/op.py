"""GRPO's loss on tensors: layout, autograd, registration."""
# ruff: noqa: PLR0913, PLR0917 - the arguments of the public function, also as an operator's

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from rltune.runtime.launcher import launch
from rltune_kernels._arguments import flat_mask
from rltune_kernels._host import (
    dense,
    dtype_name,
    flat,
    needs_grad,
    needs_registered_op,
    new_like,
    rows,
)
from rltune_kernels.grpo_loss.arguments import Rule, check_rule, check_tokens
from rltune_kernels.grpo_loss.candidates import length_bucket
from rltune_kernels.grpo_loss.spec import BACKWARD, DEFAULT_CLIP, FOLD, FORWARD

Results = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
_Kept = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def grpo_loss(
    logprob: torch.Tensor,
    old_logprob: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    *,
    ref_logprob: torch.Tensor | None = None,
    clip_low: float = DEFAULT_CLIP,
    clip_high: float = DEFAULT_CLIP,
    beta: float = 0.0,
    aggregation: str = "token_mean",
    max_length: int | None = None,
) -> Results:
    """Give the clipped policy loss of the masked tokens and its k3 divergence from ``ref``.

    A token's surrogate is -min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A) with
    ratio = exp(logprob - old_logprob). loss = policy_loss + beta * kl, each an average over
    the tokens whose mask holds. What the other tokens hold has no part in it.

    Args:
        logprob: [num_sequences, sequence_length] in bf16, fp16 or fp32, any strides, as all.
        old_logprob: as ``logprob``, of any of these types; not differentiable, as are the next.
        advantages: [num_sequences], or one a token.
        mask: bool, uint8, int32 or int64: not zero where a token counts.
        ref_logprob: as ``old_logprob``; None where ``beta`` is 0, and then kl is 0.
        clip_low: from 0 to 1.
        clip_high: finite and not negative.
        beta: weight of kl; finite and not negative.
        aggregation: ``token_mean`` over all tokens; ``sequence_mean`` over sequences with a
            token, of their means; ``constant``: sum / (num_sequences * max_length).
        max_length: positive; read for ``constant`` alone.

    Returns:
        (loss, policy_loss, kl), scalars in fp32. Only loss has a gradient, in ``logprob``.

    Raises:
        OperatorArgumentError: an argument is not as described, or asks for a gradient that
            there is for logprob alone.
    """
    check_tokens(logprob, old_logprob, advantages, mask, ref_logprob)
    numbers = check_rule(clip_low, clip_high, beta, aggregation, max_length, ref_logprob)
    tensors = logprob, old_logprob, advantages, mask, ref_logprob
    choices = float(clip_low), float(clip_high), float(beta), *numbers
    if needs_registered_op(*(item for item in tensors if item is not None)):
        loss, policy_loss, kl, _, _ = _grpo_loss_op(*tensors, *choices)
        result = loss, policy_loss, kl
    elif needs_grad(logprob):
        result = _GRPOLoss.apply(*tensors, Rule.of(*choices))  # type: ignore[no-untyped-call]
    else:
        result = _forward(Tokens.of(*tensors), Rule.of(*choices))[:3]
    return result


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tensors of a call as launches take them: dense, constants in fp32.

    Attributes:
        logprob: [num_sequences, sequence_length] of the element type.
        old_logprob: the same shape, fp32.
        ref_logprob: the same shape, fp32, or None.
        advantages: [num_sequences] or [num_sequences, sequence_length], fp32.
        mask: [num_sequences * sequence_length], u8.
    """

    logprob: torch.Tensor
    old_logprob: torch.Tensor
    ref_logprob: torch.Tensor | None
    advantages: torch.Tensor
    mask: torch.Tensor

    @classmethod
    def of(
        cls,
        logprob: torch.Tensor,
        old_logprob: torch.Tensor,
        advantages: torch.Tensor,
        mask: torch.Tensor,
        ref_logprob: torch.Tensor | None,
    ) -> Tokens:
        """Dense forms of a call's tensors."""
        ref = None if ref_logprob is None else _wide(ref_logprob)
        return cls(dense(logprob), _wide(old_logprob), ref, _wide(advantages), flat_mask(mask))

    def axes(self) -> dict[str, int]:
        """Sizes by axis name."""
        num_sequences, sequence_length = self.logprob.shape
        per_token = self.advantages.dim() == 2
        return {
            "num_sequences": num_sequences,
            "length_bucket": length_bucket(sequence_length),
            "sequence_length": sequence_length,
            "num_advantages": self.advantages.numel(),
            "advantage_row": sequence_length if per_token else 1,
            "advantage_token": int(per_token),
        }

    def pointers(self) -> tuple[torch.Tensor, ...]:
        """The first five arguments of ``forward`` and ``backward``; ref is unread if None."""
        ref = self.old_logprob if self.ref_logprob is None else self.ref_logprob
        return self.logprob, self.old_logprob, ref, self.advantages, self.mask


def launch_forward(tokens: Tokens, partial: torch.Tensor, rule: Rule) -> None:
    """One launch of ``forward``: partial is [num_sequences, 3] fp64."""
    axes, has_ref = tokens.axes(), int(tokens.ref_logprob is not None)
    layout = axes["sequence_length"], axes["advantage_row"], axes["advantage_token"], has_ref
    arguments = (*tokens.pointers(), partial, *layout, rule.ratio_low, rule.ratio_high)
    launch(FORWARD, axes, dtype_name(tokens.logprob), arguments)


def launch_fold(tokens: Tokens, partial: torch.Tensor, results: _Kept, rule: Rule) -> None:
    """One launch of ``fold``: totals [3] fp64, loss, policy_loss and kl [] fp32 in results."""
    axes = tokens.axes()
    loss, policy_loss, kl, _, totals = results
    numbers = axes["num_sequences"], rule.aggregation, rule.max_length, rule.beta
    arguments = (partial, totals, loss, policy_loss, kl, *numbers)
    launch(FOLD, axes, dtype_name(tokens.logprob), arguments)


def launch_backward(
    tokens: Tokens,
    kept: tuple[torch.Tensor, torch.Tensor],
    dloss: torch.Tensor,
    dlogprob: torch.Tensor,
    rule: Rule,
) -> None:
    """One launch of ``backward``: partial and totals as kept, dloss [] fp32."""
    axes = tokens.axes()
    has_ref = int(tokens.ref_logprob is not None and rule.beta != 0)  # unread without a weight
    layout = axes["sequence_length"], axes["advantage_row"], axes["advantage_token"], has_ref
    numbers = rule.aggregation, rule.ratio_low, rule.ratio_high, rule.beta
    arguments = (*tokens.pointers(), *kept, dloss, dlogprob, *layout, *numbers)
    launch(BACKWARD, axes, dtype_name(tokens.logprob), arguments)


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """A dense fp32 form of a constant; bf16 and fp16 take a launch."""
    return dense(tensor if tensor.dtype == torch.float32 else tensor.float())


def _new_results(logprob: torch.Tensor) -> _Kept:
    """Loss, policy_loss, kl, partial and totals, uninitialised."""
    scalars = [logprob.new_empty((), dtype=torch.float32) for _ in range(3)]
    partial = logprob.new_empty((logprob.shape[0], 3), dtype=torch.float64)
    return (*scalars, partial, logprob.new_empty(3, dtype=torch.float64))  # type: ignore[return-value]


def _forward(tokens: Tokens, rule: Rule) -> _Kept:
    results = _new_results(tokens.logprob)
    if tokens.logprob.numel():
        launch_forward(tokens, results[3], rule)
        launch_fold(tokens, results[3], results, rule)
    else:
        for item in results:
            item.zero_()
    return results


def _backward(
    dloss: torch.Tensor, tokens: Tokens, kept: tuple[torch.Tensor, torch.Tensor], rule: Rule
) -> torch.Tensor:
    dlogprob = new_like(tokens.logprob)
    if dlogprob.numel():
        launch_backward(tokens, kept, flat(dloss), rows(dlogprob), rule)
    return dlogprob


class _GRPOLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logprob: torch.Tensor,
        old_logprob: torch.Tensor,
        advantages: torch.Tensor,
        mask: torch.Tensor,
        ref_logprob: torch.Tensor | None,
        rule: Rule,
    ) -> Results:
        tokens = Tokens.of(logprob, old_logprob, advantages, mask, ref_logprob)
        loss, policy_loss, kl, partial, totals = _forward(tokens, rule)
        ctx.mark_non_differentiable(policy_loss, kl)
        tensors = logprob, old_logprob, advantages, mask, ref_logprob
        ctx.save_for_backward(*tensors, partial, totals)
        ctx.rule = rule
        return loss, policy_loss, kl

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, dloss: torch.Tensor, *_metrics: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        *tensors, partial, totals = ctx.saved_tensors
        dlogprob = _backward(dloss, Tokens.of(*tensors), (partial, totals), ctx.rule)
        return dlogprob, None, None, None, None, None


@torch.library.custom_op("rltune::grpo_loss", mutates_args=())
def _grpo_loss_op(
    logprob: torch.Tensor,
    old_logprob: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    ref_logprob: torch.Tensor | None,
    clip_low: float,
    clip_high: float,
    beta: float,
    aggregation: int,
    max_length: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    tokens = Tokens.of(logprob, old_logprob, advantages, mask, ref_logprob)
    return _forward(tokens, Rule.of(clip_low, clip_high, beta, aggregation, max_length))


@torch.library.custom_op("rltune::grpo_loss_backward", mutates_args=())
def _grpo_loss_backward_op(
    dloss: torch.Tensor,
    logprob: torch.Tensor,
    old_logprob: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    ref_logprob: torch.Tensor | None,
    partial: torch.Tensor,
    totals: torch.Tensor,
    clip_low: float,
    clip_high: float,
    beta: float,
    aggregation: int,
    max_length: int,
) -> torch.Tensor:
    tokens = Tokens.of(logprob, old_logprob, advantages, mask, ref_logprob)
    rule = Rule.of(clip_low, clip_high, beta, aggregation, max_length)
    return _backward(dloss, tokens, (partial, totals), rule)


@_grpo_loss_op.register_fake
def _grpo_loss_fake(logprob: torch.Tensor, *_rest: object) -> _Kept:
    return _new_results(logprob)


@_grpo_loss_backward_op.register_fake
def _grpo_loss_backward_fake(
    _dloss: torch.Tensor, logprob: torch.Tensor, *_rest: object
) -> torch.Tensor:
    return new_like(logprob)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: _Kept) -> None:
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(*inputs[:5], *output[3:])
    ctx.choices = inputs[5:]


def _backward_registered(
    ctx: Any, dloss: torch.Tensor, *_rest: torch.Tensor | None
) -> tuple[torch.Tensor | None, ...]:
    *tensors, partial, totals = ctx.saved_tensors
    dlogprob = _grpo_loss_backward_op(dloss, *tensors, partial, totals, *ctx.choices)
    return (dlogprob, *(None,) * 9)


_grpo_loss_op.register_autograd(_backward_registered, setup_context=_setup_context)
