"""The fixed launch of logprob on a GPU: model vocabularies, shards, batches, capture."""

from pathlib import Path

import pytest
import torch

from rltune_kernels.logprob import logprob
from tests.gpu.common import DEVICE, every_dtype
from tests.unit.kernels import checks, logprob_checks

VOCABULARIES = (1, 17, 1023, 1025, 50257, 129920, 151936)
every_vocabulary = pytest.mark.parametrize("vocab_size", VOCABULARIES)


@every_dtype
@every_vocabulary
def test_results_lie_near_fp64(dtype: torch.dtype, vocab_size: int) -> None:
    for temperature in (1.0, 0.3, 2.5):
        logprob_checks.check_accuracy(131, vocab_size, dtype, DEVICE, temperature)


@every_dtype
@every_vocabulary
def test_extreme_logits_and_unread_rows(dtype: torch.dtype, vocab_size: int) -> None:
    logprob_checks.check_extremes(vocab_size, dtype, DEVICE)
    logprob_checks.check_unread_rows(vocab_size, dtype, DEVICE)
    logprob_checks.check_ids_outside(vocab_size, dtype, DEVICE)


@every_dtype
@pytest.mark.parametrize(
    ("vocab_size", "padded"), [(17, 64), (4097, 8192), (129920, 130048), (151669, 151936)]
)
def test_padding_is_not_read(dtype: torch.dtype, vocab_size: int, padded: int) -> None:
    logprob_checks.check_padded_columns(vocab_size, padded, dtype, DEVICE)


@every_dtype
@pytest.mark.parametrize(
    ("vocab_size", "padded"),
    [(24, 24), (9000, 16384), (50257, 50304), (129920, 129920), (151936, 151936)],
)
def test_shards_give_the_bytes_of_one_device(
    dtype: torch.dtype, vocab_size: int, padded: int
) -> None:
    logprob_checks.check_shards(67, vocab_size, padded, dtype, DEVICE)


@every_dtype
@pytest.mark.parametrize("vocab_size", [1025, 50257, 151936])
def test_tokens_do_not_depend_on_their_batch(dtype: torch.dtype, vocab_size: int) -> None:
    logprob_checks.check_batches(vocab_size, dtype, DEVICE)


@every_dtype
def test_layouts_change_no_byte(dtype: torch.dtype) -> None:
    logprob_checks.check_layouts(50257, dtype, DEVICE)


def test_offsets_are_64_bit() -> None:
    """2**31 elements and more: the bytes of the last rows alone."""
    logits = torch.randn((14200, 151936), device=DEVICE, dtype=torch.bfloat16)
    ids = torch.randint(0, 151936, (14200,), device=DEVICE)
    dy = logprob_checks.slopes(ids)
    whole, gradient = logprob_checks.run(logits, ids, dy)
    last = slice(14190, 14200)
    got = logprob_checks.run(logits[last].clone(), ids[last], dy[last])
    assert checks.raw_all(got) == checks.raw_all((whole[last], gradient[last]))


def test_repeats_give_one_set_of_bytes() -> None:
    logits, ids = logprob_checks.logits_and_ids(515, 151936, torch.bfloat16, DEVICE)
    dy = logprob_checks.slopes(ids)
    runs = {b"".join(checks.raw_all(logprob_checks.run(logits, ids, dy))) for _ in range(10)}
    assert len(runs) == 1


def test_graph_capture_gives_the_eager_bytes() -> None:
    logits, ids = logprob_checks.logits_and_ids(33, 50257, torch.bfloat16, DEVICE)
    dy = logprob_checks.slopes(ids)
    logprob_checks.run(logits, ids, dy)  # loads every program
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = logprob_checks.run(logits, ids, dy)
    fresh, _ = logprob_checks.logits_and_ids(33, 50257, torch.bfloat16, DEVICE, seed=7)
    logits.copy_(fresh)
    graph.replay()
    torch.cuda.synchronize()
    assert checks.raw_all(captured) == checks.raw_all(logprob_checks.run(fresh, ids, dy))


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_call_is_one_graph(backend: str) -> None:
    logprob_checks.check_compiled(logprob, DEVICE, backend, 50257)


def test_one_rank_over_nccl_gives_the_bytes_of_one_device(tmp_path: Path) -> None:
    from torch import distributed

    from rltune_kernels.logprob import tensor_parallel_logprob

    distributed.init_process_group(
        "nccl", init_method=f"file://{tmp_path / 'init'}", rank=0, world_size=1
    )
    try:
        logits, ids = logprob_checks.logits_and_ids(65, 50304, torch.bfloat16, DEVICE)
        got = tensor_parallel_logprob(logits, ids)
        assert checks.raw(got) == checks.raw(logprob(logits, ids))
    finally:
        distributed.destroy_process_group()
