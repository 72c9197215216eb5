"""What makes a kernel's source stale, what does not, and what is refused."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from rltune.core.fingerprint import source_fingerprint, space_digest
from rltune.core.launch import LaunchConfig
from rltune.core.operator import Axes, KernelSpec, Scalar
from rltune.errors import SourceError

ROOT = Path(__file__).parents[3]
ASSETS = ROOT / "tests" / "golden" / "assets"
PACKAGE = "snapshot_kernels"
KERNEL, GRID, SPEC, OP, MATH = (
    f"{PACKAGE}.{name}" for name in ("scale.kernel", "scale.grid", "scale.spec", "scale.op", "math")
)


def read_source(module: str) -> str:
    for root in (ASSETS, ROOT):
        path = root.joinpath(*module.split("."))
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return file.read_text(encoding="utf-8")
    raise SourceError(f"{module}: no such module")


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> KernelSpec:
    monkeypatch.syspath_prepend(str(ASSETS))
    spec = importlib.import_module(SPEC).SPEC.kernels[0]
    assert isinstance(spec, KernelSpec)
    return spec


def edited(kernel: KernelSpec, module: str, old: str, new: str) -> str:
    """Fingerprint after one replacement in one module."""
    assert old in read_source(module)

    def read(name: str) -> str:
        text = read_source(name)
        return text.replace(old, new) if name == module else text

    return source_fingerprint(kernel, read)


STALE = {
    "arithmetic": (KERNEL, "i_block * BLOCK + tl", "i_block * BLOCK - tl"),
    "constant in the kernel": (KERNEL, "other=0.0", "other=1.0"),
    "integer became float": (KERNEL, "program_id(0)", "program_id(0.0)"),
    "called function": (KERNEL, "tl.arange", "tl.zeros"),
    "helper body": (KERNEL, "exp(x) * GAIN", "exp(x) + GAIN"),
    "helper of another module": (MATH, "tl.exp2(x * LOG2_E)", "tl.exp(x)"),
    "constant of another module": (MATH, "1.4426950408889634", "1.4426950408889632"),
    "constexpr global": (KERNEL, "tl.constexpr(2)", "tl.constexpr(3)"),
    "default value": (KERNEL, "BLOCK: tl.constexpr = 1024", "BLOCK: tl.constexpr = 512"),
    "annotation": (KERNEL, "N: tl.constexpr, ", "N, "),
    "decorator flag": (KERNEL, '["num_tokens"]', "[]"),
    "decorator": (KERNEL, "@triton.jit\ndef _scaled", "def _scaled"),
    "argument order": (KERNEL, "(x_ptr, y_ptr, num", "(y_ptr, x_ptr, num"),
    "import of another function": (KERNEL, "import exp", "import unused as exp"),
    "alias of another package": (KERNEL, "import triton.language as tl", "import other.lang as tl"),
    "grid function": (SPEC, 'knob("BLOCK")), 1, 1)', 'knob("BLOCK")), 1, 2)'),
    "grid helper of another module": (GRID, "launch.ceil_div(items, block)", "items // block"),
    "constant of the grid helper": (GRID, "1 << 16", "1 << 15"),
    "message format": (GRID, "{block:>8,d}", "{block:>9,d}"),
    "grid helper of the core": ("rltune.core.launch", "return -(-a // b)", "return a // b"),
    "constexprs": (SPEC, '{"N": axes["width"]', '{"N": axes["width"] + 1'),
    "derived axes": (SPEC, "next_power_of_2(axes", "int(axes"),
    "computed constant": (SPEC, "for width in (3, 5)", "for width in (3, 6)"),
    "binder": (OP, "[x, y, axes", "[y, x, axes"),
    "binder helper": (OP, "x.dim() != 2", "x.dim() != 3"),
    "conversion in a text": (OP, "{x.dim()!r}", "{x.dim()!s}"),
}

FRESH = {
    "comment": (KERNEL, "    b_x =", "    # load\n    b_x ="),
    "comment at the end of a line": (KERNEL, "* GAIN\n", "* GAIN  # doubled\n"),
    "blank lines": (KERNEL, "    b_x =", "\n\n\n    b_x ="),
    "docstring": (KERNEL, "One program scales BLOCK elements.", "Reworded."),
    "docstring gone": (KERNEL, '    """One program scales BLOCK elements."""\n', ""),
    "module docstring": (KERNEL, "y = exp(x) * GAIN.", "Reworded."),
    "formatting": (KERNEL, "tl.load(x_ptr + o_item, mask", "tl.load(\n  x_ptr\n  +o_item, mask"),
    "needless parentheses": (KERNEL, "exp(x) * GAIN", "(exp(x) * GAIN)"),
    "quotes": (KERNEL, '"num_tokens"', "'num_tokens'"),
    "spelling of a number": (GRID, "1 << 16", "0x1 << 0b1_0000"),
    "unused helper": (MATH, "return x + 1", "return x + 2"),
    "unrelated addition": (MATH, "LOG2_E: tl", "OTHER = 3\nLOG2_E: tl"),
    "candidate rules": (SPEC, "(1, 2, 8)", "(1, 2, 16)"),
    "baseline rule": (SPEC, "num_warps=4", "num_warps=8"),
    "summary": (SPEC, "y = exp(x) * 2", "reworded"),
    "module-level call on an import": (OP, "def bind", "torch.manual_seed(3)\n\n\ndef bind"),
}


@pytest.mark.parametrize("edit", STALE)
def test_fingerprint_changes_with(edit: str, kernel: KernelSpec) -> None:
    assert edited(kernel, *STALE[edit]) != source_fingerprint(kernel, read_source)


@pytest.mark.parametrize("edit", FRESH)
def test_fingerprint_survives(edit: str, kernel: KernelSpec) -> None:
    assert edited(kernel, *FRESH[edit]) == source_fingerprint(kernel, read_source)


def test_fingerprint_survives_moving_a_function_within_the_file(kernel: KernelSpec) -> None:
    text = read_source(KERNEL)
    found = re.search(r"@triton\.jit\ndef _scaled.*?GAIN\n", text, re.DOTALL)
    assert found is not None

    def read(module: str) -> str:
        if module != KERNEL:
            return read_source(module)
        return text.replace(found[0], "") + "\n\n" + found[0]

    assert source_fingerprint(kernel, read) == source_fingerprint(kernel, read_source)


def test_fingerprint_covers_the_declared_binding(kernel: KernelSpec) -> None:
    changed = [
        replace(kernel, arguments=(kernel.arguments[1], kernel.arguments[0], kernel.arguments[2])),
        replace(kernel, arguments=(*kernel.arguments[:2], Scalar(name="num_tokens", dtype="fp32"))),
        replace(kernel, derived_axes=None),
        replace(kernel, grid=other_grid),
    ]

    def read(module: str) -> str:
        return "def other_grid(axes, launch): pass" if module == __name__ else read_source(module)

    values = {source_fingerprint(item, read) for item in (kernel, *changed)}

    assert len(values) == 5


def other_grid(axes: Axes, launch: LaunchConfig) -> tuple[int, int, int]:
    return (1, 1, 1)


def test_space_digest_covers_ids_and_their_order_but_not_the_order_of_keys() -> None:
    space = space_digest({"a": ["w1", "w2"], "b": []})

    assert space == space_digest({"b": (), "a": ("w1", "w2")})
    assert space != space_digest({"a": ["w2", "w1"], "b": []})
    assert space != space_digest({"a": ["w1"], "b": []})


# A package held in memory: its `k` module is the root, what the other modules hold is free.
HEADER = "from pkg import a\nfrom pkg.a import f, C\nimport pkg.a\nimport pkg.a as alias\n"


def fingerprint_of(body: str, a: str = "C = 1\ndef f(): return C\n", **others: str) -> str:
    texts = {
        "pkg": "",
        "pkg.a": a,
        "pkg.k": f"{HEADER}{body}\n",
        "pkg.host": "def grid(x): pass\ndef host(x): pass\n",
        **{f"pkg.{name}": text for name, text in others.items()},
    }

    def read(module: str) -> str:
        if module not in texts:
            raise SourceError(f"{module}: no such module")
        return texts[module]

    return source_fingerprint(MEMORY_KERNEL, read)


def _host_function(name: str) -> Callable[..., Mapping[str, int]]:
    def stand_in() -> Mapping[str, int]:
        return {}

    stand_in.__module__, stand_in.__qualname__ = "pkg.host", name
    return stand_in


MEMORY_KERNEL = KernelSpec(
    operator="op",
    name="forward",
    phase="forward",
    jit="pkg.k:k",
    binder="pkg.host:host",
    structural_axes=(),
    dynamic_axis="n",
    arguments=(),
    grid=_host_function("grid"),  # type: ignore[arg-type]
    constexprs=_host_function("host"),
    baseline=lambda key: LaunchConfig.of(num_warps=1),
    candidates=lambda key: (),
)

FOLLOWED = {
    "name": "def k(): return f()",
    "module attribute": "def k(): return a.f()",
    "dotted import": "def k(): return pkg.a.f()",
    "alias of a module": "def k(): return alias.f",
    "import in the function": "def k():\n from pkg.a import f as g\n return g()",
    "module imported in the function": "def k():\n from pkg import a as b\n return b.f()",
    "alias": "g = f\ndef k(): return g()",
    "conditional expression": "g = f if 1 else C\ndef k(): return g()",
    "decorator": "@f\ndef k(): pass",
    "default": "def k(x=f): pass",
    "keyword default": "def k(*, x=f): pass",
    "annotation": "def k(x: f): pass",
    "return annotation": "def k() -> f: pass",
    "nested function": "def k():\n def g(): return f()\n return g",
    "lambda": "k = lambda: f()",
    "comprehension": "def k(): return [f() for x in ()]",
    "first source of a comprehension": "def k(): return [f for f in f()]",
    "class": "class K:\n def m(self): return f()\ndef k(): return K()",
    "class body before its own binding": "class K:\n f = f\ndef k(): return K",
    "method despite a class attribute": "class K:\n f = 1\n def m(self): return f\ndef k(): K",
    "base class": "class K(f): pass\ndef k(): return K",
    "cycle": "def k(): return g()\ndef g(): return k() + f()",
    "re-export": "from pkg.b import g\ndef k(): return g()",
    "unpacked constant": "x, y = 1, f()\ndef k(): return y",
    "formatted text": "def k(): return f'{f()}'",
    "match": "def k(x):\n match x:\n  case f.y: pass",
}


@pytest.mark.parametrize("body", FOLLOWED.values(), ids=FOLLOWED)
def test_fingerprint_follows(body: str) -> None:
    others = {"b": "from pkg.a import f as g\n"}

    before = fingerprint_of(body, **others)

    assert fingerprint_of(body, "C = 2\ndef f(): return C\n", **others) != before


LOCAL = {
    "parameter": "def k(f): return f",
    "assigned": "def k():\n f = 1\n return f",
    "loop": "def k():\n for f in (): f",
    "handler": "def k():\n try: 1\n except ValueError as f: f",
    "capture": "def k(x):\n match x:\n  case [f, *C]: f, C",
    "walrus in a comprehension": "def k(): return [(f := 1) for x in ()], f",
    "comprehension target": "def k(): return [f for f in ()]",
    "enclosing function": "def k():\n f = 1\n def g(): return f\n return g",
    "text": "def k(): return 'f'",
    "attribute of something else": "def k(x): return x.f",
}


@pytest.mark.parametrize("body", LOCAL.values(), ids=LOCAL)
def test_fingerprint_does_not_follow_local_names(body: str) -> None:
    assert fingerprint_of(body) == fingerprint_of(body, "C = 2\ndef f(): return C\n")


REFUSED = {
    "unknown name": ("def k(): return nowhere", "pkg.k:5: 'nowhere'"),
    "unknown attribute": ("def k(): return a.g", "pkg.k:5: 'pkg.a.g'"),
    "module as a value": ("def k(): return getattr(a, 'f')", "pkg.k:5: 'pkg.a'"),
    "star import": ("from x import *\ndef k(): return 1", "pkg.k:5: 'k'.*star import"),
    "global statement": ("def k():\n global f\n f = 1", "pkg.k:6: global f"),
    "set elsewhere": ("X = 1\ndef g():\n global X\n X = 2\ndef k(): return X", "pkg.k:7: 'X'"),
    "bound twice": ("X = 1\nX = 2\ndef k(): return X", "pkg.k:6: 'X'.*several times"),
    "imported twice": ("from y import f\ndef k(): return f", "'f'.*several times"),
    "defined twice": ("def k(): pass\ndef k(): pass", "pkg.k:6: 'k'.*several times"),
    "condition": ("if 1:\n X = 1\ndef k(): return X", "pkg.k:5: 'X'.*condition"),
    "conditional import": (
        "try:\n import x\nexcept ImportError: pass\ndef k(): return x",
        "pkg.k:5: 'x'.*condition",
    ),
    "loop": ("for X in (): pass\ndef k(): return X", "pkg.k:5: 'X'"),
    "augmented": ("X = 1\nX += 1\ndef k(): return X", "pkg.k:6: 'X'.*changed"),
    "deleted": ("X = 1\ndel X\ndef k(): return X", "pkg.k:6: 'X'"),
    "item set": ("X = {}\nX[1] = 2\ndef k(): return X", "pkg.k:6: 'X'.*changed"),
    "item set in a loop": ("X = {}\nfor i in (): X[i] = 2\ndef k(): return X", "pkg.k:6: 'X'"),
    "attribute set": ("def g(): pass\ng.x = 2\ndef k(): return g", "pkg.k:6: 'g'.*changed"),
    "method called": ("X = []\nX.append(1)\ndef k(): return X", "pkg.k:6: 'X'.*method"),
    "relative import": ("from .a import h\ndef k(): return h", "pkg.k:6: 'h'.*relative"),
    "circular import": ("from pkg.k import h\ndef k(): return h", "pkg.k:6: 'h'.*circular"),
    "eval": ("def k(): return eval('f')", "builtins.eval.*only when it runs"),
    "importlib": ("import importlib\ndef k(): return importlib.import_module('x')", "importlib"),
    "sys.modules": ("import sys\ndef k(): return sys.modules['x']", "sys.modules"),
    "dunder": ("def k(): return __file__", "__file__"),
    "two meanings in one function": ("def k():\n import x\n x = 1\n return x", "'x'.*another way"),
    "import in a class body": ("class K:\n import x\ndef k(): return K", "'x'.*class body"),
    "not Python": ("def k(:", "pkg.k: cannot be parsed"),
    "escape in a format": ("def k(x): return f'{x:\\n}'", "pkg.k:5: format specification"),
    "no such root": ("def j(): pass", "pkg.k:1: 'pkg.k.k'"),
    "root of another package": ("from x import k", "pkg.k: 'k' is not a definition"),
    "deep nesting": ("def k(): return " + "-" * 900 + "1", "pkg.k"),
}


@pytest.mark.parametrize(("body", "message"), REFUSED.values(), ids=REFUSED)
def test_fingerprint_refuses(body: str, message: str) -> None:
    with pytest.raises(SourceError, match=message):
        fingerprint_of(body)


@pytest.mark.parametrize("body", ["type X = int\ndef k(): return X", "def k[T](x: T): pass"])
def test_fingerprint_refuses_syntax_newer_than_the_oldest_python(body: str) -> None:
    with pytest.raises(SourceError, match=r"cannot be parsed|has no fingerprint"):
        fingerprint_of(body)


def test_fingerprint_refuses_what_only_matters_when_it_is_reached() -> None:
    harmless = "if 1:\n X = 1\nY = []\nY.append(eval)\ndef k(): return f"

    assert fingerprint_of(harmless) == fingerprint_of("def k(): return f")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"jit": "nothing"}, "op/forward: expected module:function"),
        ({"grid": lambda axes, launch: (1, 1, 1)}, "<lambda>"),
        ({"constexprs": _host_function("outer.<locals>.inner")}, "inner"),
        ({"jit": "missing.module:k"}, "missing.module.k"),
    ],
)
def test_fingerprint_refuses_roots_without_a_place(
    change: Mapping[str, object], message: str
) -> None:
    def read(module: str) -> str:
        if module == "pkg.host":
            return "def grid(x): pass\ndef host(x): pass\n"
        raise SourceError(module)

    with pytest.raises(SourceError, match=message):
        source_fingerprint(replace(MEMORY_KERNEL, **change), read)  # type: ignore[arg-type]


def test_fingerprint_records_declarations_by_name_however_they_are_made() -> None:
    spec = (
        "from rltune.core.operator import KernelSpec\nfrom rltune.core import operator\n"
        "def rule(key): return {number}\n"
        "def make(name) -> KernelSpec: return KernelSpec(candidates=rule)\n"
        "A = KernelSpec(candidates=rule)\n"
        "B: KernelSpec = operator.KernelSpec(candidates=rule)\n"
        "D = make(rule)\n"
        "E = A.witness()\n"
        "G = {{'rule': rule}}\n"
    )
    core = {
        name: read_source(name)
        for name in ("rltune.core", "rltune.core.operator", "rltune.core.launch")
    }

    def value(names: str, number: int) -> str:
        texts = {
            "pkg": "",
            "pkg.k": f"from pkg import spec\ndef k(): return {names}\n",
            "pkg.spec": spec.format(number=number),
            "pkg.host": "def grid(x): pass\ndef host(x): pass\n",
        }
        return source_fingerprint(MEMORY_KERNEL, {**texts, **core}.__getitem__)

    declared = "spec.A, spec.B, spec.D, spec.E, spec.make"
    assert value(declared, 1) == value(declared, 2)
    assert value("spec.G", 1) != value("spec.G", 2)
