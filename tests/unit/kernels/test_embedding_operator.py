"""The embedding in the interpreter: copies, edges, the order of its gradient."""

from typing import Any

import pytest
import torch

from rltune.errors import OperatorArgumentError
from rltune_kernels.embedding import embedding, reference
from tests.unit.kernels import checks

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="runs in the interpreter, without a CUDA device"
)
every_dtype = pytest.mark.parametrize("dtype", checks.DTYPES, ids=str)


@every_dtype
@pytest.mark.parametrize("width", [63, 257, 4099])
def test_rows_are_copied_bit_by_bit(dtype: torch.dtype, width: int) -> None:
    checks.check_embedding_copies(12, 7, width, dtype, "cpu")


@every_dtype
@pytest.mark.parametrize("width", [63, 257])
def test_gradient_is_the_ordered_fold(dtype: torch.dtype, width: int) -> None:
    checks.check_embedding_gradient(20, 5, width, dtype, "cpu")


@every_dtype
def test_tokens_do_not_depend_on_their_batch(dtype: torch.dtype) -> None:
    checks.check_embedding_batch(20, 5, 63, dtype, "cpu")


def test_gradient_of_equal_ids_is_one_fold() -> None:
    ids = torch.full((33,), 2)
    weight = torch.zeros(4, 64, dtype=torch.bfloat16, requires_grad=True)
    dy = torch.randn(33, 64).to(torch.bfloat16)
    (dweight,) = torch.autograd.grad(embedding(ids, weight), weight, dy)
    folded = torch.zeros(64)
    for row in dy:
        folded += row.float()
    assert checks.raw(dweight[2]) == checks.raw(folded.to(torch.bfloat16))
    assert not dweight[[0, 1, 3]].any()


def test_gradient_agrees_with_the_reference() -> None:
    ids = checks.edge_ids(20, 5, "cpu")
    dy = torch.randn(20, 63)
    weight = torch.zeros(5, 63, requires_grad=True)
    (dweight,) = torch.autograd.grad(embedding(ids, weight), weight, dy)
    assert torch.allclose(dweight.double(), reference.backward(ids, dy, 5), atol=1e-5)
    assert torch.equal(embedding(ids, dy[:5]), reference.forward(ids, dy[:5]))


def test_layouts_change_no_byte() -> None:
    ids = checks.edge_ids(8, 5, "cpu")
    weight = torch.randn(5, 63)
    dy = torch.randn(8, 63)
    expected = checks.with_gradients(lambda value: embedding(ids, value), (weight,), dy)
    other_ids = ids.repeat_interleave(2)[::2]
    for (kind, value), (_, other_dy) in zip(
        checks.layouts(weight), checks.layouts(dy), strict=True
    ):
        got = checks.with_gradients(lambda v: embedding(other_ids, v), (value,), other_dy)
        assert checks.raw(got[0]) == checks.raw(expected[0]), kind
        assert checks.raw(got[1][0]) == checks.raw(expected[1][0]), kind


def test_shapes_and_integer_types_of_ids() -> None:
    weight = torch.randn(5, 8)
    ids = torch.tensor([[1, -1, 4]], dtype=torch.int32)
    assert embedding(ids, weight).shape == (1, 3, 8)
    assert torch.equal(embedding(ids, weight)[0, 2], weight[4])
    assert torch.equal(embedding(torch.tensor(3), weight), weight[3])


@pytest.mark.parametrize("shape", [(0, 8), (5, 0)])
def test_empty_weight_gives_zeros(shape: tuple[int, int]) -> None:
    weight = torch.empty(shape, requires_grad=True)
    y = embedding(torch.tensor([0, 1]), weight)
    assert y.shape == (2, shape[1])
    assert not y.any()
    y.sum().backward()
    assert weight.grad is not None
    assert weight.grad.shape == shape


def test_no_ids_give_an_empty_result_and_a_zero_gradient() -> None:
    weight = torch.ones(5, 8, requires_grad=True)
    y = embedding(torch.empty((2, 0), dtype=torch.int64), weight)
    assert y.shape == (2, 0, 8)
    y.sum().backward()
    assert weight.grad is not None
    assert not weight.grad.any()


def test_registered_operators_pass_opcheck() -> None:
    ids = checks.edge_ids(8, 5, "cpu")
    weight = torch.randn(5, 63, requires_grad=True)
    torch.library.opcheck(torch.ops.rltune.embedding.default, (ids, weight))
    arguments = (torch.randn(8, 63), ids, 5)
    torch.library.opcheck(torch.ops.rltune.embedding_backward.default, arguments)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_call_is_one_graph(backend: str) -> None:
    torch.compiler.reset()
    ids = checks.edge_ids(8, 5, "cpu")
    weight, dy = torch.randn(5, 63), torch.randn(8, 63)
    compiled = torch.compile(embedding, fullgraph=True, backend=backend)
    got = checks.with_gradients(lambda value: compiled(ids, value), (weight,), dy)
    expected = checks.with_gradients(lambda value: embedding(ids, value), (weight,), dy)
    assert checks.raw(got[0]) == checks.raw(expected[0])
    assert checks.raw(got[1][0]) == checks.raw(expected[1][0])


@pytest.mark.parametrize(
    ("ids", "weight", "named"),
    [
        (torch.tensor([1.0]), torch.ones(2, 2), "ids: expected element type"),
        ([1], torch.ones(2, 2), "ids: expected a tensor"),
        (torch.tensor([1]), torch.ones(2), r"\[vocab_size, hidden_size\]"),
        (torch.tensor([1]), torch.ones(2, 2, dtype=torch.int64), "weight: expected element type"),
        (torch.tensor([1]), torch.ones(2, 2, device="meta"), "device meta, got cpu"),
    ],
)
def test_unfit_arguments_are_refused_by_name(ids: Any, weight: torch.Tensor, named: str) -> None:
    with pytest.raises(OperatorArgumentError, match=named):
        embedding(ids, weight)
