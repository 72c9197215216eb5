"""The fixed launches of grpo_norm and grpo_loss on a GPU, at full sizes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from rltune_kernels.grpo_loss import grpo_loss
from rltune_kernels.grpo_loss.spec import AGGREGATIONS
from rltune_kernels.grpo_norm import grpo_norm, reference
from tests.gpu.common import DEVICE, every_dtype
from tests.unit.kernels import checks, grpo_checks, grpo_loss_checks
from tests.unit.kernels.grpo_checks import INF, MIXED_SIZES, NAN
from tests.unit.kernels.grpo_loss_checks import case

every_aggregation = pytest.mark.parametrize("aggregation", AGGREGATIONS)
Tensors = tuple[torch.Tensor, ...]


@every_dtype
@pytest.mark.parametrize("group_size", [2, 3, 8, 65, 300, 1024])
def test_advantages_agree_with_exact_ones(dtype: torch.dtype, group_size: int) -> None:
    grpo_checks.check_norm_accuracy(20, group_size, dtype, DEVICE)
    if dtype == torch.float32:
        grpo_checks.check_norm_accuracy(20, group_size, dtype, DEVICE, offset=1e4)


@pytest.mark.parametrize("group_size", [8, 1024])
def test_many_groups_agree_with_fp64(group_size: int) -> None:
    rewards = torch.randn((1024, group_size), device=DEVICE)
    mask = torch.rand((1024, group_size), device=DEVICE) < 0.9
    offsets = torch.arange(0, rewards.numel() + 1, group_size)
    expected = reference.forward(rewards.view(-1), offsets, mask.view(-1), 1e-6)
    got = grpo_norm(rewards, group_size=group_size, mask=mask)
    scale = torch.full_like(expected, 2.0**-20)  # where the mean cancels nearly all
    assert checks.ulp_error(got.view(-1), expected, scale) <= checks.HALF_ULP


def test_a_group_is_as_if_alone() -> None:
    grpo_checks.check_groups_are_alone(MIXED_SIZES, DEVICE)
    grpo_checks.check_groups_are_alone((*MIXED_SIZES, 5000) * 9, DEVICE)
    grpo_checks.check_neighbours(DEVICE)


@pytest.mark.parametrize("group_size", [8, 130, 1024])
def test_what_is_left_out_changes_no_sibling(group_size: int) -> None:
    grpo_checks.check_left_out(group_size, DEVICE)


def test_edges_of_a_group() -> None:
    near = torch.tensor([1.00000, 1.00001, 2.00000, 2.00001], device=DEVICE)
    got = grpo_norm(near, group_size=2).cpu()
    assert torch.allclose(got, torch.tensor([-0.6196, 0.6196] * 2), atol=1e-4)
    for value in (0.1, 1e4, -3.3e38, 1e-45, -0.0):
        for size, eps in ((1, 1e-6), (7, 1e-6), (7, 0.0), (1024, 0.0)):
            equal = torch.full((size,), value, device=DEVICE)
            assert not any(checks.raw(grpo_norm(equal, group_size=size, eps=eps)))
    scored = torch.tensor([NAN] * 7 + [5.0], device=DEVICE)
    assert not any(checks.raw(grpo_norm(scored, group_size=8)))
    rewards = torch.tensor([1.0, 2.0, 1.0, INF, 1.0, 4.0], device=DEVICE)
    got = grpo_norm(rewards, group_size=2)
    assert got[2:4].isnan().all()
    assert got[[0, 1, 4, 5]].isfinite().all()


@pytest.mark.parametrize("sizes", [(3, *[8] * 40), (3, *[64] * 20), (1, 1024, 2, 7, 999)])
def test_advantages_add_in_the_stated_order(sizes: tuple[int, ...]) -> None:
    grpo_checks.check_norm_order(sizes, DEVICE)
    grpo_checks.check_norm_candidates(sizes, DEVICE)


def test_layouts_of_rewards_change_no_byte() -> None:
    grpo_checks.check_norm_layouts(DEVICE)


def test_results_and_gradient_agree_with_fp64() -> None:
    for made in grpo_loss_checks.cases(65, 2049, DEVICE):
        grpo_loss_checks.check_accuracy(made)


@every_dtype
@every_aggregation
def test_full_size_agrees_with_fp64(dtype: torch.dtype, aggregation: str) -> None:
    made = case(1024, 8192, DEVICE, dtype=dtype, aggregation=aggregation)
    grpo_loss_checks.check_accuracy(made)


@every_aggregation
@pytest.mark.parametrize("per_token", [False, True])
def test_masked_tokens_and_padding_change_no_byte(aggregation: str, per_token: bool) -> None:
    made = case(65, 1500, DEVICE, aggregation=aggregation, per_token=per_token)
    grpo_loss_checks.check_masked_tokens_are_unread(made)
    grpo_loss_checks.check_padding(made)


def test_edges_of_a_token() -> None:
    grpo_loss_checks.check_ties(DEVICE)
    grpo_loss_checks.check_near_policies(DEVICE)
    grpo_loss_checks.check_infinite_ratio(DEVICE)
    for gap in (1000.0, 1e30, -INF):
        grpo_loss_checks.check_far_policies(gap, DEVICE)
    for name in ("logprob", "old_logprob", "advantages", "ref_logprob"):
        grpo_loss_checks.check_nan(name, DEVICE)


@every_aggregation
def test_no_token_at_all_gives_zeros(aggregation: str) -> None:
    made = case(300, 200, DEVICE, aggregation=aggregation)
    made = replace(made, mask=torch.zeros_like(made.mask), logprob=made.logprob * NAN)
    for dloss in (1.0, NAN, -INF):
        assert not any(any(item) for item in replace(made, dloss=dloss).raw())


@pytest.mark.parametrize("per_token", [False, True])
def test_sequences_are_as_if_alone(per_token: bool) -> None:
    grpo_loss_checks.check_sequences_are_alone(case(33, 2049, DEVICE, per_token=per_token))


def test_losses_add_in_the_stated_order() -> None:
    grpo_loss_checks.check_order(1031, 1000, DEVICE)
    for length in (100, 1000, 8192):
        grpo_loss_checks.check_candidates(300, length, DEVICE)


def test_layouts_of_tokens_change_no_byte() -> None:
    grpo_loss_checks.check_layouts(case(65, 1031, DEVICE, per_token=True))


def test_bytes_are_repeatable() -> None:
    made = case(515, 4097, DEVICE)
    assert len({b"".join(made.raw()) for _ in range(20)}) == 1
    rewards, offsets = grpo_checks.ragged(MIXED_SIZES * 20, DEVICE)
    seen = {checks.raw(grpo_norm(rewards, group_offsets=offsets)) for _ in range(20)}
    assert len(seen) == 1


def replayed(step: Callable[[], Tensors], change: Callable[[], Any]) -> Tensors:
    """Results of a graph that was captured before its inputs changed."""
    step()  # loads every program
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    change()
    graph.replay()
    torch.cuda.synchronize()
    return captured


def test_graph_capture_gives_the_eager_bytes() -> None:
    made = case(33, 2049, DEVICE)
    fresh = case(33, 2049, DEVICE, seed=1)

    def change() -> None:
        for name in ("logprob", "old_logprob", "advantages", "mask", "ref_logprob"):
            getattr(made, name).copy_(getattr(fresh, name))

    captured = replayed(made.run, change)
    assert grpo_loss_checks.raw_all(captured) == fresh.raw()
    rewards, offsets = grpo_checks.ragged(MIXED_SIZES, DEVICE)

    def both() -> Tensors:
        fixed = grpo_norm(rewards[:1024], group_size=16)
        return fixed, grpo_norm(rewards, group_offsets=offsets, mask=rewards > -1)

    groups = replayed(both, lambda: rewards.copy_(rewards.flip(0).clone()))
    assert grpo_loss_checks.raw_all(groups) == grpo_loss_checks.raw_all(both())


def test_compiled_calls_are_one_graph() -> None:
    grpo_checks.check_norm_compiled(DEVICE, "aot_eager")
    grpo_loss_checks.check_compiled(case(33, 257, DEVICE), "aot_eager")


def test_offsets_of_rewards_are_64_bit() -> None:
    size = 2**31 + 1024
    rewards = torch.randn(size, device=DEVICE, dtype=torch.bfloat16).float()
    whole = grpo_norm(rewards, group_size=1024)
    for part in (slice(0, 1024), slice(size - 4096, size)):
        assert checks.raw(grpo_norm(rewards[part], group_size=1024)) == checks.raw(whole[part])
    offsets = torch.tensor([size - 3000, size], device=DEVICE)
    tail = grpo_norm(rewards, group_offsets=offsets)[size - 3000 :]
    alone = torch.tensor([0, 3000], device=DEVICE)
    expected = grpo_norm(rewards[size - 3000 :], group_offsets=alone)
    assert checks.raw(tail) == checks.raw(expected)


def test_offsets_of_tokens_are_64_bit() -> None:
    sequences, length = 2**18 + 1, 8192
    logprob = torch.randn((sequences, length), device=DEVICE, dtype=torch.bfloat16)
    logprob = logprob.requires_grad_()
    old = torch.zeros((1, 1), device=DEVICE).expand(sequences, length).contiguous()
    mask = torch.zeros((sequences, length), device=DEVICE, dtype=torch.bool)
    mask[-2:] = True
    advantages = torch.linspace(-1, 1, sequences, device=DEVICE)
    loss, *_ = grpo_loss(logprob, old, advantages, mask)
    loss.backward()
    assert logprob.grad is not None
    own = logprob.detach()[-2:].clone().requires_grad_()
    alone, *_ = grpo_loss(own, old[-2:], advantages[-2:], mask[-2:])
    alone.backward()
    assert own.grad is not None
    # tokens of two sequences are added in one fold, wherever these lie
    assert torch.allclose(loss, alone, rtol=1e-6)
    assert torch.equal(logprob.grad[-2:].view(torch.int16), own.grad.view(torch.int16))
    assert not logprob.grad[:-2].any()
