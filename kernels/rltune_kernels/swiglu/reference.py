"""Plain PyTorch oracle of SwiGLU, in fp64: y = gate * s * up."""

from __future__ import annotations

import torch


def forward(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Y [num_tokens, intermediate_size] in fp64, unrounded."""
    gate = gate.double()
    return gate * torch.sigmoid(gate) * up.double()


def backward(
    dy: torch.Tensor, gate: torch.Tensor, up: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """(dgate, dup), each [num_tokens, intermediate_size] in fp64, unrounded."""
    dy, gate, up = dy.double(), gate.double(), up.double()
    s = torch.sigmoid(gate)
    return dy * up * s * (1 + gate * torch.sigmoid(-gate)), dy * gate * s
