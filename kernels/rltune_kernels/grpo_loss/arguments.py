"""Checks of what ``grpo_loss`` takes, and its rule as numbers."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rltune_kernels._arguments import check_mask, check_number, single
from rltune_kernels._host import check_device, check_elements, needs_grad, refused
from rltune_kernels.grpo_loss.spec import AGGREGATIONS, MAX_LENGTH

_AXES = "[num_sequences, sequence_length]"
_MAX_SEQUENCES = 2**31 - 1  # programs along one axis of a grid
_LARGEST_MAX_LENGTH = 2**31 - 1  # its product with the sequences stays exact in fp64 and i64


@dataclass(frozen=True, slots=True)
class Rule:
    """How tokens are clipped, weighed and averaged, as launches take it.

    Attributes:
        ratio_low: lower bound of the clipped ratio, as fp32.
        ratio_high: upper bound of the clipped ratio, as fp32.
        beta: weight of the divergence, as fp32.
        aggregation: index in ``AGGREGATIONS``.
        max_length: tokens a sequence counts with in aggregation ``constant``.
    """

    ratio_low: float
    ratio_high: float
    beta: float
    aggregation: int
    max_length: int

    @classmethod
    def of(
        cls, clip_low: float, clip_high: float, beta: float, aggregation: int, max_length: int
    ) -> Rule:
        """The rule of a call's arguments."""
        bounds = single(1.0 - clip_low), single(1.0 + clip_high)
        return cls(*bounds, single(beta), aggregation, max_length)


def check_tokens(
    logprob: torch.Tensor,
    old_logprob: torch.Tensor,
    advantages: torch.Tensor,
    mask: torch.Tensor,
    ref_logprob: torch.Tensor | None,
) -> None:
    """Check the tensors of a call.

    Raises:
        OperatorArgumentError: one is not as described.
    """
    check_elements("grpo_loss", "logprob", logprob, _AXES)
    if logprob.dim() != 2:
        raise refused("grpo_loss", "logprob", f"shape {_AXES}", tuple(logprob.shape))
    num_sequences, sequence_length = logprob.shape
    if num_sequences > _MAX_SEQUENCES:
        expected = f"at most {_MAX_SEQUENCES} sequences"
        raise refused("grpo_loss", "logprob", expected, num_sequences)
    if sequence_length > MAX_LENGTH:
        raise refused("grpo_loss", "logprob", f"at most {MAX_LENGTH} tokens", sequence_length)
    shape = (num_sequences, sequence_length)
    _check_constant("old_logprob", old_logprob, logprob, (shape,), _AXES)
    if ref_logprob is not None:
        _check_constant("ref_logprob", ref_logprob, logprob, (shape,), _AXES)
    axes = f"[num_sequences] or {_AXES}"
    _check_constant("advantages", advantages, logprob, ((num_sequences,), shape), axes)
    check_mask("grpo_loss", mask, logprob, _AXES)


def _check_constant(
    name: str,
    tensor: torch.Tensor,
    like: torch.Tensor,
    shapes: tuple[tuple[int, ...], ...],
    axes: str,
) -> None:
    check_elements("grpo_loss", name, tensor, axes)
    if tuple(tensor.shape) not in shapes:
        expected = f"{axes} of {' or '.join(map(str, shapes))}"
        raise refused("grpo_loss", name, expected, tuple(tensor.shape))
    check_device("grpo_loss", name, tensor, like)
    if needs_grad(tensor):
        expected = "a tensor without requires_grad"
        raise refused("grpo_loss", name, expected, "one that requires grad")


def check_rule(
    clip_low: float,
    clip_high: float,
    beta: float,
    aggregation: str,
    max_length: int | None,
    ref_logprob: torch.Tensor | None,
) -> tuple[int, int]:
    """Check the numbers and names of a call; give the aggregation's index and max_length.

    Raises:
        OperatorArgumentError: one is not as described.
    """
    if not 0 <= clip_low <= 1:
        raise refused("grpo_loss", "clip_low", "a number from 0 to 1", clip_low)
    check_number("grpo_loss", "clip_high", clip_high)
    check_number("grpo_loss", "beta", beta)
    if beta and ref_logprob is None:
        raise refused("grpo_loss", "ref_logprob", "a tensor where beta is not 0", "None")
    if aggregation not in AGGREGATIONS:
        raise refused("grpo_loss", "aggregation", " or ".join(AGGREGATIONS), aggregation)
    if aggregation != "constant":
        return AGGREGATIONS.index(aggregation), 1
    if type(max_length) is bool or not isinstance(max_length, int):
        expected = "an integer where aggregation is constant"
        raise refused("grpo_loss", "max_length", expected, max_length)
    if not 1 <= max_length <= _LARGEST_MAX_LENGTH:
        expected = f"1 to {_LARGEST_MAX_LENGTH}"
        raise refused("grpo_loss", "max_length", expected, max_length)
    return AGGREGATIONS.index(aggregation), max_length
