"""Buffers of one case: inputs to restore, outputs to poison, guard zones around all."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rltune.core.operator import KernelSpec, Scalar, Tensor
from rltune.core.shapes import DTYPES
from rltune.sweep.inputs import generate

if TYPE_CHECKING:
    import torch

GUARD_BYTES = 4096
_GUARD_BYTE = 0xA5
_POISON_BYTE = 0xCB
_PAGE_BYTES = 4096
_WHOLE_DIGEST_BYTES = 1 << 26
"""Buffers above this size are digested as their non-zero pages, which is exact too."""


def torch_dtype(name: str) -> torch.dtype:
    """Torch's dtype for one of our dtype names."""
    import torch

    return {
        "bf16": torch.bfloat16,
        "fp16": torch.float16,
        "fp32": torch.float32,
        "fp64": torch.float64,
        "i64": torch.int64,
        "i32": torch.int32,
        "u8": torch.uint8,
    }[name]


@dataclass(frozen=True, slots=True)
class GuardedBuffer:
    """A tensor with a guard zone before and after it, in one allocation.

    Attributes:
        storage: all bytes, guards included.
        tensor: the part a kernel may touch; its address is a multiple of 256.
    """

    storage: torch.Tensor
    tensor: torch.Tensor

    @classmethod
    def allocate(cls, shape: Sequence[int], dtype: str, device: torch.device) -> GuardedBuffer:
        """Allocate ``shape`` elements of ``dtype`` between two guard zones."""
        import torch

        size = DTYPES[dtype][1] * math.prod(shape)
        storage = torch.empty(size + 2 * GUARD_BYTES + 256, dtype=torch.uint8, device=device)
        storage.fill_(_GUARD_BYTE)
        start = GUARD_BYTES + (-(storage.data_ptr() + GUARD_BYTES)) % 256
        tensor = storage[start : start + size].view(torch_dtype(dtype)).view(tuple(shape))
        return cls(storage, tensor)

    def _bounds(self) -> tuple[int, int]:
        start = self.tensor.data_ptr() - self.storage.data_ptr()
        return start, start + self.tensor.numel() * self.tensor.element_size()

    def guards_intact(self) -> bool:
        """Whether no byte outside the tensor was written."""
        start, end = self._bounds()
        zones = (self.storage[:start], self.storage[end:])
        return all(bool((zone == _GUARD_BYTE).all()) for zone in zones)

    def bytes_view(self) -> torch.Tensor:
        """The tensor's bytes as a flat uint8 tensor."""
        start, end = self._bounds()
        return self.storage[start:end]

    def poison(self) -> None:
        """Fill the tensor with a pattern no kernel writes by chance."""
        self.bytes_view().fill_(_POISON_BYTE)


def digest_bytes(data: torch.Tensor) -> str:
    """Hex sha256 of a flat uint8 tensor; of its non-zero pages with their numbers if large."""
    import torch

    if data.numel() <= _WHOLE_DIGEST_BYTES:
        return hashlib.sha256(data.cpu().numpy().tobytes()).hexdigest()
    whole = data.numel() // _PAGE_BYTES * _PAGE_BYTES
    pages = data[:whole].view(torch.int64).view(-1, _PAGE_BYTES // 8)
    written = (pages != 0).any(dim=1).nonzero().flatten()
    state = hashlib.sha256(written.cpu().numpy().tobytes())
    state.update(pages[written].cpu().numpy().tobytes())
    state.update(data[whole:].cpu().numpy().tobytes())
    return state.hexdigest()


class CaseBuffers:
    """All arguments of one kernel at one size.

    Args:
        kernel: the kernel.
        dtype: element type of the operator.
        axes: structural and dynamic sizes; derived ones are added here.
        device: where to allocate.
    """

    def __init__(
        self,
        kernel: KernelSpec,
        dtype: str,
        axes: Mapping[str, int],
        device: torch.device,
    ) -> None:
        self.kernel = kernel
        self.axes = kernel.all_axes(axes)
        self._buffers: dict[str, GuardedBuffer] = {}
        self._pristine: dict[str, torch.Tensor] = {}
        for tensor in kernel.tensors:
            self._buffers[tensor.name] = GuardedBuffer.allocate(
                tensor.shape(self.axes), tensor.element_type(dtype), device
            )

    @staticmethod
    def needed_bytes(kernel: KernelSpec, dtype: str, axes: Mapping[str, int]) -> int:
        """Bytes of all tensors at these sizes, known before anything is allocated."""
        sizes = kernel.all_axes(axes)
        total = 0
        for tensor in kernel.tensors:
            elements = math.prod(tensor.shape(sizes))
            total += elements * DTYPES[tensor.element_type(dtype)][1]
        return total

    def fill(self, generator: str, seed: int) -> None:
        """Fill the inputs from the battery and remember them."""
        for index, item in enumerate(self.kernel.tensors):
            if item.role == "out":
                continue
            tensor = self._buffers[item.name].tensor
            if item.values == "float":
                generate(generator, seed * 1009 + index, tensor)
            else:
                tensor.zero_()
        self._prepare(seed)
        for item in self.kernel.tensors:
            if item.role != "out" and item.values != "zero":
                self._pristine[item.name] = self._buffers[item.name].bytes_view().clone()

    def _prepare(self, seed: int) -> None:
        if not self.kernel.prepare:
            return
        import importlib

        module, function = self.kernel.prepare.split(":")
        tensors = {name: buffer.tensor for name, buffer in self._buffers.items()}
        getattr(importlib.import_module(module), function)(tensors, self.axes, seed)

    def reset(self) -> None:
        """Poison the outputs and restore every buffer that a kernel updates in place."""
        for item in self.kernel.tensors:
            buffer = self._buffers[item.name]
            if item.role == "out":
                buffer.poison()
            elif item.role == "in_out":
                self._restore(item, buffer)

    def _restore(self, item: Tensor, buffer: GuardedBuffer) -> None:
        if item.values == "zero":
            buffer.tensor.zero_()
        else:
            buffer.bytes_view().copy_(self._pristine[item.name])

    def arguments(self) -> tuple[Any, ...]:
        """Run-time arguments in the order of the kernel's signature."""
        values: list[Any] = []
        for item in self.kernel.arguments:
            if isinstance(item, Scalar):
                values.append(self.axes[item.source] if item.source else item.default)
            else:
                values.append(self._buffers[item.name].tensor)
        return tuple(values)

    def outputs(self) -> dict[str, torch.Tensor]:
        """Bytes of every written buffer by argument name."""
        return {
            item.name: self._buffers[item.name].bytes_view()
            for item in self.kernel.tensors
            if item.role != "in"
        }

    def damage(self) -> str:
        """What a launch wrote where it must not: a guard zone or an input. Empty if nothing."""
        for item in self.kernel.tensors:
            buffer = self._buffers[item.name]
            if not buffer.guards_intact():
                return f"wrote outside {item.name}"
            if item.role == "in":
                before = self._pristine[item.name]
                if not bool((buffer.bytes_view() == before).all()):
                    return f"changed the input {item.name}"
        return ""

    def coordinates(self, name: str, byte_index: int) -> tuple[int, ...]:
        """Element coordinates of a byte of the tensor called ``name``."""
        tensor = self._buffers[name].tensor
        index = byte_index // tensor.element_size()
        position = []
        for extent in reversed(tensor.shape):
            index, offset = divmod(index, extent)
            position.append(offset)
        return tuple(reversed(position))
