# ruff: noqa: B019, C416, E731, F841, I001, PIE790, PIE800, PLC3002, PTH123, Q000, RUF012, RUF021, UP025, UP050
# The spelling is the point: this file holds syntax, not style.
"""Every kind of syntax whose tree differs between Python versions, or might."""

from __future__ import annotations

import functools

from rltune.core.operator import KernelSpec
from snapshot_kernels import scale
from snapshot_kernels.scale import spec

LARGE = 0xFFFF_FFFF_FFFF_FFFF_FFFF_FFFF
# fmt: off
TEXT = "one" 'two' u"three" r"\d" "é\N{BULLET}\ud800"
BYTES = b"\x00a" b"\xff"
NUMBERS = (1e-3, 1e400, -0.0, 2.5j, 1_000, 0b1, True, None, ..., 1e22)
FIRST, *OTHERS = [1, 2, 3]
TABLE: dict[str, tuple[int, ...]] = {"a": (1,), **{"b": (2, 3)}}


class Base:
    """A docstring."""

    size: int = 3
    """An attribute docstring."""

    @property
    def area(self) -> int:
        """Another."""
        return self.size * self.size


class Shape(Base, metaclass=type):
    names = [name for name in ("x", "y")]

    @functools.cache
    def grown(self, /, by: int = 1, *more: int, scale: float = 2.0, **rest: object) -> int:
        return self.area + by


def texts(value, width=3):
    one = f"{value}" "plain" f"{value!r:>{width}}{{}}"
    two = f"{value:}" f"{value = }" f"{value:08.3f}" f"{value!s}{width:x}\n"
    three = f"a{'b'}c" "" f""
    return one, two, three, rf"\{value}", f"""{
        value
    } end"""


def statements(items, /, *args, key=None, **rest):
    """A docstring."""
    from snapshot_kernels.scale.grid import programs as local_programs
    import functools as tools

    total = 0
    try:
        for index, item in enumerate(items):
            if item is None or index not in (1, 2) and not key:
                continue
            elif (half := item // 2) > 3:
                total += half
                break
        else:
            total -= 1
    except* (ValueError, TypeError) as group:
        raise RuntimeError from group
    finally:
        del index
    while total @ 1 if total else ~total:
        assert total, "text"
        pass
    with open(items) as a, open(items) as b:
        nested = lambda x, *, y=1: (yield x) or y
    match items:
        case [1, *tail] if tail:
            return tail
        case {"k": value, **others} | {"k": value, "l": others}:
            return value, others
        case Shape(size=3) as shape:
            return shape.area
        case None | True | -1 | 1.5 | "text":
            return local_programs(1, 2), tools.partial
        case _:
            pass
    matrix = [[a[i, ...], a[1:2, ::3], a[*args]] for a in items if a for i in a]
    counted = {k: v for k, v in rest.items()}, {*args}

    def inner():
        nonlocal total
        total <<= 2**3 ^ 5 & 7 | 1 >> 0
        return (lambda: total)()

    return inner, matrix, counted, texts(LARGE), TEXT, BYTES, NUMBERS, FIRST, OTHERS, TABLE


async def asynchronous(stream):
    async with stream as s:
        async for item in s:
            await item
    yield statements, {x async for x in stream}


def _grid(axes, launch):
    return (scale.grid.programs(axes["n"], launch.knob("BLOCK")), 1, 1)


def _constexprs(axes, dtype, launch):
    return {"BLOCK": launch.knob("BLOCK"), "W": len(spec.WIDTHS)}


SYNTAX = KernelSpec(
    operator="syntax",
    name="forward",
    phase="forward",
    jit="snapshot_kernels.syntax:statements",
    binder="snapshot_kernels.syntax:asynchronous",
    structural_axes=(),
    dynamic_axis="n",
    arguments=(),
    grid=_grid,
    constexprs=_constexprs,
    baseline=spec._baseline,
    candidates=spec._candidates,
)
