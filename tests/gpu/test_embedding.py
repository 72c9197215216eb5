"""The fixed launch of embedding on a GPU: copies, the ordered gradient, capture, compilation."""

import pytest
import torch

from rltune_kernels.embedding import embedding, reference
from tests.gpu.common import DEVICE, every_dtype, every_width
from tests.unit.kernels import checks


@every_dtype
@every_width
def test_rows_are_copied_bit_by_bit(dtype: torch.dtype, width: int) -> None:
    for num_tokens in (7, 1000):
        checks.check_embedding_copies(num_tokens, 301, width, dtype, DEVICE)


@every_dtype
@every_width
def test_gradient_is_the_ordered_fold(dtype: torch.dtype, width: int) -> None:
    checks.check_embedding_gradient(300, 17, width, dtype, DEVICE)


@every_dtype
@every_width
def test_tokens_do_not_depend_on_their_batch(dtype: torch.dtype, width: int) -> None:
    checks.check_embedding_batch(300, 17, width, dtype, DEVICE)


def test_many_tokens_agree_with_fp64() -> None:
    ids = torch.randint(-2, 5002, (131072,), device=DEVICE)
    weight = torch.zeros((5000, 257), device=DEVICE, requires_grad=True)
    dy = torch.randn((131072, 257), device=DEVICE)
    (dweight,) = torch.autograd.grad(embedding(ids, weight), weight, dy)
    size = reference.backward(ids, dy.abs(), 5000)
    assert checks.ulp_error(dweight, reference.backward(ids, dy, 5000), size) <= checks.HALF_ULP


def test_equal_ids_are_one_fold() -> None:
    ids = torch.full((4096,), 3, device=DEVICE)
    weight = torch.zeros((5, 64), device=DEVICE, requires_grad=True)
    dy = torch.randn((4096, 64), device=DEVICE)
    (dweight,) = torch.autograd.grad(embedding(ids, weight), weight, dy)
    folded = torch.zeros(64, dtype=torch.float64)
    for row in dy.cpu():
        folded += row
    assert checks.raw(dweight[3]) == checks.raw(folded.float())


@pytest.mark.parametrize("offset", [0, 1])
def test_offsets_are_64_bit(offset: int) -> None:
    weight = torch.empty((524288 + offset, 4096), device=DEVICE, dtype=torch.bfloat16)
    weight[-1].fill_(1.5)
    last = weight.shape[0] - 1
    y = embedding(torch.tensor([last, last + 1, -1], device=DEVICE), weight)
    assert bool((y[0] == 1.5).all())
    assert not y[1:].any()


@every_dtype
def test_graph_capture_gives_the_eager_bytes(dtype: torch.dtype) -> None:
    ids = checks.edge_ids(200, 50, DEVICE)
    weight = torch.randn((50, 257), device=DEVICE).to(dtype)
    dy = torch.randn((200, 257), device=DEVICE).to(dtype)

    def step() -> tuple[torch.Tensor, torch.Tensor]:
        result, (dweight,) = checks.with_gradients(lambda v: embedding(ids, v), (weight,), dy)
        return result, dweight

    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    ids.copy_(ids.flip(0).clone())
    graph.replay()
    torch.cuda.synchronize()
    assert [checks.raw(item) for item in captured] == [checks.raw(item) for item in step()]


def test_layouts_change_no_byte() -> None:
    ids = checks.edge_ids(65, 50, DEVICE)
    weight = torch.randn((50, 257), device=DEVICE)
    expected = checks.raw(embedding(ids, weight))
    for kind, value in checks.layouts(weight):
        assert checks.raw(embedding(ids.repeat_interleave(2)[::2], value)) == expected, kind


def test_compiled_call_is_one_graph() -> None:
    torch.compiler.reset()
    ids, weight = checks.edge_ids(65, 50, DEVICE), torch.randn((50, 257), device=DEVICE)
    compiled = torch.compile(embedding, fullgraph=True, backend="aot_eager")
    assert checks.raw(compiled(ids, weight)) == checks.raw(embedding(ids, weight))
