"""Lookup keys: which shapes share a selection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from rltune.errors import BundleError

DTYPES: Mapping[str, tuple[str, int]] = {
    # our name: (Triton's type name, bytes)
    "bf16": ("bf16", 2),
    "fp16": ("fp16", 2),
    "fp32": ("fp32", 4),
    "fp64": ("fp64", 8),
    "i64": ("i64", 8),
    "i32": ("i32", 4),
    "u8": ("u8", 1),
}
"""Element types by name, with Triton's type name and the size in bytes."""

ACCUMULATION: Mapping[str, str] = {"bf16": "fp32", "fp16": "fp32", "fp32": "fp64"}
"""The element types an operator may have, each with the type of its arithmetic."""


@dataclass(frozen=True, slots=True, order=True)
class ShapeKey:
    """The structural part of a lookup: element type and exact axes.

    Attributes:
        dtype: element type of the operator's inputs, a key of ``ACCUMULATION``.
        axes: sorted (axis name, size) pairs of the structural axes.
    """

    dtype: str
    axes: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, dtype: str, axes: Mapping[str, int]) -> ShapeKey:
        """Key of ``dtype`` and the given structural axes."""
        return cls(dtype, tuple(sorted(axes.items())))

    def __str__(self) -> str:
        return ",".join([self.dtype, *(f"{name}={size}" for name, size in self.axes)])

    def to_json(self) -> dict[str, object]:
        """The JSON object that stands for this key."""
        return {"dtype": self.dtype, "axes": dict(self.axes)}

    @classmethod
    def from_json(cls, value: object, where: str) -> ShapeKey:
        """Decode what :meth:`to_json` wrote.

        Raises:
            BundleError: the value has another form; names ``where``.
        """
        if not isinstance(value, dict) or set(value) != {"dtype", "axes"}:
            raise BundleError(f"{where}: expected an object with dtype, axes")
        dtype, axes = value["dtype"], value["axes"]
        if not isinstance(dtype, str) or dtype not in ACCUMULATION:
            expected = ", ".join(ACCUMULATION)
            raise BundleError(f"{where}.dtype: expected one of {expected}, got {dtype!r}")
        if not isinstance(axes, dict):
            raise BundleError(f"{where}.axes: expected an object")
        for name, size in axes.items():
            if type(size) is not int or size < 1:
                raise BundleError(f"{where}.axes.{name}: expected a positive integer, got {size!r}")
        return cls.of(dtype, axes)


@dataclass(frozen=True, slots=True, order=True)
class TokenRange:
    """An inclusive range of the dynamic axis.

    Attributes:
        first: smallest count in the range, at least 1.
        last: largest count in the range.
    """

    first: int
    last: int

    def __contains__(self, count: object) -> bool:
        return isinstance(count, int) and self.first <= count <= self.last

    def overlaps(self, other: TokenRange) -> bool:
        """Whether any count lies in both ranges."""
        return self.first <= other.last and other.first <= self.last


def first_overlap(ranges: Iterable[TokenRange]) -> tuple[TokenRange, TokenRange] | None:
    """The first two overlapping ranges in ascending order, or None if all are disjoint."""
    ordered = sorted(ranges)
    for left, right in pairwise(ordered):
        if left.overlaps(right):
            return left, right
    return None
