"""Operators on floats, by their fixed launch on a GPU: accuracy, invariance, layouts, capture."""

import itertools

import pytest
import torch

from tests.gpu import common
from tests.gpu.common import DEVICE, every_dtype, every_width
from tests.unit.kernels import checks

every_operator = pytest.mark.parametrize("name", list(checks.OPERATORS))


@every_operator
@every_dtype
@every_width
def test_agrees_with_fp64(name: str, dtype: torch.dtype, width: int) -> None:
    common.check_many_rows(name, dtype, width)


@every_operator
@every_dtype
def test_bytes_are_repeatable(name: str, dtype: torch.dtype) -> None:
    common.check_repeatable(name, dtype)


@every_operator
@every_dtype
@every_width
def test_layouts_change_no_byte(name: str, dtype: torch.dtype, width: int) -> None:
    checks.check_layouts(name, 65, width, dtype, DEVICE)
    checks.check_expanded(name, 65, width, dtype, DEVICE)


@every_operator
@every_dtype
@every_width
def test_rows_do_not_depend_on_their_batch(name: str, dtype: torch.dtype, width: int) -> None:
    checks.check_batch_invariance(name, 131, width, dtype, DEVICE)
    checks.check_padding(name, 131, width, dtype, DEVICE)


@every_operator
def test_padding_changes_no_byte_over_several_steps_of_every_fold(name: str) -> None:
    checks.check_padding(name, 6200, 257, torch.bfloat16, DEVICE)


@every_operator
def test_zero_rows_give_empty_results(name: str) -> None:
    checks.check_empty(name, 2520, torch.bfloat16, DEVICE)
    torch.cuda.synchronize()
    assert torch.ones(3, device=DEVICE).sum().item() == 3  # no error was left for the next call


@every_operator
@every_dtype
def test_graph_capture_gives_the_eager_bytes(name: str, dtype: torch.dtype) -> None:
    common.check_graph(name, dtype)


@every_operator
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_call_is_one_graph(name: str, backend: str) -> None:
    checks.check_compiled(name, DEVICE, backend)


@every_operator
@pytest.mark.parametrize("num_tokens", [524288, 524289])
def test_offsets_are_64_bit(name: str, num_tokens: int) -> None:
    common.check_beyond_32_bits(name, num_tokens)


@every_operator
def test_calls_run_on_their_tensors_device_and_keep_the_callers(name: str) -> None:
    """On every device of this machine, with every device as the current one."""
    operator = checks.OPERATORS[name]
    values = checks.inputs(name, 33, 4096, torch.bfloat16, DEVICE)
    dys = operator.upstream(values)
    expected = checks.raw_all(*operator.run(values, dys))
    devices = range(torch.cuda.device_count())
    for index, current in itertools.product(devices, devices):
        there = [tuple(item.to(f"cuda:{index}") for item in group) for group in (values, dys)]
        with torch.cuda.device(current):
            results, gradients = operator.run(there[0], there[1])
            assert torch.cuda.current_device() == current
        assert {item.device.index for item in (*results, *gradients)} == {index}
        assert checks.raw_all(results, gradients) == expected


@every_operator
def test_registered_operators_pass_opcheck(name: str) -> None:
    checks.check_registered(name, DEVICE)
