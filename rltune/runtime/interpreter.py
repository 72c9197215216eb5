"""Triton's interpreter, with its bf16 arithmetic and its maximum of a NaN put right.

The interpreter keeps bf16 as raw 16-bit integers. Without correction it truncates
where hardware rounds, and adds and multiplies the integers. The larger of a number
and a NaN is the number on hardware, the NaN in the interpreter. Triton 3.6 to 3.8
answer wrongly without an error.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from rltune.errors import EnvironmentUnfitError

_ADVICE = "Set TRITON_INTERPRET=1 before the process first imports triton."
_BF16_NAN = 0x7FFF  # what the hardware's conversion gives


def ensure_interpreter() -> None:
    """Make Triton's interpreter ready: checked, and corrected once in a process.

    Raises:
        EnvironmentUnfitError: Triton or numpy is missing, or Triton was imported as a
            compiler.
    """
    try:
        import numpy as np  # noqa: F401 - the interpreter needs it and does not depend on it
        import triton.language as tl
        from triton.runtime import interpreter
    except ImportError as error:
        raise EnvironmentUnfitError(
            f"the Triton interpreter cannot run here: {error}",
            advice="Install the extra rltune[torch].",
        ) from None
    if not isinstance(tl.sum, interpreter.InterpretedFunction):
        raise EnvironmentUnfitError(
            "tensors in host memory need the Triton interpreter; Triton was imported without it",
            advice=_ADVICE,
        )
    _correct()


@functools.cache
def _correct() -> None:
    """Replace the interpreter's wrong operations. Once: a second time would wrap the first."""
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    for name in ("cast_impl", "create_fp_to_fp"):
        setattr(builder, name, _corrected_cast(getattr(builder, name)))
    # every add, multiply, comparison, minimum and so on ends in binary_op
    for name in ("binary_op", "unary_op", "create_fma", "create_clampf"):
        setattr(builder, name, _corrected_arithmetic(getattr(builder, name)))
    builder.create_dot = _corrected_dot(builder.create_dot)
    builder.create_maxnumf = _number_of("fmax")
    builder.create_minnumf = _number_of("fmin")
    interpreter.GridExecutor.__call__ = _quiet(interpreter.GridExecutor.__call__)


def _corrected_cast(original: Callable[..., Any]) -> Callable[..., Any]:
    """Casts from and to bf16 go through fp32, rounded to nearest even unless asked otherwise."""

    @functools.wraps(original)
    def cast(self: Any, source: Any, target: Any, rounding_mode: Any = None) -> Any:
        from triton.runtime.interpreter import TensorHandle, _get_np_dtype, _ir

        element = target.scalar
        others = (source.dtype.scalar, element)
        if not any(_is_bf16(item) for item in others) or any(_is_8_bit_float(i) for i in others):
            rest = () if rounding_mode is None else (rounding_mode,)
            return original(self, source, target, *rest)
        data = _values(source)
        if _is_bf16(element):
            toward_zero = rounding_mode == _ir.ROUNDING_MODE.RTZ
            return TensorHandle(_to_bf16(data, toward_zero=toward_zero), element)
        return TensorHandle(data.astype(_get_np_dtype(target)), element)

    return cast


def _corrected_arithmetic(original: Callable[..., Any]) -> Callable[..., Any]:
    """Operations on bf16 are done in fp32 and rounded once."""

    @functools.wraps(original)
    def operate(self: Any, *arguments: Any) -> Any:
        import numpy as np
        from triton.runtime.interpreter import TensorHandle

        handles = [item for item in arguments if isinstance(item, TensorHandle)]
        kind = next((item.dtype for item in handles if _is_bf16(item.dtype)), None)
        if kind is None:
            return original(self, *arguments)
        result = original(self, *(_widened(item) for item in arguments))
        if result.data.dtype == np.bool_:  # a comparison
            return result
        return TensorHandle(_to_bf16(result.data, toward_zero=False), kind)

    return operate


def _corrected_dot(original: Callable[..., Any]) -> Callable[..., Any]:
    """bf16 operands are multiplied in fp32, exactly, and added in the accumulator's type."""

    @functools.wraps(original)
    def dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        return original(self, _widened(a), _widened(b), *rest)

    return dot


def _number_of(function: str) -> Callable[..., Any]:
    """The numpy function of that name, which leaves a NaN out where the other value is a number."""

    def choose(self: Any, left: Any, right: Any) -> Any:
        import numpy as np

        return self.binary_op(left, right, getattr(np, function))

    return choose


def _quiet(original: Callable[..., Any]) -> Callable[..., Any]:
    """An overflow inside a kernel is no warning, as on a GPU."""

    @functools.wraps(original)
    def call(self: Any, *arguments: Any, **keywords: Any) -> Any:
        import numpy as np

        with np.errstate(all="ignore"):
            return original(self, *arguments, **keywords)

    return call


def _is_bf16(dtype: Any) -> bool:
    import triton.language as tl

    return bool(dtype.scalar == tl.bfloat16)


def _is_8_bit_float(dtype: Any) -> bool:
    return bool(dtype.is_floating() and dtype.primitive_bitwidth == 8)


def _values(handle: Any) -> Any:
    """The numbers of a handle as numpy holds them; bf16 as fp32."""
    import numpy as np

    if not _is_bf16(handle.dtype):
        return handle.data
    return (np.asarray(handle.data, dtype=np.uint32) << np.uint32(16)).view(np.float32)


def _widened(handle: Any) -> Any:
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    if not isinstance(handle, TensorHandle) or not _is_bf16(handle.dtype):
        return handle
    return TensorHandle(_values(handle), tl.float32)


def _to_bf16(data: Any, *, toward_zero: bool) -> Any:
    """Numbers as bf16 bit patterns, by way of fp32."""
    import numpy as np

    single = np.asarray(data).astype(np.float32)
    bits = single.view(np.uint32)
    if not toward_zero:
        odd = (bits >> np.uint32(16)) & np.uint32(1)
        bits = bits + (np.uint32(0x7FFF) + odd)
    high = (bits >> np.uint32(16)).astype(np.uint16)
    return np.where(np.isnan(single), np.uint16(_BF16_NAN), high)
