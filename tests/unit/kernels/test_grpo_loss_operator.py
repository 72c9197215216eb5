"""grpo_loss in the interpreter: accuracy, masks, padding, sequences alone, order, edges."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from rltune.errors import OperatorArgumentError
from rltune_kernels.grpo_loss import grpo_loss, reference
from rltune_kernels.grpo_loss.reference import Rule
from rltune_kernels.grpo_loss.spec import AGGREGATIONS
from rltune_kernels.grpo_norm import grpo_norm
from tests.unit.kernels import checks, grpo_checks, grpo_loss_checks
from tests.unit.kernels.grpo_checks import INF, NAN
from tests.unit.kernels.grpo_loss_checks import case

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="runs in the interpreter, without a CUDA device"
)
every_aggregation = pytest.mark.parametrize("aggregation", AGGREGATIONS)


def test_results_and_gradient_agree_with_fp64() -> None:
    for made in grpo_loss_checks.cases(7, 300, "cpu"):
        grpo_loss_checks.check_accuracy(made)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_other_element_types_agree_with_fp64(dtype: torch.dtype) -> None:
    made = case(5, 200, "cpu", dtype=dtype)
    grpo_loss_checks.check_accuracy(made)
    narrow = replace(made, old_logprob=made.old_logprob.to(dtype), advantages=torch.ones(5).half())
    grpo_loss_checks.check_accuracy(narrow)


@pytest.mark.parametrize("length", [1, 2, 127, 128, 129])
def test_short_sequences_agree_with_fp64(length: int) -> None:
    made = replace(case(2, length, "cpu"), mask=torch.ones(2, length, dtype=torch.bool))
    grpo_loss_checks.check_accuracy(made)


@every_aggregation
@pytest.mark.parametrize("per_token", [False, True])
def test_masked_tokens_are_unread(aggregation: str, per_token: bool) -> None:
    made = case(4, 150, "cpu", aggregation=aggregation, per_token=per_token)
    grpo_loss_checks.check_masked_tokens_are_unread(made)


@every_aggregation
@pytest.mark.parametrize("per_token", [False, True])
def test_padding_changes_no_byte(aggregation: str, per_token: bool) -> None:
    made = case(4, 150, "cpu", aggregation=aggregation, per_token=per_token)
    grpo_loss_checks.check_padding(made)


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean"])
def test_sequences_without_tokens_are_left_out(aggregation: str) -> None:
    made = case(4, 150, "cpu", aggregation=aggregation)
    loss = made.run()
    some: dict[str, Any] = {
        name: torch.cat((value, torch.full_like(value, NAN) if name != "mask" else value & False))
        for name in ("logprob", "old_logprob", "advantages", "mask", "ref_logprob")
        if (value := getattr(made, name)) is not None
    }
    got = replace(made, **some).run()
    assert grpo_loss_checks.raw_all(got[:3]) == grpo_loss_checks.raw_all(loss[:3])
    assert checks.raw(got[3][:4]) == checks.raw(loss[3])
    assert not any(checks.raw(got[3][4:]))


@every_aggregation
def test_no_token_at_all_gives_zeros(aggregation: str) -> None:
    made = case(3, 20, "cpu", aggregation=aggregation)
    made = replace(made, mask=torch.zeros(3, 20, dtype=torch.bool), logprob=made.logprob * NAN)
    for dloss in (1.0, NAN, -INF):
        for item in replace(made, dloss=dloss).run():
            assert not any(checks.raw(item.reshape(-1)))


@every_aggregation
@pytest.mark.parametrize("shape", [(0, 5), (3, 0), (0, 0)])
def test_empty_inputs_give_zeros(aggregation: str, shape: tuple[int, int]) -> None:
    logprob = torch.empty(shape, requires_grad=True)
    rest = (torch.empty(shape), torch.empty(shape[0]), torch.empty(shape, dtype=torch.bool))
    results = grpo_loss(logprob, *rest, aggregation=aggregation, max_length=5)
    for item in results:
        assert item.shape == ()
        assert not any(checks.raw(item.reshape(-1)))
    results[0].backward()
    assert logprob.grad is not None
    assert logprob.grad.shape == shape


def test_averages_are_the_named_ones() -> None:
    """Sequences of one and three tokens with surrogates -1 and -5: 4, 3 and 16 / (2 * 8)."""
    logprob = torch.zeros(2, 3)
    advantages, mask = torch.tensor([1.0, 5.0]), torch.tensor([[1, 0, 0], [1, 1, 1]])
    for aggregation, expected in zip(AGGREGATIONS, (4.0, 3.0, 1.0), strict=True):
        loss, policy_loss, kl = grpo_loss(
            *(logprob, logprob, advantages, mask), aggregation=aggregation, max_length=8
        )
        assert (float(loss), float(policy_loss), float(kl)) == (-expected, -expected, 0.0)


def test_two_clips_are_apart() -> None:
    for log_ratio, advantage, bound in ((1.0, 1.0, 1.28), (-1.0, -1.0, 0.9)):
        made = grpo_loss_checks.one(log_ratio, advantage, "cpu")
        made = replace(made, rule=Rule(clip_low=0.1, clip_high=0.28))
        assert float(made.run()[0]) == -grpo_checks.single(advantage * bound)


def test_gradient_at_ties_and_bounds_is_that_of_torch() -> None:
    grpo_loss_checks.check_ties("cpu")


def test_divergence_of_near_policies_cancels_nothing() -> None:
    grpo_loss_checks.check_near_policies("cpu")


@pytest.mark.parametrize("gap", [1000.0, 1e30, -INF])
def test_far_policies_diverge_by_infinity_and_not_by_nan(gap: float) -> None:
    grpo_loss_checks.check_far_policies(gap, "cpu")


def test_without_advantage_an_infinite_ratio_is_no_loss() -> None:
    grpo_loss_checks.check_infinite_ratio("cpu")


@pytest.mark.parametrize("name", ["logprob", "old_logprob", "advantages", "ref_logprob"])
def test_nan_in_a_token_that_counts_reaches_the_loss(name: str) -> None:
    grpo_loss_checks.check_nan(name, "cpu")


def test_sequences_are_as_if_alone() -> None:
    for per_token in (False, True):
        grpo_loss_checks.check_sequences_are_alone(case(5, 300, "cpu", per_token=per_token))


def test_sums_are_folds_of_lanes() -> None:
    grpo_loss_checks.check_order(131, 260, "cpu")


def test_candidates_give_the_bytes_of_the_fixed_launch() -> None:
    grpo_loss_checks.check_candidates(9, 700, "cpu")


def test_layouts_change_no_byte() -> None:
    grpo_loss_checks.check_layouts(case(5, 140, "cpu", per_token=True))
    made = case(5, 140, "cpu")
    expanded = replace(made, advantages=torch.tensor([0.5]).expand(5))
    dense = replace(made, advantages=torch.full((5,), 0.5))
    assert expanded.raw() == dense.raw()


def test_advantage_of_a_sequence_is_that_of_its_tokens() -> None:
    made = case(5, 140, "cpu")
    spread = replace(made, advantages=made.advantages[:, None].expand(5, 140))
    assert spread.raw() == made.raw()


def test_gradient_is_that_of_the_loss_alone() -> None:
    made = case(2, 40, "cpu")
    leaf = made.logprob.clone().requires_grad_()
    loss, policy_loss, kl = made.call(leaf)
    assert loss.requires_grad
    assert not policy_loss.requires_grad
    assert not kl.requires_grad
    (loss * 2 + policy_loss + kl).backward()
    assert leaf.grad is not None
    assert checks.raw(leaf.grad) == checks.raw(replace(made, dloss=2.0).run()[3])


def test_direct_call_gives_the_bytes_of_the_recorded_one() -> None:
    made = case(3, 40, "cpu")
    assert grpo_loss_checks.raw_all(made.call(made.logprob)) == made.raw()[:3]


def test_unscorable_completions_leave_the_loss_finite() -> None:
    """Seven of eight rewards NaN, and one group as it should be (TRL issue 5902)."""
    rewards = torch.cat((torch.full((7,), NAN), torch.arange(9.0)))
    made = replace(case(16, 30, "cpu"), advantages=grpo_norm(rewards, group_size=8))
    for item in made.run():
        assert item.isfinite().all()
    assert not made.advantages[:8].any()
    assert made.advantages[8:].all()


def test_reference_agrees_with_gradients_by_differences() -> None:
    made = case(3, 9, "cpu")
    leaf = made.logprob.double().requires_grad_()
    for aggregation in AGGREGATIONS:
        rule = replace(made.rule, aggregation=aggregation)
        rest = (made.old_logprob, made.advantages, made.mask, made.ref_logprob, rule)
        assert torch.autograd.gradcheck(
            lambda value, rest=rest: reference.forward(value, *rest)[0], (leaf,), eps=1e-7
        )


def test_prepared_inputs_depend_on_the_seed_alone_and_hold_every_edge() -> None:
    axes = {"sequence_length": 40}
    made = []
    for seed in (1, 1, 2):
        tensors = {
            "mask_ptr": torch.empty(82, 40, dtype=torch.uint8),
            "partial_ptr": torch.ones(82, 3, dtype=torch.float64),
            "totals_ptr": torch.empty(3, dtype=torch.float64),
            "dloss_ptr": torch.empty(()),
        }
        reference.prepare_backward(tensors, axes, seed)
        assert torch.equal(
            tensors["partial_ptr"][:, 2], (tensors["mask_ptr"] != 0).sum(-1).double()
        )
        made.append(tensors["mask_ptr"])
        reference.prepare_forward(tensors, axes, seed)
        assert torch.equal(made[-1], tensors["mask_ptr"])
        reference.prepare_fold(tensors, axes, seed)
        assert 0 <= int(tensors["partial_ptr"][:, 2].min()) < 40
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])
    assert not made[0].any(dim=1).all()
    assert (made[0] != 0).float().mean() > 0.5


def test_registered_operators_pass_opcheck() -> None:
    made = case(3, 20, "cpu", per_token=True)
    leaf = made.logprob.requires_grad_()
    rest = (made.old_logprob, made.advantages, made.mask)
    choices = (0.2, 0.28, 0.25, 1, 1)
    torch.library.opcheck(
        torch.ops.rltune.grpo_loss.default, (leaf, *rest, leaf.detach(), *choices)
    )
    bare = (leaf.detach().bfloat16(), *rest, None, 0.2, 0.2, 0.0, 2, 7)
    torch.library.opcheck(torch.ops.rltune.grpo_loss.default, bare)
    kept = (torch.ones(3, 3, dtype=torch.float64), torch.ones(3, dtype=torch.float64))
    arguments = (torch.ones(()), leaf.detach(), *rest, None, *kept, *choices)
    torch.library.opcheck(torch.ops.rltune.grpo_loss_backward.default, arguments)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_call_is_one_graph(backend: str) -> None:
    for made in (case(3, 40, "cpu"), case(3, 40, "cpu", per_token=True, aggregation="constant")):
        grpo_loss_checks.check_compiled(made, backend)
    bare = replace(made, ref_logprob=None, rule=replace(made.rule, beta=0.0))
    grpo_loss_checks.check_compiled(bare, backend)


L, A, M = torch.zeros(2, 3), torch.ones(2), torch.ones(2, 3, dtype=torch.bool)
GRAD = torch.zeros(2, 3, requires_grad=True)
LONG = torch.empty(1, 2**23 + 1, device="meta")
MANY = torch.empty(2**31, 1, device="meta")


@pytest.mark.parametrize(
    ("arguments", "options", "named"),
    [
        (([0.0], L, A, M), {}, r"logprob: expected a tensor \[num_sequences, sequence_length\]"),
        ((L.long(), L, A, M), {}, "logprob: expected element type"),
        ((L[0], L, A, M), {}, r"logprob: expected shape .*, got \(3,\)"),
        ((LONG, LONG, LONG, LONG > 0), {}, "at most 8388608 tokens, got 8388609"),
        ((MANY, MANY, MANY, MANY > 0), {}, "at most 2147483647 sequences"),
        ((L, None, A, M), {}, "old_logprob: expected a tensor"),
        ((L, L[:1], A, M), {}, r"old_logprob: .* of \(2, 3\), got \(1, 3\)"),
        ((L, L.double(), A, M), {}, "old_logprob: expected element type"),
        ((L, L.to("meta"), A, M), {}, "old_logprob: expected device cpu"),
        ((L, GRAD, A, M), {}, "old_logprob: expected a tensor without requires_grad"),
        ((L, L, torch.ones(3), M), {}, r"advantages: .* of \(2,\) or \(2, 3\), got \(3,\)"),
        ((L, L, GRAD, M), {}, "advantages: expected a tensor without requires_grad"),
        ((L, L, A, L), {}, "mask: expected element type torch.bool"),
        ((L, L, A, M[:, :2]), {}, r"mask: .* of \(2, 3\), got \(2, 2\)"),
        ((L, L, A, None), {}, "mask: expected a tensor"),
        ((L, L, A, M), {"ref_logprob": L[:1]}, r"ref_logprob: .* of \(2, 3\), got \(1, 3\)"),
        ((L, L, A, M), {"ref_logprob": GRAD}, "ref_logprob: expected a tensor without requires"),
        (
            (L, L, A, M),
            {"beta": 0.1},
            "ref_logprob: expected a tensor where beta is not 0, got None",
        ),
        ((L, L, A, M), {"ref_logprob": L, "beta": -0.1}, "beta: expected a finite number of at"),
        ((L, L, A, M), {"clip_low": 1.5}, "clip_low: expected a number from 0 to 1, got 1.5"),
        ((L, L, A, M), {"clip_low": NAN}, "clip_low: expected a number from 0 to 1, got nan"),
        ((L, L, A, M), {"clip_high": -0.1}, "clip_high: expected a finite number of at least 0"),
        ((L, L, A, M), {"clip_high": INF}, "clip_high: expected a finite number of at least 0"),
        (
            (L, L, A, M),
            {"aggregation": "mean"},
            "aggregation: expected token_mean or sequence_mean or constant, got mean",
        ),
        (
            (L, L, A, M),
            {"aggregation": "constant"},
            "max_length: expected an integer where .* None",
        ),
        ((L, L, A, M), {"aggregation": "constant", "max_length": 0}, "1 to 2147483647, got 0"),
        ((L, L, A, M), {"aggregation": "constant", "max_length": True}, "an integer .* got True"),
    ],
)
def test_unfit_arguments_are_refused_by_name(arguments: Any, options: Any, named: str) -> None:
    with pytest.raises(OperatorArgumentError, match=named):
        grpo_loss(*arguments, **options)
