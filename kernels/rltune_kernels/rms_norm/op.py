"""RMSNorm on tensors: checks, layout, autograd, registration."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from rltune.runtime.launcher import launch
from rltune_kernels._host import (
    arithmetic_dtype,
    check_elements,
    check_matches,
    dense,
    dtype_name,
    flat,
    needs_grad,
    needs_registered_op,
    new_like,
    refused,
    rows,
)
from rltune_kernels.rms_norm.spec import (
    DEFAULT_EPS,
    DW_FOLD,
    DW_PARTIAL,
    DX,
    FORWARD,
    MAX_HIDDEN_SIZE,
)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = DEFAULT_EPS) -> torch.Tensor:
    """Give x / sqrt(mean(x * x) + eps) * weight over the last axis, rounded once.

    Args:
        x: [..., hidden_size] in bf16, fp16 or fp32; any strides.
        weight: [hidden_size], element type and device of ``x``.
        eps: added to the mean of squares; finite and not negative.

    Returns:
        A contiguous tensor of the shape and element type of ``x``.

    Raises:
        OperatorArgumentError: an argument is not as described.
    """
    eps = check_rms_norm("rms_norm", x, weight, eps)
    if needs_registered_op(x, weight):
        result: torch.Tensor = _rms_norm_op(x, weight, eps)[0]
    elif needs_grad(x, weight):
        result = _RMSNorm.apply(x, weight, eps)  # type: ignore[no-untyped-call]
    else:
        result = _forward(x, weight, eps)[0]
    return result


def check_rms_norm(operator: str, x: torch.Tensor, weight: torch.Tensor, eps: float) -> float:
    """Check what a norm over the last axis takes; give ``eps`` as a float.

    Raises:
        OperatorArgumentError: an argument does not fit; the message names ``operator``.
    """
    check_elements(operator, "x", x, "[..., hidden_size]")
    hidden_size = x.shape[-1]
    check_matches(operator, "weight", weight, shape=(hidden_size,), axes="[hidden_size]", like=x)
    if hidden_size > MAX_HIDDEN_SIZE:
        raise refused(operator, "x", f"hidden_size up to {MAX_HIDDEN_SIZE}", hidden_size)
    if not (math.isfinite(eps) and eps >= 0):
        raise refused(operator, "eps", "a finite number of at least 0", eps)
    return float(eps)


def launch_forward(
    x: torch.Tensor, weight: torch.Tensor, y: torch.Tensor, rstd: torch.Tensor, eps: float
) -> None:
    """One launch of ``forward``: x, y [num_tokens, hidden_size], rstd [num_tokens]."""
    num_tokens, hidden_size = x.shape
    axes = {"num_tokens": num_tokens, "hidden_size": hidden_size}
    launch(FORWARD, axes, dtype_name(x), (x, weight, y, rstd, num_tokens, eps))


def launch_dx(
    dy: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    rstd: torch.Tensor,
    dx: torch.Tensor,
) -> None:
    """One launch of ``dx``: dy, x, dx [num_tokens, hidden_size], rstd [num_tokens]."""
    num_tokens, hidden_size = x.shape
    axes = {"num_tokens": num_tokens, "hidden_size": hidden_size}
    launch(DX, axes, dtype_name(x), (dy, x, weight, rstd, dx, num_tokens))


def launch_dw_partial(
    dy: torch.Tensor, x: torch.Tensor, rstd: torch.Tensor, partial: torch.Tensor
) -> None:
    """One launch of ``dw_partial``: partial is [num_blocks, hidden_size]."""
    num_tokens, hidden_size = x.shape
    axes = {"num_tokens": num_tokens, "hidden_size": hidden_size}
    launch(DW_PARTIAL, axes, dtype_name(x), (dy, x, rstd, partial, num_tokens))


def launch_dw_fold(partial: torch.Tensor, dw: torch.Tensor, num_tokens: int) -> None:
    """One launch of ``dw_fold``: partial [num_blocks, hidden_size], dw [hidden_size]."""
    num_blocks, hidden_size = partial.shape
    axes = {"num_tokens": num_tokens, "hidden_size": hidden_size}
    launch(DW_FOLD, axes, dtype_name(dw), (partial, dw, num_blocks))


def rstd_like(x: torch.Tensor) -> torch.Tensor:
    """Uninitialised rstd of the rows of ``x``, in the type of the arithmetic."""
    return x.new_empty(x.shape[:-1], dtype=arithmetic_dtype(x))


def _forward(
    x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    y, rstd = new_like(x), rstd_like(x)
    if x.numel():
        launch_forward(rows(x), dense(weight), rows(y), flat(rstd), eps)
    return y, rstd


def rms_norm_dx(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, rstd: torch.Tensor
) -> torch.Tensor:
    """Dx of any strides' dy and x [..., hidden_size], rstd [...]; not seen by autograd."""
    dx = new_like(x)
    if x.numel():
        launch_dx(rows(dy), rows(x), dense(weight), flat(rstd), rows(dx))
    return dx


