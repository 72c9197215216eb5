"""logprob in the interpreter: accuracy, edges, vocabulary shards, batch invariance."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from rltune.errors import OperatorArgumentError
from rltune_kernels.logprob import logprob, merge_shards, shard_parts
from tests.unit.kernels import checks, logprob_checks, tensor_parallel_rank

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="runs in the interpreter, without a CUDA device"
)
every_dtype = pytest.mark.parametrize("dtype", checks.DTYPES, ids=str)


@every_dtype
@pytest.mark.parametrize("vocab_size", [1, 17, 1023, 1025, 4104, 12289])
def test_results_lie_near_fp64(dtype: torch.dtype, vocab_size: int) -> None:
    for temperature in (1.0, 0.3, 2.5):
        logprob_checks.check_accuracy(4, vocab_size, dtype, "cpu", temperature)


@pytest.mark.parametrize("vocab_size", [50257, 129920, 151936])
def test_model_vocabularies_lie_near_fp64(vocab_size: int) -> None:
    """verl 2899: a vocabulary that no block divides."""
    logprob_checks.check_accuracy(2, vocab_size, torch.bfloat16, "cpu")


@every_dtype
@pytest.mark.parametrize("vocab_size", [17, 4104])
def test_extreme_logits(dtype: torch.dtype, vocab_size: int) -> None:
    logprob_checks.check_extremes(vocab_size, dtype, "cpu")


@every_dtype
def test_ignored_rows_are_not_read(dtype: torch.dtype) -> None:
    logprob_checks.check_unread_rows(1025, dtype, "cpu")


@every_dtype
def test_an_id_that_names_no_column_is_not_a_number(dtype: torch.dtype) -> None:
    logprob_checks.check_ids_outside(17, dtype, "cpu")


@every_dtype
@pytest.mark.parametrize(("vocab_size", "padded"), [(17, 64), (1000, 1024), (4097, 8192)])
def test_padding_is_not_read(dtype: torch.dtype, vocab_size: int, padded: int) -> None:
    logprob_checks.check_padded_columns(vocab_size, padded, dtype, "cpu")


def test_padding_of_a_model_is_not_read() -> None:
    """verl 2899 and 2656: padded columns added exp(0) to the sum, logprob reached +123.7."""
    logprob_checks.check_padded_columns(129920, 130048, torch.bfloat16, "cpu")


@every_dtype
@pytest.mark.parametrize(
    ("vocab_size", "padded"), [(8, 8), (24, 24), (1000, 1024), (4104, 4104), (9000, 16384)]
)
def test_shards_give_the_bytes_of_one_device(
    dtype: torch.dtype, vocab_size: int, padded: int
) -> None:
    logprob_checks.check_shards(6, vocab_size, padded, dtype, "cpu")


@every_dtype
def test_tokens_do_not_depend_on_their_batch(dtype: torch.dtype) -> None:
    logprob_checks.check_batches(1031, dtype, "cpu")


@every_dtype
def test_layouts_change_no_byte(dtype: torch.dtype) -> None:
    logprob_checks.check_layouts(1025, dtype, "cpu")


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_give_the_bytes_of_one_device(ranks: int, tmp_path: Path) -> None:
    """Over torch.distributed: the same log-probabilities on every rank."""
    script = Path(tensor_parallel_rank.__file__)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RLTUNE_MODE": "off"}
    arguments = [str(ranks), str(tmp_path / "init"), str(tmp_path / "out"), "cpu"]
    children = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), *arguments],
            env=environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]
    for child in children:
        _, error = child.communicate(timeout=240)
        assert child.returncode == 0, error
    sizes = tensor_parallel_rank
    logits, ids = logprob_checks.logits_and_ids(sizes.TOKENS, sizes.PADDED, torch.bfloat16, "cpu")
    ids = torch.where(ids < 0, ids, ids % sizes.VOCAB_SIZE)
    dy = logprob_checks.slopes(ids)
    expected, gradient = logprob_checks.run(logits, ids, dy, vocab_size=sizes.VOCAB_SIZE)
    saved = [torch.load(tmp_path / f"out.{rank}") for rank in range(ranks)]
    for result, _ in saved:
        assert checks.raw(result) == checks.raw(expected)
    joined = torch.cat([own for _, own in saved], dim=1)
    assert checks.raw(joined) == checks.raw(gradient)


def test_shapes_and_zero_sizes() -> None:
    logits, ids = logprob_checks.logits_and_ids(6, 17, torch.bfloat16, "cpu")
    assert logprob(logits.view(2, 3, 17), ids.view(2, 3)).shape == (2, 3)
    assert logprob(logits[0], ids[0]).shape == ()
    empty = torch.ones((2, 0, 17), requires_grad=True)
    result = logprob(empty, torch.empty((2, 0), dtype=torch.int64))
    assert result.shape == (2, 0)
    result.sum().backward()
    assert empty.grad is not None
    assert empty.grad.shape == empty.shape


def test_registered_operators_pass_opcheck() -> None:
    logits, ids = logprob_checks.logits_and_ids(5, 63, torch.float32, "cpu")
    arguments = (logits.requires_grad_(), ids, -100, 1.0, 63)
    torch.library.opcheck(torch.ops.rltune.logprob.default, arguments)
    saved = [logits.detach(), ids, torch.ones(5), torch.ones(5)]
    backward = torch.ops.rltune.logprob_backward.default
    torch.library.opcheck(backward, (torch.randn(5), saved, -100, 1.0, 63))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_call_is_one_graph(backend: str) -> None:
    logprob_checks.check_compiled(logprob, "cpu", backend)


@pytest.mark.parametrize(
    ("arguments", "options", "named"),
    [
        (([1.0], torch.tensor(1)), {}, r"logits: expected a tensor \[\.\.\., padded_vocab_size\]"),
        ((torch.ones(2, 3), [1, 2]), {}, "ids: expected a tensor"),
        ((torch.ones(2, 3), torch.ones(2)), {}, "ids: expected element type"),
        ((torch.ones(2, 3), torch.tensor([1])), {}, r"ids: expected the rows of logits, \(2,\)"),
        ((torch.ones(2, 0), torch.tensor([1, 1])), {}, "from 1 to"),
        ((torch.ones(1, 3), torch.tensor([1])), {"temperature": 0.0}, "temperature: expected"),
        ((torch.ones(1, 3), torch.tensor([1])), {"temperature": 1e-320}, "temperature: expected"),
        ((torch.ones(1, 3), torch.tensor([1])), {"vocab_size": 4}, "vocab_size: expected from 1"),
        ((torch.ones(1, 3, dtype=torch.float64), torch.tensor([1])), {}, "element type"),
        ((torch.ones(1, 3, device="meta"), torch.tensor([1])), {}, "device meta, got cpu"),
    ],
)
def test_unfit_arguments_are_refused_by_name(
    arguments: tuple[Any, Any], options: dict[str, Any], named: str
) -> None:
    with pytest.raises(OperatorArgumentError, match=named):
        logprob(*arguments, **options)


@pytest.mark.parametrize(
    ("columns", "options", "named"),
    [
        (8, {"shard": 0, "num_shards": 3}, "num_shards: expected one of"),
        (8, {"shard": 2, "num_shards": 2}, "shard: expected from 0 to 1, got 2"),
        (6, {"shard": 0, "num_shards": 2}, "multiples of 4 for 2 shards"),
        (8, {"shard": 0, "num_shards": 2, "vocab_size": 17}, "vocab_size: expected from 1 to 16"),
    ],
)
def test_unfit_shards_are_refused_by_name(
    columns: int, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(OperatorArgumentError, match=named):
        shard_parts(torch.ones(2, columns), torch.tensor([1, 1]), **options)


@pytest.mark.parametrize(
    ("parts", "named"),
    [
        ([1.0], "parts: expected a tensor of torch.float32, got list"),
        (torch.ones(2, 3, 2, dtype=torch.float64), "got torch.float64"),
        (torch.ones(3, 3, 2), r"got \(3, 3, 2\)"),
        (torch.ones(2, 3, 1), "2 tokens"),
    ],
)
def test_unfit_parts_are_refused_by_name(parts: Any, named: str) -> None:
    with pytest.raises(OperatorArgumentError, match=named):
        merge_shards(parts, torch.tensor([1, 1]), shard_size=8)
