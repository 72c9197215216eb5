"""Largest error of a result against an fp64 oracle."""

from __future__ import annotations

import math

import torch

LIMIT_ULP = 16.0
"""An implementation with a larger error is wrong. Peers round intermediate results."""

_CHUNK_ELEMENTS = 1 << 24


def max_ulp(got: torch.Tensor, exact: torch.Tensor) -> float:
    """Largest error in units in the last place of ``got``'s type.

    The unit is that of the exact value, or of the root mean square of all exact values
    if that is larger: sums that cancel are no worse than their neighbours.

    Args:
        got: result, any shape and floating type.
        exact: fp64, of the same shape.

    Returns:
        The error; infinite if any element of ``got`` is not finite, or the shapes differ.
    """
    if got.shape != exact.shape:
        return math.inf
    scale = exact.square().mean().sqrt()
    found, wanted = got.detach().reshape(-1), exact.detach().reshape(-1)
    worst = 0.0
    for first in range(0, found.numel(), _CHUNK_ELEMENTS):
        part = slice(first, first + _CHUNK_ELEMENTS)
        worst = max(worst, _largest(found[part], wanted[part], scale))
    return worst


def _largest(got: torch.Tensor, exact: torch.Tensor, scale: torch.Tensor) -> float:
    if not bool(got.isfinite().all()):
        return math.inf
    limits = torch.finfo(got.dtype)
    size = torch.maximum(exact.abs(), scale).clamp_min(limits.tiny)
    _, exponent = torch.frexp(size)
    # eps is the spacing at 1, where frexp's exponent is 1.
    spacing = torch.ldexp(torch.full_like(size, limits.eps), exponent - 1)
    return float(((got.double() - exact).abs() / spacing).max())
