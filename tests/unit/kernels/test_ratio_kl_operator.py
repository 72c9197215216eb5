"""ratio_kl in the interpreter: accuracy, masks, infinities, batch invariance."""

from typing import Any

import pytest
import torch

from rltune.errors import OperatorArgumentError
from rltune_kernels.ratio_kl import ratio_kl
from tests.unit.kernels import checks, ratio_kl_checks

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="runs in the interpreter, without a CUDA device"
)
every_dtype = pytest.mark.parametrize("dtype", checks.DTYPES, ids=str)


@every_dtype
@pytest.mark.parametrize("vocab_size", [1, 17, 1025, 4104, 12289])
def test_results_lie_near_fp64(dtype: torch.dtype, vocab_size: int) -> None:
    for temperature in (1.0, 0.6):
        ratio_kl_checks.check_accuracy(6, vocab_size, dtype, "cpu", temperature)


@every_dtype
def test_masked_rows_are_not_read(dtype: torch.dtype) -> None:
    ratio_kl_checks.check_masked_rows(1025, dtype, "cpu")


@every_dtype
def test_infinite_distances_meet_no_zero(dtype: torch.dtype) -> None:
    ratio_kl_checks.check_infinities(257, dtype, "cpu")


@every_dtype
def test_a_policy_is_at_ratio_1_to_itself(dtype: torch.dtype) -> None:
    ratio_kl_checks.check_on_policy(1031, dtype, "cpu")


@every_dtype
def test_padding_is_not_read(dtype: torch.dtype) -> None:
    ratio_kl_checks.check_padded_columns(1000, 1024, dtype, "cpu")


@every_dtype
def test_tokens_do_not_depend_on_their_batch(dtype: torch.dtype) -> None:
    ratio_kl_checks.check_batches(1031, dtype, "cpu")


@every_dtype
def test_layouts_change_no_byte(dtype: torch.dtype) -> None:
    ratio_kl_checks.check_layouts(1025, dtype, "cpu")


def test_small_distances_do_not_cancel() -> None:
    """kl two millionths away is d * d / 2, not the rounding of exp(d) - 1 - d in fp64."""
    logits = torch.tensor([[0.0, -20.0]])  # the sum of either row is 1 in fp32
    ref = logits - torch.tensor([[0.0, 3 * 2.0**-19]])
    distance = float(ref[0, 1].double() - logits[0, 1].double())
    assert -1e-5 < distance < 0
    _, kl = ratio_kl(logits, ref, torch.tensor([1]), torch.zeros(1))
    assert float(kl) == pytest.approx(distance**2 / 2 * (1 + distance / 3), rel=5e-7, abs=0)


def test_an_infinite_slope_meets_no_share_of_nothing() -> None:
    logits = torch.tensor([[0.0, float("-inf"), 1.0]], requires_grad=True)
    ids, old = torch.tensor([0]), torch.tensor([float("-inf")])
    ratio, _ = ratio_kl(logits, logits.detach(), ids, old)
    assert ratio.tolist() == [float("inf")]
    (dlogits,) = torch.autograd.grad(ratio, logits, torch.ones(1))
    assert dlogits[0, 1] == 0


def test_shapes_and_zero_sizes() -> None:
    logits = torch.ones((2, 0, 17), requires_grad=True)
    ids, old = torch.empty((2, 0), dtype=torch.int64), torch.empty((2, 0))
    ratio, kl = ratio_kl(logits, logits.detach(), ids, old)
    assert ratio.shape == kl.shape == (2, 0)
    (ratio.sum() + kl.sum()).backward()
    assert logits.grad is not None
    assert logits.grad.shape == logits.shape
    own, ref, ids, old, mask = ratio_kl_checks.batch(6, 17, torch.float32, "cpu")
    bytes_mask = ratio_kl(own, ref, ids, old, mask=mask.to(torch.uint8))
    assert torch.equal(bytes_mask[0], ratio_kl(own, ref, ids, old, mask=mask)[0])
    every = ratio_kl(own, ref, ids, old)[0]
    assert torch.equal(every[mask], bytes_mask[0][mask])


def test_registered_operators_pass_opcheck() -> None:
    logits, ref, ids, old, mask = ratio_kl_checks.batch(5, 63, torch.float32, "cpu")
    seen = mask.view(torch.uint8)
    arguments = (logits.requires_grad_(), ref, ids, seen, old, 1.0, 63)
    torch.library.opcheck(torch.ops.rltune.ratio_kl.default, arguments)
    one = torch.ones(5)
    saved = [logits.detach(), ids, seen, one, one, one, one]
    backward = torch.ops.rltune.ratio_kl_backward.default
    torch.library.opcheck(backward, (torch.randn(5), torch.randn(5), saved, 1.0, 63))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_call_is_one_graph(backend: str) -> None:
    ratio_kl_checks.check_compiled("cpu", backend)


ROWS, IDS, OLD = torch.ones(2, 3), torch.tensor([1, 1]), torch.zeros(2)


@pytest.mark.parametrize(
    ("arguments", "options", "named"),
    [
        ((ROWS, torch.ones(2, 4), IDS, OLD), {}, "ref_logits: expected"),
        ((ROWS, ROWS.half(), IDS, OLD), {}, "ref_logits: expected element type"),
        ((ROWS, ROWS, OLD, OLD), {}, "ids: expected element type"),
        ((ROWS, ROWS, IDS, OLD.half()), {}, "old_logprob: expected element type torch.float32"),
        ((ROWS, ROWS, IDS, [0.0]), {}, "old_logprob: expected a tensor"),
        ((ROWS, ROWS, IDS, OLD[:1]), {}, "old_logprob: expected the shape of ids"),
        ((ROWS, ROWS, IDS, OLD), {"mask": OLD}, "mask: expected element type torch.bool"),
        ((ROWS, ROWS, IDS, OLD), {"mask": IDS[:1] > 0}, "mask: expected the shape of ids"),
        ((ROWS, ROWS, IDS, OLD), {"temperature": float("nan")}, "temperature: expected"),
        ((ROWS, ROWS, IDS, OLD), {"vocab_size": 0}, "vocab_size: expected from 1 to 3, got 0"),
    ],
)
def test_unfit_arguments_are_refused_by_name(
    arguments: tuple[Any, ...], options: dict[str, Any], named: str
) -> None:
    with pytest.raises(OperatorArgumentError, match=named):
        ratio_kl(*arguments, **options)