def rms_norm_dw(dy: torch.Tensor, x: torch.Tensor, rstd: torch.Tensor) -> torch.Tensor:
    """Dw [hidden_size] of any strides' dy and x [..., hidden_size], rstd [...]."""
    hidden_size = x.shape[-1]
    if not x.numel():
        return torch.zeros(hidden_size, dtype=x.dtype, device=x.device)
    num_tokens = x.numel() // hidden_size
    sizes = DW_PARTIAL.all_axes({"num_tokens": num_tokens, "hidden_size": hidden_size})
    shape = (sizes["num_blocks"], hidden_size)
    partial = rstd.new_empty(shape)
    launch_dw_partial(rows(dy), rows(x), flat(rstd), partial)
    dw = x.new_empty(hidden_size)
    launch_dw_fold(partial, dw, num_tokens)
    return dw


class _RMSNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        y, rstd = _forward(x, weight, eps)
        ctx.save_for_backward(x, weight, rstd)
        return y

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, dy: torch.Tensor
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, None]:
        x, weight, rstd = ctx.saved_tensors
        dx = rms_norm_dx(dy, x, weight, rstd) if ctx.needs_input_grad[0] else None
        dw = rms_norm_dw(dy, x, rstd) if ctx.needs_input_grad[1] else None
        return dx, dw, None


@torch.library.custom_op("rltune::rms_norm", mutates_args=())
def _rms_norm_op(
    x: torch.Tensor, weight: torch.Tensor, eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    return _forward(x, weight, eps)


@torch.library.custom_op("rltune::rms_norm_dx", mutates_args=())
def _rms_norm_dx_op(
    dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor, rstd: torch.Tensor
) -> torch.Tensor:
    return rms_norm_dx(dy, x, weight, rstd)


@torch.library.custom_op("rltune::rms_norm_dw", mutates_args=())
def rms_norm_dw_op(dy: torch.Tensor, x: torch.Tensor, rstd: torch.Tensor) -> torch.Tensor:
    """The registered operator of ``rms_norm_dw``, as compiled graphs hold it."""
    return rms_norm_dw(dy, x, rstd)


@_rms_norm_op.register_fake
def _rms_norm_fake(
    x: torch.Tensor, _weight: torch.Tensor, _eps: float
) -> tuple[torch.Tensor, torch.Tensor]:
    return new_like(x), rstd_like(x)


@_rms_norm_dx_op.register_fake
def _rms_norm_dx_fake(
    _dy: torch.Tensor, x: torch.Tensor, _weight: torch.Tensor, _rstd: torch.Tensor
) -> torch.Tensor:
    return new_like(x)


@rms_norm_dw_op.register_fake
def _rms_norm_dw_fake(_dy: torch.Tensor, x: torch.Tensor, _rstd: torch.Tensor) -> torch.Tensor:
    return torch.empty(x.shape[-1], dtype=x.dtype, device=x.device)


def _setup_context(
    ctx: Any,
    inputs: tuple[torch.Tensor, torch.Tensor, float],
    output: tuple[torch.Tensor, torch.Tensor],
) -> None:
    x, weight, _ = inputs
    ctx.mark_non_differentiable(output[1])
    ctx.save_for_backward(x, weight, output[1])


def _backward_registered(
    ctx: Any, dy: torch.Tensor, _drstd: torch.Tensor | None
) -> tuple[torch.Tensor | None, torch.Tensor | None, None]:
    x, weight, rstd = ctx.saved_tensors
    dx = _rms_norm_dx_op(dy, x, weight, rstd) if ctx.needs_input_grad[0] else None
    dw = rms_norm_dw_op(dy, x, rstd) if ctx.needs_input_grad[1] else None
    return dx, dw, None


_rms_norm_op.register_autograd(_backward_registered, setup_context=_setup_context)
