"""SwiGLU on tensors: checks, layout, autograd, registration."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from rltune.runtime.launcher import launch
from rltune_kernels._host import (
    check_elements,
    check_matches,
    dtype_name,
    needs_grad,
    needs_registered_op,
    new_like,
    rows,
)
from rltune_kernels.swiglu.spec import BACKWARD, FORWARD


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up, element-wise, with one rounding.

    silu(gate) is not rounded before the product.

    Args:
        gate: [..., intermediate_size] in bf16, fp16 or fp32; any strides.
        up: shape, element type and device of ``gate``; any strides.

    Returns:
        A contiguous tensor of the same shape and element type.

    Raises:
        OperatorArgumentError: an argument is not such a tensor.
    """
    axes = "[..., intermediate_size]"
    check_elements("swiglu", "gate", gate, axes)
    check_matches("swiglu", "up", up, shape=gate.shape, axes=axes, like=gate)
    if needs_registered_op(gate, up):
        result: torch.Tensor = _swiglu_op(gate, up)
    elif needs_grad(gate, up):
        result = _SwiGLU.apply(gate, up)  # type: ignore[no-untyped-call]
    else:
        result = _forward(gate, up)
    return result


def launch_forward(gate: torch.Tensor, up: torch.Tensor, y: torch.Tensor) -> None:
    """One launch of ``forward`` on dense [num_tokens, intermediate_size] tensors."""
    num_tokens, width = gate.shape
    axes = {"num_tokens": num_tokens, "intermediate_size": width}
    launch(FORWARD, axes, dtype_name(gate), (gate, up, y, num_tokens))


def launch_backward(
    dy: torch.Tensor,
    gate: torch.Tensor,
    up: torch.Tensor,
    dgate: torch.Tensor,
    dup: torch.Tensor,
) -> None:
    """One launch of ``backward`` on dense [num_tokens, intermediate_size] tensors."""
    num_tokens, width = gate.shape
    axes = {"num_tokens": num_tokens, "intermediate_size": width}
    launch(BACKWARD, axes, dtype_name(gate), (dy, gate, up, dgate, dup, num_tokens))


def _forward(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    y = new_like(gate)
    if gate.numel():
        launch_forward(rows(gate), rows(up), rows(y))
    return y


def _backward(
    dy: torch.Tensor, gate: torch.Tensor, up: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    dgate, dup = new_like(gate), new_like(up)
    if gate.numel():
        launch_backward(rows(dy), rows(gate), rows(up), rows(dgate), rows(dup))
    return dgate, dup


class _SwiGLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(gate, up)
        return _forward(gate, up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gate, up = ctx.saved_tensors
        return _backward(dy, gate, up)


@torch.library.custom_op("rltune::swiglu", mutates_args=())
def _swiglu_op(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return _forward(gate, up)


@torch.library.custom_op("rltune::swiglu_backward", mutates_args=())
def _swiglu_backward_op(
    dy: torch.Tensor, gate: torch.Tensor, up: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    return _backward(dy, gate, up)


@_swiglu_op.register_fake
def _swiglu_fake(gate: torch.Tensor, _up: torch.Tensor) -> torch.Tensor:
    return new_like(gate)


@_swiglu_backward_op.register_fake
def _swiglu_backward_fake(
    _dy: torch.Tensor, gate: torch.Tensor, up: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    return new_like(gate), new_like(up)


def _setup_context(ctx: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:  # noqa: ARG001 - torch's signature
    ctx.save_for_backward(*inputs)


def _backward_registered(ctx: Any, dy: torch.Tensor) -> Any:
    return _swiglu_backward_op(dy, *ctx.saved_tensors)


_swiglu_op.register_autograd(_backward_registered, setup_context=_setup_context)
