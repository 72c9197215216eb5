"""What the row operators share on a GPU."""

from __future__ import annotations

import pytest
import torch

from tests.unit.kernels import checks

DEVICE = "cuda"
WIDTHS = (63, 257, 4096, 5376)
every_dtype = pytest.mark.parametrize("dtype", checks.DTYPES, ids=str)
every_width = pytest.mark.parametrize("width", WIDTHS)


def check_many_rows(name: str, dtype: torch.dtype, width: int) -> None:
    """From one row to as many as 2**27 elements allow, 131072 at most."""
    most = min(131072, 2**27 // width)
    for num_tokens in (1, 2, 63, 4097, most):
        checks.check_accuracy(name, num_tokens, width, dtype, DEVICE)


def check_repeatable(name: str, dtype: torch.dtype) -> None:
    """Twenty runs give one set of bytes, forward and backward."""
    values = checks.inputs(name, 515, 4096, dtype, DEVICE)
    dy = torch.randn_like(values[0])
    seen = set()
    for _ in range(20):
        result, gradients = checks.with_gradients(checks.OPERATORS[name].call, values, dy)
        seen.add(b"".join(checks.raw(item) for item in (result, *gradients)))
    assert len(seen) == 1


def check_graph(name: str, dtype: torch.dtype) -> None:
    """Captured once, replayed with new inputs: the eager bytes."""
    operator = checks.OPERATORS[name]
    values = checks.inputs(name, 33, 4096, dtype, DEVICE)
    dy = torch.randn_like(values[0])
    checks.with_gradients(operator.call, values, dy)  # loads every program
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result, gradients = checks.with_gradients(operator.call, values, dy)
    for seed in (1, 2):
        fresh = checks.inputs(name, 33, 4096, dtype, DEVICE, seed)
        for value, new in zip(values, fresh, strict=True):
            value.copy_(new)
        graph.replay()
        torch.cuda.synchronize()
        expected, expected_gradients = checks.with_gradients(operator.call, fresh, dy)
        assert checks.raw(result) == checks.raw(expected)
        assert [checks.raw(g) for g in gradients] == [checks.raw(g) for g in expected_gradients]


def check_beyond_32_bits(name: str, num_tokens: int) -> None:
    """2**31 elements and more: the bytes of the rows run apart, forward and dx."""
    operator = checks.OPERATORS[name]
    shapes = operator.shapes(num_tokens, 4096)
    values = tuple(torch.randn(s, device=DEVICE, dtype=torch.bfloat16) for s in shapes)
    dy = values[0].flip(-1)
    result, gradients = checks.with_gradients(operator.call, values, dy)
    for part in (slice(0, 16), slice(num_tokens - 16, num_tokens)):
        some = tuple(value[part] if value.dim() == 2 else value for value in values)
        got, got_gradients = checks.with_gradients(operator.call, some, dy[part])
        assert torch.equal(got.view(torch.int16), result[part].view(torch.int16))
        assert torch.equal(got_gradients[0].view(torch.int16), gradients[0][part].view(torch.int16))
