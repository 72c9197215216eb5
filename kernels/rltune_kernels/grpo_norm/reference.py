"""Plain PyTorch oracle of ``grpo_norm``, in fp64, and groups that try its edges."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import torch

from rltune.core.operator import Axes

_EDGE_PERIOD = 8
"""One group in this many is of an odd size."""

_MASKED_PERIOD = 8
"""One reward in about this many is left out."""


def forward(
    rewards: torch.Tensor,
    group_offsets: torch.Tensor,
    mask: torch.Tensor,
    eps: float,
    *,
    scale_by_std: bool = True,
) -> torch.Tensor:
    """Advantages [num_rewards] in fp64, unrounded; ``eps`` is rounded to fp32 first."""
    advantages = rewards.new_zeros(rewards.shape, dtype=torch.float64)
    eps = float(torch.tensor(eps, dtype=torch.float32))
    offsets = group_offsets.tolist()
    for start, end in pairwise(offsets):
        group = rewards[start:end].double()
        counts = (mask[start:end] != 0) & ~group.isnan()
        if int(counts.sum()) < 2:
            continue
        centred = group[counts] - group[counts].mean()
        if scale_by_std and centred.any():
            centred = centred / (torch.sqrt(centred.square().sum() / (len(centred) - 1)) + eps)
        advantages[start:end][counts] = centred
    return advantages


def prepare(tensors: Mapping[str, torch.Tensor], axes: Axes, seed: int) -> None:
    """Fill ``offsets_ptr`` and ``mask_ptr``: most groups are full, and some rewards left out.

    Every eighth group has an odd size instead: none, one, two, three members or one less
    than a full group. What is then left of the rewards is in no group.
    """
    offsets, mask = tensors["offsets_ptr"], tensors["mask_ptr"]
    full = axes["group_bucket"]
    edges = (full - 1, 0, 1, 2, 3)
    sizes = torch.full((axes["num_groups"],), full, dtype=torch.int64)
    for index in range(0, len(sizes), _EDGE_PERIOD):
        sizes[index] = edges[(index // _EDGE_PERIOD + seed) % len(edges)]
    offsets[:1] = 0
    offsets[1:] = sizes.cumsum(0)
    generator = torch.Generator(mask.device).manual_seed(seed)
    mask.random_(0, _MASKED_PERIOD, generator=generator)
