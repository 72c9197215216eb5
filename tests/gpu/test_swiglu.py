"""The fixed launch of swiglu on a GPU: accuracy, repeatability, layouts, capture, compilation."""

import torch

from tests.gpu import common
from tests.gpu.common import DEVICE, every_dtype, every_width
from tests.unit.kernels import checks


@every_dtype
@every_width
def test_agrees_with_fp64(dtype: torch.dtype, width: int) -> None:
    common.check_many_rows("swiglu", dtype, width)


@every_dtype
def test_bytes_are_repeatable(dtype: torch.dtype) -> None:
    common.check_repeatable("swiglu", dtype)


@every_dtype
@every_width
def test_layouts_change_no_byte(dtype: torch.dtype, width: int) -> None:
    checks.check_layouts("swiglu", 65, width, dtype, DEVICE)
    checks.check_expanded("swiglu", 65, width, dtype, DEVICE)


@every_dtype
@every_width
def test_rows_do_not_depend_on_their_batch(dtype: torch.dtype, width: int) -> None:
    checks.check_batch_invariance("swiglu", 131, width, dtype, DEVICE)


def test_zero_rows_give_empty_results() -> None:
    checks.check_empty("swiglu", 2520, torch.bfloat16, DEVICE)


@every_dtype
def test_graph_capture_gives_the_eager_bytes(dtype: torch.dtype) -> None:
    common.check_graph("swiglu", dtype)


def test_compiled_call_is_one_graph() -> None:
    checks.check_compiled("swiglu", DEVICE, "aot_eager")
