"""Plain PyTorch oracle of SiLU, in fp64: y = x * s, dx = dy * s * (1 + x * (1 - s))."""

from __future__ import annotations

import torch


def forward(x: torch.Tensor) -> torch.Tensor:
    """Y [num_tokens, intermediate_size] in fp64, unrounded."""
    x = x.double()
    return x * torch.sigmoid(x)


def backward(dy: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Dx [num_tokens, intermediate_size] in fp64, unrounded."""
    x = x.double()
    return dy.double() * torch.sigmoid(x) * (1 + x * torch.sigmoid(-x))
