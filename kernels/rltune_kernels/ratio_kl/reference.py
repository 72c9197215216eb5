"""Plain PyTorch oracle of ratio_kl, in fp64, and the inputs that its kernels derive."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from rltune.core.operator import Axes
from rltune_kernels.logprob import reference as logprob


def forward(
    logits: torch.Tensor,
    ref_logits: torch.Tensor,
    ids: torch.Tensor,
    old_logprob: torch.Tensor,
    mask: torch.Tensor,
    temperature: float = 1.0,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(ratio, kl) [num_tokens] in fp64, unrounded; logits may require a gradient."""
    live = mask != 0
    ids = torch.where(live, ids, 0)
    own, ref = (
        torch.log_softmax(item.double().masked_fill(~live[:, None], 0.0) / temperature, dim=-1)
        .gather(-1, ids[:, None])
        .squeeze(-1)
        for item in (logits, ref_logits)
    )
    distance = torch.where(live, ref - own, 0.0)
    ratio = torch.exp(torch.where(live, own - old_logprob.double(), 0.0))
    return ratio, torch.expm1(distance) - distance


def _fill(tensors: Mapping[str, torch.Tensor], axes: Axes, seed: int) -> None:
    """Fill ids, mask and, where a kernel takes it, old_logprob."""
    ids, mask = tensors["ids_ptr"], tensors["mask_ptr"]
    logprob.fill_ids(ids, axes["vocab_size"], seed)
    generator = torch.Generator(ids.device).manual_seed(seed + 1)
    live = torch.rand(mask.shape, generator=generator, device=ids.device) < 0.8
    mask.copy_(live)


def prepare_forward(tensors: Mapping[str, torch.Tensor], axes: Axes, seed: int) -> None:
    """Fill ids and mask, and old_logprob near what the policy's logits give."""
    _fill(tensors, axes, seed)
    ids, logits = tensors["ids_ptr"], tensors["logits_ptr"]
    old = tensors["old_logprob_ptr"]
    largest, total = torch.empty_like(old), torch.empty_like(old)
    logprob.save_rows(logits, largest, total)
    inside = (ids >= 0) & (ids < axes["vocab_size"])
    chosen = logits.gather(-1, torch.where(inside, ids, 0)[:, None])[:, 0].float()
    generator = torch.Generator(ids.device).manual_seed(seed + 2)
    noise = torch.randn(old.shape, generator=generator, device=old.device)
    old.copy_(chosen - largest - total.log() + 0.1 * noise)


def prepare_backward(tensors: Mapping[str, torch.Tensor], axes: Axes, seed: int) -> None:
    """Fill ids and mask, and what a forward saves."""
    _fill(tensors, axes, seed)
    logprob.save_rows(tensors["logits_ptr"], tensors["row_max_ptr"], tensors["row_sum_ptr"])
    generator = torch.Generator(tensors["ids_ptr"].device).manual_seed(seed + 2)
    for name in ("ratio_ptr", "kl_slope_ptr"):
        value = tensors[name]
        noise = torch.randn(value.shape, generator=generator, device=value.device)
        value.copy_(noise.exp() if name == "ratio_ptr" else noise)
