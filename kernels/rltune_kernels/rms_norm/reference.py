"""Plain PyTorch oracle of RMSNorm, in fp64, and the inputs that a backward derives."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from rltune.core.operator import Axes

_EPS = 1e-6


def forward(x: torch.Tensor, weight: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """(y [num_tokens, hidden_size], rstd [num_tokens]) in fp64, unrounded."""
    x = x.double()
    rstd = torch.rsqrt(x.square().mean(dim=-1) + eps)
    return x * rstd[:, None] * weight.double(), rstd


def dx(dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, rstd: torch.Tensor) -> torch.Tensor:
    """Dx [num_tokens, hidden_size] in fp64, unrounded."""
    rstd = rstd.double()[:, None]
    g, xhat = dy.double() * weight.double(), x.double() * rstd
    return rstd * (g - xhat * (g * xhat).mean(dim=-1, keepdim=True))


def dw(dy: torch.Tensor, x: torch.Tensor, rstd: torch.Tensor) -> torch.Tensor:
    """Dw [hidden_size] in fp64, unrounded."""
    return (dy.double() * x.double() * rstd.double()[:, None]).sum(dim=0)


def prepare_backward(tensors: Mapping[str, torch.Tensor], _axes: Axes, _seed: int) -> None:
    """Fill ``rstd_ptr`` with what a forward would have saved for ``x_ptr``."""
    rstd = tensors["rstd_ptr"]
    x = tensors["x_ptr"].to(rstd.dtype)
    rstd.copy_(torch.rsqrt(x.square().mean(dim=-1) + _EPS))
