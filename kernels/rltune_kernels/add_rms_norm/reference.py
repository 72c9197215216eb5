"""Plain PyTorch oracle of the fused residual add and RMSNorm, in fp64."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from rltune.core.operator import Axes
from rltune_kernels.rms_norm import reference as rms_norm_reference


def forward(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(y, residual_out [num_tokens, hidden_size], rstd [num_tokens]).

    residual_out has the element type of ``x``, as its rounding is part of the
    definition; y and rstd are fp64, unrounded.
    """
    residual_out = x + residual
    y, rstd = rms_norm_reference.forward(residual_out, weight, eps)
    return y, residual_out, rstd


def dx(
    dy: torch.Tensor,
    dresidual_out: torch.Tensor,
    residual_out: torch.Tensor,
    weight: torch.Tensor,
    rstd: torch.Tensor,
) -> torch.Tensor:
    """Dx [num_tokens, hidden_size] in fp64, unrounded; the gradient of residual too."""
    return rms_norm_reference.dx(dy, residual_out, weight, rstd) + dresidual_out.double()


def prepare_backward(tensors: Mapping[str, torch.Tensor], axes: Axes, seed: int) -> None:
    """Fill ``rstd_ptr`` with what a forward would have saved for ``residual_out_ptr``."""
    normed = {"x_ptr": tensors["residual_out_ptr"], "rstd_ptr": tensors["rstd_ptr"]}
    rms_norm_reference.prepare_backward(normed, axes, seed)
