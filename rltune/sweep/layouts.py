"""Static view of a reduction's order: its operand layout, projected on the reduced axis.

Two launch configs whose reductions have the same projection add the same
numbers in the same order; a difference means another order. Reads TTGIR text,
so it needs no GPU. Standard library only: compile workers import it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_BLOCKED = re.compile(
    r"^(#\w+) = #ttg\.blocked<\{sizePerThread = \[([\d, ]+)\], threadsPerWarp = \[([\d, ]+)\], "
    r"warpsPerCTA = \[([\d, ]+)\], order = \[([\d, ]+)\]",
    re.MULTILINE,
)
_REDUCE = re.compile(
    r'"tt\.(reduce|scan)"\([^)]*\) <\{(?:.*?)axis = (\d+) : i32.*?\}> \(\{(.*?)\}\) : '
    r"\(tensor<([\dx]+)x(\w+), (#[\w<>{}= ,.#]+?)>",
    re.DOTALL,
)
_OPERATION = re.compile(r"= ([a-z_]+\.[a-z_]+)")
_EXACT = frozenset({"arith.maxnumf", "arith.minnumf"})
_COMMUTATIVE = _EXACT | {"arith.addf", "arith.mulf"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Reduction:
    """One reduction as far as its order along the reduced axis goes.

    Attributes:
        extent: elements along the axis.
        element: element type in TTGIR, such as ``f32``.
        layout: elements per thread, lanes, warps and lane stride along the axis, or the
            layout's own text where it is of a kind this module does not project.
        combine: operations of the combine region, in order.
    """

    extent: int
    element: str
    layout: str
    combine: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.extent}x{self.element} {self.layout} {'+'.join(self.combine)}"


def reductions(ttgir: str) -> tuple[str, ...]:
    """The reductions of a program in program order, each as comparable text.

    Left out are those that have one result in any order: the largest or smallest of
    any number of elements, and the sum of two.
    """
    blocked = {match[1]: match for match in _BLOCKED.finditer(ttgir)}
    found = []
    for match in _REDUCE.finditer(ttgir):
        axis = int(match[2])
        extents = [int(part) for part in match[4].split("x")]
        combine = tuple(_OPERATION.findall(match[3]))
        if match[1] == "reduce" and _has_one_result(extents[axis], combine):
            continue
        layout = match[6].strip()
        text = _project(blocked[layout], axis) if layout in blocked else layout
        found.append(
            Reduction(
                extent=extents[axis],
                element=match[5],
                layout=text,
                combine=combine,
            )
        )
    return tuple(str(item) for item in found)


def _has_one_result(extent: int, combine: tuple[str, ...]) -> bool:
    """Whether no order of a reduction can change its value."""
    if len(combine) != 1:
        return False
    return combine[0] in _EXACT or (extent <= 2 and combine[0] in _COMMUTATIVE)


def _project(layout: re.Match[str], axis: int) -> str:
    per_thread, lanes, warps, order = (
        [int(part) for part in layout[group].split(",")] for group in (2, 3, 4, 5)
    )
    stride = 1
    for dimension in order:
        if dimension == axis:
            break
        stride *= lanes[dimension]
    return f"thread={per_thread[axis]} lanes={lanes[axis]} warps={warps[axis]} stride={stride}"
