"""The fixed launch of ratio_kl on a GPU: accuracy, masks, batches, capture."""

import pytest
import torch

from tests.gpu.common import DEVICE, every_dtype
from tests.unit.kernels import checks, ratio_kl_checks

VOCABULARIES = (17, 1025, 50257, 151936)
every_vocabulary = pytest.mark.parametrize("vocab_size", VOCABULARIES)


@every_dtype
@every_vocabulary
def test_results_lie_near_fp64(dtype: torch.dtype, vocab_size: int) -> None:
    for temperature in (1.0, 0.6):
        ratio_kl_checks.check_accuracy(67, vocab_size, dtype, DEVICE, temperature)


@every_dtype
@every_vocabulary
def test_masked_rows_infinities_and_a_policy_beside_itself(
    dtype: torch.dtype, vocab_size: int
) -> None:
    ratio_kl_checks.check_masked_rows(vocab_size, dtype, DEVICE)
    ratio_kl_checks.check_infinities(vocab_size, dtype, DEVICE)
    ratio_kl_checks.check_on_policy(vocab_size, dtype, DEVICE)


@every_dtype
@pytest.mark.parametrize(("vocab_size", "padded"), [(1000, 1024), (151669, 151936)])
def test_padding_is_not_read(dtype: torch.dtype, vocab_size: int, padded: int) -> None:
    ratio_kl_checks.check_padded_columns(vocab_size, padded, dtype, DEVICE)


@every_dtype
@pytest.mark.parametrize("vocab_size", [1031, 151936])
def test_tokens_do_not_depend_on_their_batch(dtype: torch.dtype, vocab_size: int) -> None:
    ratio_kl_checks.check_batches(vocab_size, dtype, DEVICE)


@every_dtype
def test_layouts_change_no_byte(dtype: torch.dtype) -> None:
    ratio_kl_checks.check_layouts(50257, dtype, DEVICE)


def test_graph_capture_gives_the_eager_bytes() -> None:
    given = ratio_kl_checks.batch(33, 50257, torch.bfloat16, DEVICE)
    dys = ratio_kl_checks.upstream(given[2])
    ratio_kl_checks.run(given, dys)  # loads every program
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = ratio_kl_checks.run(given, dys)
    fresh = ratio_kl_checks.batch(33, 50257, torch.bfloat16, DEVICE, seed=7)
    for value, new in zip(given, fresh, strict=True):
        value.copy_(new)
    graph.replay()
    torch.cuda.synchronize()
    assert checks.raw_all(captured) == checks.raw_all(ratio_kl_checks.run(fresh, dys))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_call_is_one_graph(backend: str) -> None:
    ratio_kl_checks.check_compiled(DEVICE, backend)
