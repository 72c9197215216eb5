"""Host-side checks and forms of masks and numbers."""

from __future__ import annotations

import ctypes

import torch

from rltune_kernels._host import check_device, flat, refused

_LARGEST_SINGLE = float.fromhex("0x1.fffffep127")
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


def check_number(operator: str, name: str, value: float) -> None:
    """Check that a number is one that fp32 holds, and not negative.

    Raises:
        OperatorArgumentError: it is not.
    """
    if not 0 <= value <= _LARGEST_SINGLE:
        raise refused(operator, name, "a finite number of at least 0", value)


def single(value: float) -> float:
    """A number as a launch takes it, rounded to fp32; the interpreter would not round it."""
    return ctypes.c_float(value).value
