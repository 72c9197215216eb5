"""The corrected interpreter against torch, bit by bit."""
# ruff: noqa: N803 - kernels name their constexprs in capitals

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from rltune.runtime.interpreter import ensure_interpreter

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="Triton is a compiler here, not an interpreter"
)

FLOATS = (torch.bfloat16, torch.float16, torch.float32)
OTHERS = (torch.float64, torch.int32, torch.int64, torch.int8)
BLOCK = 4096


@triton.jit
def _cast_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    o_flat = tl.arange(0, BLOCK)
    tl.store(y_ptr + o_flat, tl.load(x_ptr + o_flat).to(y_ptr.dtype.element_ty))


@triton.jit
def _toward_zero_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    o_flat = tl.arange(0, BLOCK)
    b_x = tl.load(x_ptr + o_flat)
    tl.store(y_ptr + o_flat, b_x.to(y_ptr.dtype.element_ty, fp_downcast_rounding="rtz"))


@triton.jit
def _binary_kernel(a_ptr, b_ptr, y_ptr, OP: tl.constexpr, BLOCK: tl.constexpr):
    o_flat = tl.arange(0, BLOCK)
    b_a = tl.load(a_ptr + o_flat)
    b_b = tl.load(b_ptr + o_flat)
    if OP == "add":
        b_y = b_a + b_b
    elif OP == "sub":
        b_y = b_a - b_b
    elif OP == "mul":
        b_y = b_a * b_b
    elif OP == "div":
        b_y = b_a / b_b
    elif OP == "max":
        b_y = tl.maximum(b_a, b_b)
    elif OP == "min":
        b_y = tl.minimum(b_a, b_b)
    elif OP == "neg":
        b_y = -b_a
    elif OP == "abs":
        b_y = tl.abs(b_a)
    else:
        b_y = tl.fma(b_a, b_b, b_a)
    tl.store(y_ptr + o_flat, b_y)


@triton.jit
def _compare_kernel(a_ptr, b_ptr, less_ptr, equal_ptr, BLOCK: tl.constexpr):
    o_flat = tl.arange(0, BLOCK)
    b_a = tl.load(a_ptr + o_flat)
    b_b = tl.load(b_ptr + o_flat)
    tl.store(less_ptr + o_flat, (b_a < b_b).to(tl.int8))
    tl.store(equal_ptr + o_flat, (b_a == b_b).to(tl.int8))


@triton.jit
def _dot_kernel(a_ptr, b_ptr, y_ptr, N: tl.constexpr):
    o_tile = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(y_ptr + o_tile, tl.dot(tl.load(a_ptr + o_tile), tl.load(b_ptr + o_tile)))


def _run(kernel: Any, *arguments: Any, **constexprs: Any) -> None:
    ensure_interpreter()
    kernel[(1,)](*arguments, **constexprs)


