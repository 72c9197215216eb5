"""Plain PyTorch oracle of ``grpo_loss``, in fp64, and what a sweep's inputs derive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from rltune.core.operator import Axes

_MASKED_PERIOD = 8
"""One token in about this many is masked, beside the padding on the right."""


_EXPONENTS = 30
"""Sums to fold are spread over twice this many powers of two, which exposes their order."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The choices of a call; numbers are rounded to fp32 first, as a launch takes them."""

    clip_low: float = 0.2
    clip_high: float = 0.2
    beta: float = 0.0
    aggregation: str = "token_mean"
    max_length: int = 1


def _single(value: float) -> float:
    return float(torch.tensor(value, dtype=torch.float32))


def tokens(
    logprob: torch.Tensor,
    old_logprob: torch.Tensor,
    advantages: torch.Tensor,
    ref_logprob: torch.Tensor | None,
    rule: Rule,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(surrogate, kl) of every token in fp64, by torch's own ``clamp`` and ``min``."""
    ratio = torch.exp(logprob.double() - old_logprob.double())
    clipped = ratio.clamp(_single(1 - rule.clip_low), _single(1 + rule.clip_high))
    surrogate = -torch.min(ratio * advantages.double(), clipped * advantages.double())
    if ref_logprob is None:
        return surrogate, torch.zeros_like(surrogate)
    gap = ref_logprob.double() - logprob.double()
    return surrogate, torch.expm1(gap) - gap


def forward(
    logprob: torch.Tensor,
    old_logprob: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    ref_logprob: torch.Tensor | None,
    rule: Rule,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(loss, policy_loss, kl) in fp64, unrounded; the loss differentiable in ``logprob``."""
    valid = mask != 0
    if advantages.dim() == 1:
        advantages = advantages[:, None].expand(valid.shape)
    clean = [
        None if item is None else torch.where(valid, item, 0)
        for item in (logprob, old_logprob, advantages, ref_logprob)
    ]
    surrogate, divergence = tokens(clean[0], clean[1], clean[2], clean[3], rule)  # type: ignore[arg-type]
    count = valid.sum(-1)

    def average(values: torch.Tensor) -> torch.Tensor:
        sums = torch.where(valid, values, 0).sum(-1)
        if rule.aggregation == "constant":
            return sums.sum() / (len(sums) * rule.max_length)
        if rule.aggregation == "sequence_mean":
            return (sums / count.clamp_min(1)).sum() / (count > 0).sum().clamp_min(1)
        return sums.sum() / count.sum().clamp_min(1)

    policy_loss, kl = average(surrogate), average(divergence)
    return policy_loss + _single(rule.beta) * kl, policy_loss, kl


def _fill_mask(mask: torch.Tensor, seed: int) -> None:
    generator = torch.Generator(mask.device).manual_seed(seed)
    mask.random_(0, _MASKED_PERIOD, generator=generator)
    length = mask.shape[1]
    for row in range(0, len(mask), 2):  # every other sequence is padded, some wholly
        mask[row, (row * 37 + seed) % (length + 1) :] = 0


def prepare_forward(tensors: Mapping[str, torch.Tensor], _axes: Axes, seed: int) -> None:
    """Fill ``mask_ptr``."""
    _fill_mask(tensors["mask_ptr"], seed)


def prepare_fold(tensors: Mapping[str, torch.Tensor], axes: Axes, seed: int) -> None:
    """Give the sums of ``partial_ptr`` all places of fp64 and many sizes, and fill the counts."""
    partial = tensors["partial_ptr"]
    generator = torch.Generator(partial.device).manual_seed(seed)
    sizes = torch.randint(
        -_EXPONENTS, _EXPONENTS, partial.shape, generator=generator, device=partial.device
    )
    partial.copy_(torch.ldexp(partial / 3.0, sizes))
    partial[:, 2].random_(0, axes["sequence_length"] + 1, generator=generator)


def prepare_backward(tensors: Mapping[str, torch.Tensor], _axes: Axes, seed: int) -> None:
    """Fill ``mask_ptr`` and what a forward and an upstream gradient would have left."""
    mask = tensors["mask_ptr"]
    _fill_mask(mask, seed)
    count = (mask != 0).sum(-1)
    tensors["partial_ptr"].zero_()
    tensors["partial_ptr"][:, 2] = count
    tensors["totals_ptr"].zero_()
    tensors["totals_ptr"][2] = 1.0 / max(int((count > 0).sum()), 1)
    tensors["dloss_ptr"].fill_(0.7)
