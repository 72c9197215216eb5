"""The fixed launch of silu on a GPU: accuracy, repeatability, layouts, capture, compilation."""

import pytest
import torch

from tests.gpu import common
from tests.gpu.common import DEVICE, every_dtype, every_width
from tests.unit.kernels import checks


@every_dtype
@every_width
def test_agrees_with_fp64(dtype: torch.dtype, width: int) -> None:
    common.check_many_rows("silu", dtype, width)


@every_dtype
def test_bytes_are_repeatable(dtype: torch.dtype) -> None:
    common.check_repeatable("silu", dtype)


@every_dtype
@every_width
def test_layouts_change_no_byte(dtype: torch.dtype, width: int) -> None:
    checks.check_layouts("silu", 65, width, dtype, DEVICE)
    checks.check_expanded("silu", 65, width, dtype, DEVICE)


@every_dtype
@every_width
def test_rows_do_not_depend_on_their_batch(dtype: torch.dtype, width: int) -> None:
    checks.check_batch_invariance("silu", 131, width, dtype, DEVICE)


def test_zero_rows_give_empty_results() -> None:
    checks.check_empty("silu", 2520, torch.bfloat16, DEVICE)


@every_dtype
def test_graph_capture_gives_the_eager_bytes(dtype: torch.dtype) -> None:
    common.check_graph("silu", dtype)


def test_compiled_call_is_one_graph() -> None:
    checks.check_compiled("silu", DEVICE, "aot_eager")


@pytest.mark.parametrize("num_tokens", [524288, 524289])
def test_offsets_are_64_bit(num_tokens: int) -> None:
    common.check_beyond_32_bits("silu", num_tokens)


def test_small_negative_results_are_kept() -> None:
    x = torch.linspace(-10, -6.5, 57, device=DEVICE).to(torch.bfloat16)[None]
    y = checks.OPERATORS["silu"].call(x)
    assert bool((y < 0).all())
