"""What an operator declares: kernels, arguments, axes, launch rules.

Everything here is data or a pure function of sizes, so that the same
declaration serves the compiler (signature, constexprs), the sweep (buffers to
fill, poison and compare) and the runtime (packing the arguments of a launch).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from rltune.core.launch import Grid, LaunchConfig
from rltune.core.shapes import ACCUMULATION, DTYPES, ShapeKey

Axes = Mapping[str, int]
"""Sizes by axis name, structural and dynamic together."""

Role = Literal["in", "out", "in_out"]
"""How a kernel uses a tensor: reads it, writes all of it, or updates it in place."""

Phase = Literal["forward", "backward"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Tensor:
    """A pointer argument.

    Attributes:
        name: the kernel's parameter, such as ``x_ptr``.
        axes: shape, outermost first: axis names, or a fixed size. Contiguous.
        dtype: a key of ``DTYPES``; ``"io"`` for the operator's element type; ``"acc"`` for
            the type of its arithmetic.
        role: how the kernel uses it.
        values: what the sweep fills an input with: ``"float"`` from the input
            battery, ``"derived"`` computed by the kernel's ``prepare`` function,
            ``"zero"`` for an in_out buffer that starts as zeros.
    """

    name: str
    axes: tuple[str | int, ...]
    dtype: str = "io"
    role: Role = "in"
    values: Literal["float", "derived", "zero"] = "float"

    def shape(self, axes: Axes) -> tuple[int, ...]:
        """Sizes of this tensor for the given axes."""
        return tuple(axes[axis] if isinstance(axis, str) else axis for axis in self.axes)

    def element_type(self, dtype: str) -> str:
        """Element type for an operator called with ``dtype``."""
        if self.dtype == "acc":
            return ACCUMULATION[dtype]
        return dtype if self.dtype == "io" else self.dtype


@dataclass(frozen=True, kw_only=True, slots=True)
class Scalar:
    """A number passed at run time. Never specialised on its value.

    Attributes:
        name: the kernel's parameter, such as ``num_tokens``.
        dtype: ``"i64"`` or ``"fp32"``.
        source: axis whose size is passed, or ``""`` if the caller gives the value.
        default: what the sweep passes if the caller gives the value.
    """

    name: str
    dtype: Literal["i64", "fp32"]
    source: str = ""
    default: float = 0.0


Argument = Tensor | Scalar


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelSpec:
    """One tunable kernel of an operator.

    Attributes:
        operator: operator name, which is also folder and preset name.
        name: name within the operator, such as ``forward`` or ``dx``.
        phase: forward or backward.
        jit: ``module:function`` of the Triton kernel.
        binder: ``module:function`` of the host function that binds its arguments.
        prepare: ``module:function(tensors, axes, seed)`` that fills derived inputs in
            place, or ``""``.
        structural_axes: axes that are exact in the lookup key.
        dynamic_axis: the axis looked up by range.
        arguments: run-time arguments in the order of the kernel's signature;
            constexprs follow them there.
        grid: number of programs, from axes and launch config.
        constexprs: every constexpr of the kernel, from axes, dtype and launch config.
        baseline: the fixed launch, from the structural key.
        candidates: the launch configs under trial, baseline excluded, in order.
        control: a planted launch config with another reduction order that
            qualification must reject, or None if no order exists to break.
        derived_axes: sizes that follow from the others, such as a block count.
    """

    operator: str
    name: str
    phase: Phase
    jit: str
    binder: str
    prepare: str = ""
    structural_axes: tuple[str, ...]
    dynamic_axis: str
    arguments: tuple[Argument, ...]
    grid: Callable[[Axes, LaunchConfig], Grid]
    constexprs: Callable[[Axes, str, LaunchConfig], Mapping[str, int]]
    baseline: Callable[[ShapeKey], LaunchConfig]
    candidates: Callable[[ShapeKey], tuple[LaunchConfig, ...]]
    control: Callable[[ShapeKey], LaunchConfig] | None = None
    derived_axes: Callable[[Axes], Mapping[str, int]] | None = None

    @property
    def kernel_id(self) -> str:
        """Name across operators, such as ``rms_norm/dx``."""
        return f"{self.operator}/{self.name}"

    def shape_key(self, dtype: str, axes: Axes) -> ShapeKey:
        """Lookup key of a call: its dtype and its structural axes."""
        return ShapeKey.of(dtype, {name: axes[name] for name in self.structural_axes})

    def all_axes(self, axes: Axes) -> dict[str, int]:
        """The given axes and those derived from them."""
        return {**axes, **(self.derived_axes(axes) if self.derived_axes else {})}

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The pointer arguments, in order."""
        return tuple(item for item in self.arguments if isinstance(item, Tensor))

    def signature(self, dtype: str, constexprs: Mapping[str, int]) -> dict[str, str]:
        """Triton's signature: type name of each parameter, constexprs included."""
        types: dict[str, str] = {}
        for item in self.arguments:
            if isinstance(item, Tensor):
                types[item.name] = "*" + DTYPES[item.element_type(dtype)][0]
            else:
                types[item.name] = item.dtype
        types.update(dict.fromkeys(constexprs, "constexpr"))
        return types

    def witness(self) -> KernelSpec:
        """The same kernel with unrounded outputs: buffers of the type of its arithmetic.

        A rounded output hides a changed order that its witness shows.
        """
        arguments = tuple(
            replace(item, dtype="acc")
            if isinstance(item, Tensor) and item.role == "out" and item.dtype == "io"
            else item
            for item in self.arguments
        )
        return replace(self, arguments=arguments)

    def binding(self) -> list[dict[str, object]]:
        """The argument declaration as JSON, part of the source fingerprint."""
        rows: list[dict[str, object]] = []
        for item in self.arguments:
            row: dict[str, object] = {"name": item.name, "dtype": item.dtype}
            if isinstance(item, Tensor):
                row |= {"axes": list(item.axes), "role": item.role}
            else:
                row |= {"source": item.source}
            rows.append(row)
        return rows


@dataclass(frozen=True, kw_only=True, slots=True)
class OperatorSpec:
    """An operator: its kernels and the oracle its baseline is checked against.

    Attributes:
        name: operator name.
        summary: one line, with the formula.
        kernels: its tunable kernels, in the order a call uses them.
        reference: ``module`` of the plain PyTorch oracles.
        tolerance_ulp: largest error of the baseline against the fp64 reference,
            in units in the last place of the output type, by dtype.
    """

    name: str
    summary: str
    kernels: tuple[KernelSpec, ...]
    reference: str
    tolerance_ulp: Mapping[str, int]

    def kernel(self, name: str) -> KernelSpec:
        """The kernel called ``name``.

        Raises:
            KeyError: the operator has no such kernel.
        """
        for spec in self.kernels:
            if spec.name == name:
                return spec
        raise KeyError(f"{self.name} has no kernel {name!r}")