def _values(dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Every exponent, rounding ties to bf16 and fp16, subnormals, zeros, Inf and NaN."""
    generator = torch.Generator().manual_seed(seed)
    if dtype in (torch.int8, torch.int32, torch.int64):
        limits = torch.iinfo(dtype)
        return torch.randint(limits.min, limits.max, (BLOCK,), generator=generator, dtype=dtype)
    bits = torch.randint(-(2**31), 2**31 - 1, (BLOCK,), generator=generator, dtype=torch.int32)
    bits[: BLOCK // 4] &= ~0x7FFF  # ties of bf16
    bits[BLOCK // 4 : BLOCK // 2] &= ~0xFFF  # ties of fp16
    values = bits.view(torch.float32).clone()
    values[BLOCK // 2 : BLOCK * 3 // 4] = torch.randn(BLOCK // 4, generator=generator)
    values[-6:] = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1.0])
    return values.to(dtype)


def _assert_same(got: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal bits; a NaN need only be a NaN, whose payload torch itself varies."""
    if not expected.is_floating_point():
        assert torch.equal(got, expected)
        return
    nan = torch.isnan(expected)
    assert torch.equal(torch.isnan(got), nan)
    kind = {2: torch.int16, 4: torch.int32, 8: torch.int64}[expected.element_size()]
    assert torch.equal(got.view(kind)[~nan], expected.view(kind)[~nan])


@pytest.mark.parametrize("target", [*FLOATS, torch.float64], ids=str)
@pytest.mark.parametrize("source", [*FLOATS, *OTHERS], ids=str)
def test_casts_to_floats_round_as_torch(source: torch.dtype, target: torch.dtype) -> None:
    x = _values(source, 1)
    y = torch.empty(BLOCK, dtype=target)
    _run(_cast_kernel, x, y, BLOCK=BLOCK)
    _assert_same(y, x.to(target))


@pytest.mark.parametrize("target", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("source", FLOATS, ids=str)
def test_casts_to_integers_truncate_as_torch(source: torch.dtype, target: torch.dtype) -> None:
    x = (torch.randn(BLOCK) * 1000).to(source)
    y = torch.empty(BLOCK, dtype=target)
    _run(_cast_kernel, x, y, BLOCK=BLOCK)
    assert torch.equal(y, x.to(target))


def test_a_cast_toward_zero_truncates() -> None:
    x = _values(torch.float32, 2)
    x = x[~torch.isnan(x)].repeat(2)[:BLOCK]
    y = torch.empty(BLOCK, dtype=torch.bfloat16)
    _run(_toward_zero_kernel, x, y, BLOCK=BLOCK)
    assert torch.equal(y.view(torch.int16), (x.view(torch.int32) >> 16).to(torch.int16))


OPERATIONS: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "max": lambda a, b: torch.where(
        a.isnan(),
        b,
        torch.where(b.isnan(), a, torch.maximum(a, b)),  # fmax minds signalling NaNs
    ),
    "neg": lambda a, _: -a,
    "abs": lambda a, _: a.abs(),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("operation", list(OPERATIONS))
def test_arithmetic_rounds_as_torch(operation: str, dtype: torch.dtype) -> None:
    a, b = _values(dtype, 3), _values(dtype, 4).flip(0)
    y = torch.empty(BLOCK, dtype=dtype)
    _run(_binary_kernel, a, b, y, OP=operation, BLOCK=BLOCK)
    expected = OPERATIONS[operation](a, b)
    if operation == "neg":  # Triton negates by 0 - x, so -(0.0) is 0.0
        expected = torch.where(a == 0, torch.zeros_like(a), expected)
    if operation == "max":  # which of 0.0 and -0.0 is larger is nobody's promise
        y, expected = y + 0.0, expected + 0.0
    _assert_same(y, expected)


def test_bf16_division_rounds_once() -> None:
    a, b = _values(torch.bfloat16, 5), _values(torch.bfloat16, 6)
    y = torch.empty(BLOCK, dtype=torch.bfloat16)
    _run(_binary_kernel, a, b, y, OP="div", BLOCK=BLOCK)
    _assert_same(y, (a.float() / b.float()).to(torch.bfloat16))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_comparisons_read_the_values(dtype: torch.dtype) -> None:
    a, b = _values(dtype, 7), _values(dtype, 8)
    b[: BLOCK // 8] = a[: BLOCK // 8]
    a[0], b[0] = 0.0, -0.0
    less, equal = torch.empty(BLOCK, dtype=torch.int8), torch.empty(BLOCK, dtype=torch.int8)
    _run(_compare_kernel, a, b, less, equal, BLOCK=BLOCK)
    assert torch.equal(less.bool(), a < b)
    assert torch.equal(equal.bool(), a == b)


def test_bf16_dot_multiplies_values() -> None:
    a, b = torch.randn(32, 32).to(torch.bfloat16), torch.randn(32, 32).to(torch.bfloat16)
    y = torch.empty(32, 32)
    _run(_dot_kernel, a, b, y, N=32)
    assert torch.allclose(y, a.float() @ b.float(), atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_the_larger_of_a_number_and_a_nan_is_the_number(dtype: torch.dtype) -> None:
    a = torch.tensor([float("nan"), 1.0, float("nan"), -3.0], dtype=dtype)
    b = torch.tensor([2.0, float("nan"), float("nan"), 5.0], dtype=dtype)
    for operation, expected in (("max", torch.fmax(a, b)), ("min", torch.fmin(a, b))):
        y = torch.empty_like(a)
        _binary_kernel[(1,)](a, b, y, operation, 4)
        assert torch.equal(y.isnan(), expected.isnan())
        assert torch.equal(y.nan_to_num(9.0), expected.nan_to_num(9.0))


def test_overflow_is_no_warning() -> None:
    a = torch.full((BLOCK,), 3e38)
    y = torch.empty(BLOCK)
    _run(_binary_kernel, a, a, y, OP="mul", BLOCK=BLOCK)
    assert bool(torch.isinf(y).all())


def test_numpy_keeps_its_own_error_state() -> None:
    before = np.geterr()
    test_overflow_is_no_warning()
    assert np.geterr() == before


def test_the_correction_is_installed_once() -> None:
    from triton.runtime.interpreter import InterpreterBuilder

    ensure_interpreter()
    cast = InterpreterBuilder.cast_impl
    ensure_interpreter()
    assert InterpreterBuilder.cast_impl is cast


def _in_fresh_process(code: str, **variables: str) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | variables
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True
    ).stdout.strip()


_REPORT = """
from rltune.errors import EnvironmentUnfitError
from rltune.runtime.interpreter import ensure_interpreter
try:
    ensure_interpreter()
except EnvironmentUnfitError as error:
    print(error)
else:
    print("ready")
"""


def test_a_compiling_triton_is_refused_with_advice() -> None:
    message = _in_fresh_process(_REPORT)
    assert "imported without it" in message
    assert "TRITON_INTERPRET=1" in message


def test_an_interpreting_triton_is_ready() -> None:
    assert _in_fresh_process(_REPORT, TRITON_INTERPRET="1") == "ready"


def test_a_missing_numpy_is_refused_with_advice() -> None:
    code = "import sys; sys.modules['numpy'] = None\n" + _REPORT
    assert "rltune[torch]" in _in_fresh_process(code, TRITON_INTERPRET="1")
