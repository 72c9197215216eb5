"""What the row operators share on a GPU."""

from __future__ import annotations

import pytest
import torch

from tests.unit.kernels import checks

DEVICE = "cuda"
WIDTHS = (63, 257, 4096, 4097, 5376)
every_dtype = pytest.mark.parametrize("dtype", checks.DTYPES, ids=str)
every_width = pytest.mark.parametrize("width", WIDTHS)


def check_many_rows(name: str, dtype: torch.dtype, width: int) -> None:
    """From one row to as many as 2**27 elements allow, 131072 at most."""
    most = min(131072, 2**27 // width)
    for num_tokens in (1, 2, 63, 4097, most):
        checks.check_accuracy(name, num_tokens, width, dtype, DEVICE)


def check_repeatable(name: str, dtype: torch.dtype) -> None:
    """Twenty runs give one set of bytes, forward and backward."""
    operator = checks.OPERATORS[name]
    values = checks.inputs(name, 515, 4096, dtype, DEVICE)
    dys = operator.upstream(values)
    assert len({b"".join(checks.raw_all(*operator.run(values, dys))) for _ in range(20)}) == 1


def check_graph(name: str, dtype: torch.dtype) -> None:
    """Captured once, replayed with new inputs: the eager bytes."""
    operator = checks.OPERATORS[name]
    values = checks.inputs(name, 33, 4096, dtype, DEVICE)
    dys = operator.upstream(values)
    operator.run(values, dys)  # loads every program
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = operator.run(values, dys)
    for seed in (1, 2):
        fresh = checks.inputs(name, 33, 4096, dtype, DEVICE, seed)
        for value, new in zip(values, fresh, strict=True):
            value.copy_(new)
        graph.replay()
        torch.cuda.synchronize()
        assert checks.raw_all(*captured) == checks.raw_all(*operator.run(fresh, dys))


def check_beyond_32_bits(name: str, num_tokens: int) -> None:
    """2**31 elements and more: the bytes of the rows run in two halves, forward and dx."""
    operator = checks.OPERATORS[name]
    shapes = operator.shapes(num_tokens, 4096)
    values = tuple(torch.randn(s, device=DEVICE, dtype=torch.bfloat16) for s in shapes)
    dys = tuple(value.flip(-1) for value in values[: operator.outputs])
    whole = row_outputs(operator, values, dys)
    middle = num_tokens // 2
    for part in (slice(0, middle), slice(middle, num_tokens)):
        some = tuple(value[part] if value.dim() == 2 else value for value in values)
        halves = row_outputs(operator, some, tuple(dy[part] for dy in dys))
        for got, expected in zip(halves, whole, strict=True):
            assert torch.equal(got.view(torch.int16), expected[part].view(torch.int16))


def row_outputs(
    operator: checks.FloatOperator, values: checks.Tensors, dys: checks.Tensors
) -> checks.Tensors:
    """Results, and gradients that have rows."""
    results, gradients = operator.run(values, dys)
    return results + tuple(item for item in gradients if item.dim() == 2)
