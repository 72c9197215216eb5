"""Implementations bound to rotating input sets, so that one call is all that is timed."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from rltune.core.operator import KernelSpec, Tensor
from rltune.errors import UsageError
from rltune.runtime import launcher
from rltune.runtime.arguments import Arguments
from tools.peers.cases import Phase
from tools.peers.subjects import Axes, Peer, Subject, Tensors


@dataclass(frozen=True, kw_only=True, slots=True)
class InputSet:
    """Inputs of an operator, and upstream gradients of its results."""

    inputs: Tensors
    upstream: Tensors


@dataclass(frozen=True, kw_only=True, slots=True)
class Bound:
    """One implementation of one case, ready to call.

    Attributes:
        calls: one for each input set.
        results: results of a call, laid out as the oracle's.
        restore: puts back what calls overwrite, of all sets; None if they overwrite nothing.
        poison: fills the buffers that a call must write; None if it makes its own.
    """

    calls: tuple[Callable[[], Any], ...]
    results: Callable[[Any], Tensors]
    restore: Callable[[], None] | None = None
    poison: Callable[[], None] | None = None


def make_set(
    subject: Subject, axes: Axes, device: torch.device, seed: int, first: InputSet | None = None
) -> InputSet:
    """Random inputs; those that are shared come from the set ``first``, if given."""
    generator = torch.Generator(device).manual_seed(seed)
    inputs = tuple(
        first.inputs[index] if first and index in subject.shared else make(axes, generator)
        for index, make in enumerate(subject.inputs)
    )
    with torch.no_grad():
        shapes = (
            [item.shape for item in first.upstream]
            if first
            else [item.shape for item in subject.oracle(*inputs)]
        )
    upstream = tuple(
        torch.randn(shape, generator=generator, device=device, dtype=subject.result)
        for shape in shapes
    )
    return InputSet(inputs=inputs, upstream=upstream)


def exact_results(subject: Subject, phase: Phase, item: InputSet) -> Tensors:
    """What the oracle says of one set: results, or gradients of the inputs that have them."""
    count = subject.gradients
    leaves = tuple(tensor.double().requires_grad_() for tensor in item.inputs[:count])
    results = subject.oracle(*leaves, *item.inputs[count:])
    if phase == "forward":
        return tuple(result.detach() for result in results)
    return torch.autograd.grad(results, leaves, tuple(dy.double() for dy in item.upstream))


def set_bytes(subject: Subject, phase: Phase, item: InputSet, exact: Tensors) -> int:
    """Bytes that a call on one set reads and writes, shared inputs left out."""
    owned = [tensor for index, tensor in enumerate(item.inputs) if index not in subject.shared]
    if phase == "backward":
        owned += item.upstream
    element = subject.result if phase == "forward" else torch.bfloat16
    written = sum(tensor.numel() for tensor in exact) * element.itemsize
    return written + sum(tensor.nbytes for tensor in owned)


def bind_peer(peer: Peer, subject: Subject, phase: Phase, sets: Sequence[InputSet]) -> Bound:
    """Bind a function to every set; for a backward its forward runs here, untimed."""
    bind = _forward_call if phase == "forward" else _backward_call
    # Before the forward of a backward, which may write too.
    restore = _restorer(subject, sets) if peer.writes_inputs else None
    return Bound(
        calls=tuple(bind(peer, subject, item) for item in sets),
        results=lambda value: tuple(peer.view(tensor) for tensor in _as_tuple(value)),
        restore=restore,
    )


def bind_jit(subject: Subject, phase: Phase, sets: Sequence[InputSet]) -> Bound:
    """Bind the kernel launches of our function alone, each by Triton's JIT with the baseline.

    Buffers are made and other work on the device is done here, once, by one call of the
    public function.
    """
    calls: list[Callable[[], Any]] = []
    poison: list[Callable[[], None]] = []
    for plain in bind_peer(subject.ours, subject, phase, sets).calls:
        with _recorded() as launches:
            results = plain()
        if not launches:
            raise UsageError("no launch was recorded: an operator does not call launcher.launch")
        direct = [item.direct() for item in launches]
        calls.append(partial(_run_all, direct, results))
        poison += [item.poison for item in launches]
    return Bound(
        calls=tuple(calls),
        results=_as_tuple,
        poison=partial(_run_all, poison, None),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Launch:
    kernel: KernelSpec
    axes: Axes
    dtype: str
    arguments: Arguments

    def direct(self) -> Callable[[], None]:
        """The launch as ``kernel[grid](...)``, grid and constexprs computed beforehand."""
        kernel = self.kernel
        sizes = kernel.all_axes(self.axes)
        config = kernel.baseline(kernel.shape_key(self.dtype, self.axes))
        grid = kernel.grid(sizes, config)
        keywords = {**kernel.constexprs(sizes, self.dtype, config), **config.options()}
        module, _, name = kernel.jit.partition(":")
        function = getattr(importlib.import_module(module), name)
        arguments = self.arguments

        def run() -> None:
            function[grid](*arguments, **keywords)

        return run

    def poison(self) -> None:
        """NaN where the kernel writes all, zeros where it adds to zeros."""
        for declared, value in zip(self.kernel.arguments, self.arguments, strict=True):
            if isinstance(declared, Tensor) and declared.role == "out":
                value.fill_(float("nan"))
            elif isinstance(declared, Tensor) and declared.role == "in_out":
                value.zero_()


@contextlib.contextmanager
def _recorded() -> Iterator[list[_Launch]]:
    """Collect the launches of our operators, which go on as ever."""
    found: list[_Launch] = []
    original = launcher.launch

    def record(kernel: KernelSpec, axes: Axes, dtype: str, arguments: Arguments) -> None:
        found.append(_Launch(kernel=kernel, axes=axes, dtype=dtype, arguments=arguments))
        original(kernel, axes, dtype, arguments)

    places = [
        vars(module)
        for name, module in tuple(sys.modules.items())
        if name.startswith("rltune_kernels.") and vars(module).get("launch") is original
    ]
    for names in places:
        names["launch"] = record
    try:
        yield found
    finally:
        for names in places:
            names["launch"] = original


def _run_all(steps: Sequence[Callable[[], None]], result: Any) -> Any:
    for step in steps:
        step()
    return result


def _as_tuple(value: Any) -> Tensors:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _forward_call(peer: Peer, _subject: Subject, item: InputSet) -> Callable[[], Any]:
    return partial(peer.call, *(peer.view(item.inputs[index]) for index in peer.takes))


def _backward_call(peer: Peer, subject: Subject, item: InputSet) -> Callable[[], Any]:
    leaves = {
        index: peer.view(item.inputs[index]).detach().requires_grad_()
        for index in range(subject.gradients)
    }
    with torch.enable_grad():
        results = _as_tuple(
            peer.call(*(leaves.get(index, peer.view(item.inputs[index])) for index in peer.takes))
        )
    upstream = tuple(peer.view(dy) for dy in item.upstream)
    wanted = tuple(leaves.values())
    return partial(torch.autograd.grad, results, wanted, upstream, retain_graph=True)


def _restorer(subject: Subject, sets: Sequence[InputSet]) -> Callable[[], None]:
    # What autograd saved must not count as changed: .data has versions of its own.
    places = [
        tensor.data
        for item in sets
        for tensor in (
            *(one for index, one in enumerate(item.inputs) if index not in subject.shared),
            *item.upstream,
        )
    ]
    kept = [tensor.clone() for tensor in places]

    def restore() -> None:
        with torch.no_grad():
            torch._foreach_copy_(places, kept)

    return restore
