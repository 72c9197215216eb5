"""Host-side checks and layout of masks."""

from __future__ import annotations

import torch

from rltune_kernels._host import check_device, flat, refused

_MASK_TYPES = (torch.bool, torch.uint8, torch.int32, torch.int64)


def check_mask(operator: str, mask: torch.Tensor, like: torch.Tensor, axes: str) -> None:
    """Check that a mask is a tensor of flags with the shape and device of ``like``.

    Raises:
        OperatorArgumentError: it is not; the message names ``axes``, expected and got.
    """
    if not isinstance(mask, torch.Tensor):
        raise refused(operator, "mask", f"a tensor {axes}", type(mask).__name__)
    if mask.dtype not in _MASK_TYPES:
        expected = ", ".join(str(item) for item in _MASK_TYPES)
        raise refused(operator, "mask", f"element type {expected}", mask.dtype)
    if mask.shape != like.shape:
        expected = f"{axes} of {tuple(like.shape)}"
        raise refused(operator, "mask", expected, tuple(mask.shape))
    check_device(operator, "mask", mask, like)


def flat_mask(mask: torch.Tensor) -> torch.Tensor:
    """A mask [...] as dense bytes [N], not zero where it holds; wider types take a launch."""
    if mask.dtype not in (torch.bool, torch.uint8):
        mask = mask != 0
    mask = flat(mask)
    return mask if mask.dtype == torch.uint8 else mask.view(torch.uint8)
