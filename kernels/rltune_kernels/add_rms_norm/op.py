"""The fused residual add and RMSNorm on tensors: checks, layout, autograd, registration."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from rltune.runtime.launcher import launch
from rltune_kernels._host import (
    check_matches,
    dense,
    dtype_name,
    flat,
    needs_grad,
    needs_registered_op,
    new_like,
    rows,
)
from rltune_kernels.add_rms_norm.spec import DX, FORWARD
from rltune_kernels.rms_norm.op import (
    check_rms_norm,
    rms_norm_dw,
    rms_norm_dw_op,
    rms_norm_dx,
    rstd_like,
)
from rltune_kernels.rms_norm.spec import DEFAULT_EPS

_AXES = "[..., hidden_size]"
Gradient = torch.Tensor | None


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = DEFAULT_EPS
) -> tuple[torch.Tensor, torch.Tensor]:
    """Give rms_norm(x + residual) and x + residual, each rounded once, in one launch.

    Args:
        x: [..., hidden_size] in bf16, fp16 or fp32; any strides.
        residual: shape, element type and device of ``x``; any strides.
        weight: [hidden_size], element type and device of ``x``.
        eps: added to the mean of squares; finite and not negative.

    Returns:
        (y, residual_out): contiguous tensors of the shape and element type of ``x``.
        Their bytes are those of ``rms_norm(x + residual, weight, eps)`` and ``x + residual``.

    Raises:
        OperatorArgumentError: an argument is not as described.
    """
    eps = check_rms_norm("add_rms_norm", x, weight, eps)
    check_matches("add_rms_norm", "residual", residual, shape=tuple(x.shape), axes=_AXES, like=x)
    if needs_registered_op(x, residual, weight):
        y, residual_out, _ = _add_rms_norm_op(x, residual, weight, eps)
    elif needs_grad(x, residual, weight):
        y, residual_out = _AddRMSNorm.apply(x, residual, weight, eps)  # type: ignore[no-untyped-call]
    else:
        y, residual_out, _ = _forward(x, residual, weight, eps)
    return y, residual_out


def launch_forward(
    x: torch.Tensor,
    residual: torch.Tensor,
    weight: torch.Tensor,
    outputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    eps: float,
) -> None:
    """One launch of ``forward``; outputs are y, residual_out and rstd [num_tokens]."""
    num_tokens, hidden_size = x.shape
    axes = {"num_tokens": num_tokens, "hidden_size": hidden_size}
    launch(FORWARD, axes, dtype_name(x), (x, residual, weight, *outputs, num_tokens, eps))


def launch_dx(
    upstream: tuple[torch.Tensor, torch.Tensor],
    residual_out: torch.Tensor,
    weight: torch.Tensor,
    rstd: torch.Tensor,
    dx: torch.Tensor,
) -> None:
    """One launch of ``dx``; upstream is dy and dresidual_out [num_tokens, hidden_size]."""
    num_tokens, hidden_size = dx.shape
    axes = {"num_tokens": num_tokens, "hidden_size": hidden_size}
    arguments = (*upstream, residual_out, weight, rstd, dx, num_tokens)
    launch(DX, axes, dtype_name(dx), arguments)


def _forward(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    y, residual_out, rstd = new_like(x), new_like(x), rstd_like(x)
    if x.numel():
        outputs = rows(y), rows(residual_out), flat(rstd)
        launch_forward(rows(x), rows(residual), dense(weight), outputs, eps)
    return y, residual_out, rstd


def _dx(
    dy: torch.Tensor,
    dresidual_out: torch.Tensor,
    residual_out: torch.Tensor,
    weight: torch.Tensor,
    rstd: torch.Tensor,
) -> torch.Tensor:
    dx = new_like(residual_out)
    if dx.numel():
        upstream = rows(dy), rows(dresidual_out)
        launch_dx(upstream, rows(residual_out), dense(weight), flat(rstd), rows(dx))
    return dx


class _AddRMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        y, residual_out, rstd = _forward(x, residual, weight, eps)
        ctx.save_for_backward(residual_out, weight, rstd)
        ctx.set_materialize_grads(False)
        return y, residual_out

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, dy: Gradient, dresidual_out: Gradient
    ) -> tuple[Gradient, Gradient, Gradient, None]:
        x, residual, weight, _ = ctx.needs_input_grad
        saved = ctx.saved_tensors
        shared = _shared_gradient(dy, dresidual_out, saved) if x or residual else None
        dw = rms_norm_dw(dy, saved[0], saved[2]) if weight and dy is not None else None
        return shared if x else None, shared if residual else None, dw, None


def _shared_gradient(
    dy: Gradient, dresidual_out: Gradient, saved: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
) -> Gradient:
    """The gradient of x and of residual, where an upstream one may not exist."""
    if dy is None:
        return dresidual_out
    if dresidual_out is None:
        return rms_norm_dx(dy, *saved)
    return _dx(dy, dresidual_out, *saved)


@torch.library.custom_op("rltune::add_rms_norm", mutates_args=())
def _add_rms_norm_op(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return _forward(x, residual, weight, eps)


@torch.library.custom_op("rltune::add_rms_norm_dx", mutates_args=())
def _add_rms_norm_dx_op(
    dy: torch.Tensor,
    dresidual_out: torch.Tensor,
    residual_out: torch.Tensor,
    weight: torch.Tensor,
    rstd: torch.Tensor,
) -> torch.Tensor:
    return _dx(dy, dresidual_out, residual_out, weight, rstd)


@_add_rms_norm_op.register_fake
def _add_rms_norm_fake(
    x: torch.Tensor, _residual: torch.Tensor, _weight: torch.Tensor, _eps: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return new_like(x), new_like(x), rstd_like(x)


@_add_rms_norm_dx_op.register_fake
def _add_rms_norm_dx_fake(
    _dy: torch.Tensor,
    _dresidual_out: torch.Tensor,
    residual_out: torch.Tensor,
    _weight: torch.Tensor,
    _rstd: torch.Tensor,
) -> torch.Tensor:
    return new_like(residual_out)


def _setup_context(
    ctx: Any,
    inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor, float],
    output: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
) -> None:
    _, residual_out, rstd = output
    ctx.mark_non_differentiable(rstd)
    ctx.save_for_backward(residual_out, inputs[2], rstd)


def _backward_registered(
    ctx: Any, dy: torch.Tensor, dresidual_out: torch.Tensor, _drstd: Gradient
) -> tuple[Gradient, Gradient, Gradient, None]:
    residual_out, weight, rstd = ctx.saved_tensors
    needed_x, needed_residual, needed_weight, _ = ctx.needs_input_grad
    shared = None
    if needed_x or needed_residual:
        shared = _add_rms_norm_dx_op(dy, dresidual_out, residual_out, weight, rstd)
    dw = rms_norm_dw_op(dy, residual_out, rstd) if needed_weight else None
    return shared if needed_x else None, shared if needed_residual else None, dw, None


_add_rms_norm_op.register_autograd(_backward_registered, setup_context=_setup_context)
