"""SiLU on tensors: checks, layout, autograd, registration."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from rltune.runtime.launcher import launch
from rltune_kernels._host import (
    check_elements,
    dtype_name,
    needs_grad,
    needs_registered_op,
    new_like,
    rows,
)
from rltune_kernels.silu.spec import BACKWARD, FORWARD


def silu(x: torch.Tensor) -> torch.Tensor:
    """Give x * sigmoid(x), element-wise, with one rounding.

    Args:
        x: [..., intermediate_size] in bf16, fp16 or fp32; any strides.

    Returns:
        A contiguous tensor of the same shape and element type.

    Raises:
        OperatorArgumentError: ``x`` is not such a tensor.
    """
    check_elements("silu", "x", x, "[..., intermediate_size]")
    if needs_registered_op(x):
        result: torch.Tensor = _silu_op(x)
    elif needs_grad(x):
        result = _SiLU.apply(x)  # type: ignore[no-untyped-call]
    else:
        result = _forward(x)
    return result


def launch_forward(x: torch.Tensor, y: torch.Tensor) -> None:
    """One launch of ``forward`` on dense [num_tokens, intermediate_size] tensors."""
    num_tokens, width = x.shape
    axes = {"num_tokens": num_tokens, "intermediate_size": width}
    launch(FORWARD, axes, dtype_name(x), (x, y, num_tokens))


def launch_backward(dy: torch.Tensor, x: torch.Tensor, dx: torch.Tensor) -> None:
    """One launch of ``backward`` on dense [num_tokens, intermediate_size] tensors."""
    num_tokens, width = x.shape
    axes = {"num_tokens": num_tokens, "intermediate_size": width}
    launch(BACKWARD, axes, dtype_name(x), (dy, x, dx, num_tokens))


def _forward(x: torch.Tensor) -> torch.Tensor:
    y = new_like(x)
    if x.numel():
        launch_forward(rows(x), rows(y))
    return y


def _backward(dy: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    dx = new_like(x)
    if x.numel():
        launch_backward(rows(dy), rows(x), rows(dx))
    return dx


class _SiLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return _forward(x)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return _backward(dy, x)


@torch.library.custom_op("rltune::silu", mutates_args=())
def _silu_op(x: torch.Tensor) -> torch.Tensor:
    return _forward(x)


@torch.library.custom_op("rltune::silu_backward", mutates_args=())
def _silu_backward_op(dy: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return _backward(dy, x)


@_silu_op.register_fake
def _silu_fake(x: torch.Tensor) -> torch.Tensor:
    return new_like(x)


@_silu_backward_op.register_fake
def _silu_backward_fake(_dy: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return new_like(x)


def _setup_context(ctx: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:  # noqa: ARG001 - torch's signature
    ctx.save_for_backward(*inputs)


def _backward_registered(ctx: Any, dy: torch.Tensor) -> Any:
    (x,) = ctx.saved_tensors
    return _silu_backward_op(dy, x)


_silu_op.register_autograd(_backward_registered, setup_context=_setup_context)
