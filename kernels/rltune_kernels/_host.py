"""Host-side checks and layouts that all operators share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from rltune.core.shapes import ACCUMULATION
from rltune.errors import OperatorArgumentError

_ALIGNMENT_BYTES = 16
_PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)
_DTYPE_NAMES: Mapping[torch.dtype, str] = {
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float32: "fp32",
}
_ARITHMETIC: Mapping[str, torch.dtype] = {"fp32": torch.float32, "fp64": torch.float64}


def dtype_name(tensor: torch.Tensor) -> str:
    """Our name of a tensor's element type: bf16, fp16 or fp32."""
    return _DTYPE_NAMES[tensor.dtype]


def arithmetic_dtype(tensor: torch.Tensor) -> torch.dtype:
    """Type of the arithmetic on a tensor's elements: fp64 for fp32, fp32 for bf16 and fp16."""
    return _ARITHMETIC[ACCUMULATION[dtype_name(tensor)]]


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself if contiguous and 16-byte aligned, else a copy that is.

    Programs are compiled for aligned, contiguous storage: another alignment would be
    another program with another order of additions.
    """
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % _ALIGNMENT_BYTES == 0 else tensor.clone()


def rows(tensor: torch.Tensor) -> torch.Tensor:
    """[..., N] as a dense [num_tokens, N]; must not be empty."""
    tensor = dense(tensor)
    return tensor if tensor.dim() == 2 else tensor.view(-1, tensor.shape[-1])


def flat(tensor: torch.Tensor) -> torch.Tensor:
    """[...] as a dense [N]."""
    tensor = dense(tensor)
    return tensor if tensor.dim() == 1 else tensor.view(-1)


def flat_integers(tensor: torch.Tensor) -> torch.Tensor:
    """Ids or positions [...] as a dense [N] of int64; int32 is converted by a launch."""
    return flat(tensor if tensor.dtype == torch.int64 else tensor.to(torch.int64))


def new_like(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor of the same shape, element type and device, uninitialised."""
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def check_elements(operator: str, name: str, tensor: torch.Tensor, axes: str) -> None:
    """Check that an input is a tensor of a supported element type with at least one axis.

    Args:
        operator: operator name, for the message.
        name: argument name, for the message.
        tensor: the argument.
        axes: its shape by axis names, for the message.

    Raises:
        OperatorArgumentError: it is not.
    """
    if not isinstance(tensor, torch.Tensor):
        raise refused(operator, name, f"a tensor {axes}", type(tensor).__name__)
    if tensor.dtype not in _DTYPE_NAMES:
        expected = ", ".join(str(item) for item in _DTYPE_NAMES)
        raise refused(operator, name, f"element type {expected}", tensor.dtype)
    if tensor.dim() == 0:
        raise refused(operator, name, f"shape {axes}", "a scalar")


def check_matches(
    operator: str,
    name: str,
    tensor: torch.Tensor,
    *,
    shape: tuple[int, ...],
    axes: str,
    like: torch.Tensor,
) -> None:
    """Check that an input has the given shape, and the element type and device of ``like``.

    Raises:
        OperatorArgumentError: it has not; the message names ``axes``, expected and got.
    """
    if not isinstance(tensor, torch.Tensor):
        raise refused(operator, name, f"a tensor {axes}", type(tensor).__name__)
    if tuple(tensor.shape) != tuple(shape):
        raise refused(operator, name, f"{axes} of {tuple(shape)}", tuple(tensor.shape))
    if tensor.dtype != like.dtype:
        raise refused(operator, name, f"element type {like.dtype}", tensor.dtype)
    check_device(operator, name, tensor, like)


def check_device(operator: str, name: str, tensor: torch.Tensor, like: torch.Tensor) -> None:
    """Check that an input lies on the device of ``like``.

    Raises:
        OperatorArgumentError: it does not.
    """
    if tensor.device != like.device:
        raise refused(operator, name, f"device {like.device}", tensor.device)


def refused(operator: str, name: str, expected: str, got: object) -> OperatorArgumentError:
    """The error of an argument that an operator does not take."""
    return OperatorArgumentError(f"{operator}: {name}: expected {expected}, got {got}")


def needs_registered_op(*tensors: torch.Tensor) -> bool:
    """Whether a call must go through the operator registered with ``torch.library``.

    It must where something watches the dispatcher: compilation, fake and meta tensors,
    functorch transforms, dispatch modes and tensor subclasses. A direct call saves
    several microseconds everywhere else.
    """
    if torch.compiler.is_compiling():
        return True
    native: Any = torch._C  # noqa: SLF001 - torch has no public form of these two questions
    if native._len_torch_dispatch_stack():  # noqa: SLF001
        return True
    if native._functorch.peek_interpreter_stack() is not None:  # noqa: SLF001
        return True
    for tensor in tensors:  # noqa: SIM110 - a generator costs as much as all the rest
        if type(tensor) not in _PLAIN_TENSORS or tensor.is_meta:
            return True
    return False


def needs_grad(*tensors: torch.Tensor) -> bool:
    """Whether autograd must record a call with these inputs."""
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)
