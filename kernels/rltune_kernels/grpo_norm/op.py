"""GRPO's advantages on tensors: checks, layout, registration."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from rltune.runtime.launcher import launch
from rltune_kernels._arguments import check_mask, check_number, flat_mask, single
from rltune_kernels._host import (
    check_device,
    check_elements,
    dtype_name,
    flat,
    flat_integers,
    needs_grad,
    needs_registered_op,
    refused,
)
from rltune_kernels.grpo_norm.candidates import MOST_LANES, group_bucket
from rltune_kernels.grpo_norm.spec import DEFAULT_EPS, FORWARD

_MAX_GROUPS = 2**31 - 1  # programs along one axis of a grid


def grpo_norm(
    rewards: torch.Tensor,
    *,
    group_size: int | None = None,
    group_offsets: torch.Tensor | None = None,
    mask: torch.Tensor | None = None,
    eps: float = DEFAULT_EPS,
    scale_by_std: bool = True,
) -> torch.Tensor:
    """Give (reward - mean) / (std + eps) within each group, the unbiased deviation.

    A masked reward, and one that is NaN, is left out: its advantage is +0.0 and no other
    reward's changes. A group with one reward left, or with equal ones, has advantages +0.0.
    An infinite reward makes the advantages of its own group NaN.

    Args:
        rewards: in bf16, fp16 or fp32, any strides: [..., group_size], or [num_rewards] with
            the groups one after the other. Not differentiable.
        group_size: members of every group; give either this or ``group_offsets``.
        group_offsets: [num_groups + 1] in int64 or int32, ascending from 0 to num_rewards:
            group g of rewards [num_rewards] is ``group_offsets[g]`` up to
            ``group_offsets[g + 1]``. Values are not checked, as that would wait for the
            device: they are clipped, and a reward in no group has advantage +0.0.
        mask: as ``rewards``, in bool, uint8, int32 or int64: not zero where a reward counts.
        eps: added to the deviation, as fp32; finite and not negative.
        scale_by_std: False gives reward - mean.

    Returns:
        A contiguous fp32 tensor of the shape of ``rewards``.

    Raises:
        OperatorArgumentError: an argument is not as described.
    """
    check_elements("grpo_norm", "rewards", rewards, "[..., group_size]")
    if needs_grad(rewards):
        expected = "a tensor without requires_grad"
        raise refused("grpo_norm", "rewards", expected, "one that requires grad")
    if (group_size is None) == (group_offsets is None):
        got = "neither" if group_size is None else "both"
        raise refused("grpo_norm", "group_size", "either it or group_offsets", got)
    if group_offsets is None:
        _check_size(rewards, group_size)
    else:
        _check_offsets(rewards, group_offsets)
    if mask is not None:
        check_mask("grpo_norm", mask, rewards, "[..., group_size]")
    check_number("grpo_norm", "eps", eps)
    given = [item for item in (rewards, group_offsets, mask) if item is not None]
    call = _grpo_norm_op if needs_registered_op(*given) else _forward
    result: torch.Tensor = call(
        rewards, group_offsets, mask, group_size or 0, float(eps), bool(scale_by_std)
    )
    return result


def launch_forward(
    rewards: torch.Tensor,
    mask: torch.Tensor,
    offsets: torch.Tensor,
    advantages: torch.Tensor,
    sizes: Mapping[str, int],
    eps: float,
) -> None:
    """One launch of ``forward``: rewards, advantages and mask (u8) [num_rewards].

    ``sizes`` has num_groups, group_size (0 for ragged groups), has_mask and scale_by_std.
    """
    num_rewards, num_groups, group_size = len(rewards), sizes["num_groups"], sizes["group_size"]
    likely = group_size or max(num_rewards // num_groups, MOST_LANES)  # no wait for offsets
    axes = {
        **sizes,
        "group_bucket": group_bucket(likely),
        "num_rewards": num_rewards,
        "num_offsets": len(offsets),
    }
    flags = sizes["has_mask"], sizes["scale_by_std"]
    numbers = num_groups, num_rewards, group_size, *flags, single(eps)
    arguments = (rewards, mask, offsets, advantages, *numbers)
    launch(FORWARD, axes, dtype_name(rewards), arguments)


def _check_size(rewards: torch.Tensor, group_size: object) -> None:
    if type(group_size) is bool or not isinstance(group_size, int) or group_size < 1:
        raise refused("grpo_norm", "group_size", "a positive integer", group_size)
    if rewards.dim() > 1 and rewards.shape[-1] != group_size:
        expected = f"[..., group_size] with group_size {group_size}"
        raise refused("grpo_norm", "rewards", expected, tuple(rewards.shape))
    if rewards.numel() % group_size:
        expected = f"a multiple of group_size {group_size}"
        raise refused("grpo_norm", "rewards", expected, f"{rewards.numel()} rewards")
    _check_count(rewards.numel() // group_size)


def _check_offsets(rewards: torch.Tensor, offsets: torch.Tensor) -> None:
    axes = "[num_groups + 1]"
    if not isinstance(offsets, torch.Tensor):
        raise refused("grpo_norm", "group_offsets", f"a tensor {axes}", type(offsets).__name__)
    if offsets.dtype not in (torch.int64, torch.int32):
        expected = "element type torch.int64, torch.int32"
        raise refused("grpo_norm", "group_offsets", expected, offsets.dtype)
    if offsets.dim() != 1 or not offsets.shape[0]:
        raise refused("grpo_norm", "group_offsets", f"shape {axes}", tuple(offsets.shape))
    if rewards.dim() != 1:
        expected = "shape [num_rewards] beside group_offsets"
        raise refused("grpo_norm", "rewards", expected, tuple(rewards.shape))
    check_device("grpo_norm", "group_offsets", offsets, rewards)
    _check_count(offsets.shape[0] - 1)


def _check_count(num_groups: int) -> None:
    if num_groups > _MAX_GROUPS:
        raise refused("grpo_norm", "rewards", f"at most {_MAX_GROUPS} groups", num_groups)


def _forward(
    rewards: torch.Tensor,
    group_offsets: torch.Tensor | None,
    mask: torch.Tensor | None,
    group_size: int,
    eps: float,
    scale_by_std: bool,  # noqa: FBT001 - a registered operator's argument
) -> torch.Tensor:
    advantages = torch.empty(rewards.shape, dtype=torch.float32, device=rewards.device)
    if group_offsets is None:
        num_groups = rewards.numel() // group_size
    else:
        num_groups = len(group_offsets) - 1
        advantages.zero_()  # what lies in no group is written by none
    if not (num_groups and rewards.numel()):
        return advantages
    wide = flat(rewards if rewards.dtype == torch.float32 else rewards.float())
    if group_offsets is None:
        offsets = wide.new_empty(0, dtype=torch.int64)  # unread
    else:
        offsets = flat_integers(group_offsets)
    flags = wide.view(torch.uint8) if mask is None else flat_mask(mask)  # unread where no mask
    sizes = {
        "num_groups": num_groups,
        "group_size": group_size,
        "has_mask": int(mask is not None),
        "scale_by_std": int(scale_by_std),
    }
    launch_forward(wide, flags, offsets, advantages.view(-1), sizes, eps)
    return advantages


@torch.library.custom_op("rltune::grpo_norm", mutates_args=())
def _grpo_norm_op(
    rewards: torch.Tensor,
    group_offsets: torch.Tensor | None,
    mask: torch.Tensor | None,
    group_size: int,
    eps: float,
    scale_by_std: bool,  # noqa: FBT001 - as the function above
) -> torch.Tensor:
    return _forward(rewards, group_offsets, mask, group_size, eps, scale_by_std)


@_grpo_norm_op.register_fake
def _grpo_norm_fake(rewards: torch.Tensor, *_rest: object) -> torch.Tensor:
    return torch.empty(rewards.shape, dtype=torch.float32, device=rewards.device)
