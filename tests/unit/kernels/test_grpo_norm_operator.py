"""grpo_norm in the interpreter: accuracy, what is left out, groups alone, order, registration."""

from itertools import chain
from typing import Any

import pytest
import torch

from rltune.errors import OperatorArgumentError
from rltune_kernels.grpo_norm import grpo_norm, reference
from tests.unit.kernels import checks, grpo_checks
from tests.unit.kernels.grpo_checks import INF, NAN

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="runs in the interpreter, without a CUDA device"
)
every_dtype = pytest.mark.parametrize("dtype", checks.DTYPES, ids=str)


@every_dtype
@pytest.mark.parametrize("group_size", [2, 3, 8, 65, 300])
def test_advantages_agree_with_exact_ones(dtype: torch.dtype, group_size: int) -> None:
    grpo_checks.check_norm_accuracy(3, group_size, dtype, "cpu")


def test_nearly_equal_rewards_keep_their_advantages() -> None:
    """A variance floor of 1e-6 makes 0.0050 of 0.6196 (verl issue 6348)."""
    rewards = torch.tensor([1.00000, 1.00001, 2.00000, 2.00001])
    got = grpo_norm(rewards, group_size=2)
    assert torch.allclose(got, torch.tensor([-0.6196, 0.6196] * 2), atol=1e-4)
    assert grpo_checks.norm_error(got.view(2, 2), rewards.view(2, 2)) <= checks.HALF_ULP


def test_an_offset_costs_no_accuracy() -> None:
    grpo_checks.check_norm_accuracy(3, 16, torch.float32, "cpu", offset=1e4)
    near = torch.tensor([0.0, 1.0, 2.0, 5.0]) * 2.0**-10  # as exact beside 1e4 as beside 0
    shifted = grpo_norm(near + 1e4, group_size=4)
    assert torch.allclose(shifted, grpo_norm(near, group_size=4), rtol=1e-7, atol=0)


@pytest.mark.parametrize("eps", [1e-6, 0.0])
@pytest.mark.parametrize("value", [0.1, 1e4, -3.3e38, 1e-45, -0.0])
def test_equal_rewards_have_no_advantage(value: float, eps: float) -> None:
    for size in (2, 3, 7, 300):
        for scale_by_std in (True, False):
            rewards = torch.full((size,), value)
            got = grpo_norm(rewards, group_size=size, eps=eps, scale_by_std=scale_by_std)
            assert not any(checks.raw(got))


@pytest.mark.parametrize("eps", [1e-6, 0.0])
def test_a_group_of_one_has_no_advantage(eps: float) -> None:
    rewards = torch.tensor([3.0, -1e38, 0.1])
    assert not any(checks.raw(grpo_norm(rewards, group_size=1, eps=eps)))


def test_eps_is_added_to_the_deviation() -> None:
    rewards = torch.tensor([[-1.0, 1.0, 0.0]])
    for eps in (0.0, 0.5, 1e-4):
        got = grpo_norm(rewards, group_size=3, eps=eps)
        assert got[0, 1] == torch.tensor(1.0 / (1.0 + grpo_checks.single(eps)))
        assert grpo_checks.norm_error(got, rewards, eps) <= checks.HALF_ULP


@pytest.mark.parametrize("group_size", [8, 130])
def test_what_is_left_out_changes_no_sibling(group_size: int) -> None:
    grpo_checks.check_left_out(group_size, "cpu")


def test_unscorable_rewards_neither_bias_nor_poison_their_siblings() -> None:
    """A group of eight with NaN rewards (TRL issue 5902)."""
    rewards = torch.tensor([[1.0, NAN, 2.0, NAN, 3.0, NAN, NAN, 4.0]])
    got = grpo_norm(rewards, group_size=8)
    assert got.isfinite().all()
    left = ~rewards.isnan()
    assert torch.equal(got[left], grpo_norm(rewards[left], group_size=4))
    assert not got[~left].any()


@pytest.mark.parametrize("scored", [0, 1])
def test_one_scorable_reward_of_eight_is_a_group_of_one(scored: int) -> None:
    rewards = torch.full((8,), NAN)
    rewards[3 : 3 + scored] = 5.0
    for scale_by_std in (True, False):
        got = grpo_norm(rewards, group_size=8, scale_by_std=scale_by_std)
        assert not any(checks.raw(got))
        masked = grpo_norm(rewards.nan_to_num(7.0), group_size=8, mask=~rewards.isnan())
        assert not any(checks.raw(masked))


@pytest.mark.parametrize("value", [INF, -INF])
def test_an_infinite_reward_spoils_its_own_group_alone(value: float) -> None:
    rewards = torch.tensor([[1.0, 2.0, 3.0], [1.0, value, NAN], [1.0, 2.0, 4.0]])
    for scale_by_std in (True, False):
        got = grpo_norm(rewards, group_size=3, scale_by_std=scale_by_std)
        assert got[1, :2].isnan().all()
        assert not any(checks.raw(got[1, 2:]))
        assert got[[0, 2]].isfinite().all()


def test_a_group_is_as_if_alone() -> None:
    grpo_checks.check_groups_are_alone(grpo_checks.MIXED_SIZES, "cpu")


def test_neighbours_change_no_byte() -> None:
    grpo_checks.check_neighbours("cpu")


@pytest.mark.parametrize("sizes", [(3, *[8] * 40), (3, *[64] * 20), (1, 1024, 2, 7, 999)])
def test_sums_are_folds_of_lanes(sizes: tuple[int, ...]) -> None:
    grpo_checks.check_norm_order(sizes, "cpu")
    grpo_checks.check_norm_candidates(sizes, "cpu")


def test_layouts_change_no_byte() -> None:
    grpo_checks.check_norm_layouts("cpu")


def test_element_types_are_widened_exactly() -> None:
    for dtype in (torch.bfloat16, torch.float16):
        rewards = torch.randn(4, 6).to(dtype)
        got = grpo_norm(rewards, group_size=6)
        assert checks.raw(got) == checks.raw(grpo_norm(rewards.float(), group_size=6))


def test_offsets_are_clipped_and_rewards_in_no_group_get_zero() -> None:
    rewards = torch.tensor([1.0, 2.0, 3.0, 5.0, 8.0])
    offsets = torch.tensor([-(2**63), 2, 3, 2**63 - 1])
    got = grpo_norm(rewards, group_offsets=offsets)
    assert torch.equal(got, grpo_norm(rewards, group_offsets=torch.tensor([0, 2, 3, 5])))
    got = grpo_norm(rewards, group_offsets=torch.tensor([1, 3]))
    assert not any(checks.raw(got[[0, 3, 4]]))
    assert got[1:3].all()


@pytest.mark.parametrize("shape", [(0,), (0, 4), (3, 0, 4)])
def test_no_rewards_give_no_advantages(shape: tuple[int, ...]) -> None:
    got = grpo_norm(torch.empty(shape, dtype=torch.bfloat16), group_size=4)
    assert got.shape == shape
    assert got.dtype == torch.float32


def test_no_groups_give_zeros() -> None:
    got = grpo_norm(torch.ones(3), group_offsets=torch.zeros(1, dtype=torch.int64))
    assert not any(checks.raw(got))
    assert grpo_norm(torch.ones(0), group_offsets=torch.zeros(4, dtype=torch.int64)).shape == (0,)


def test_reference_agrees_with_exact_advantages() -> None:
    rewards, offsets = grpo_checks.ragged((3, 1, 0, 9), "cpu")
    rewards[4] = NAN
    mask = torch.ones(13)
    mask[6] = 0
    got = reference.forward(rewards, offsets, mask, 1e-6)
    values = rewards.masked_fill(mask == 0, NAN).tolist()
    exact = [grpo_checks.exact_advantages(values[a:b]) for a, b in ((0, 3), (3, 4), (4, 13))]
    expected = torch.tensor([*chain(*exact)], dtype=torch.float64)
    assert torch.allclose(got, expected, rtol=1e-12, atol=0)


def test_prepared_groups_hold_every_edge_and_depend_on_the_seed_alone() -> None:
    made = []
    for seed in (1, 1, 2):
        offsets = torch.empty(81, dtype=torch.int64)
        mask = torch.empty(80 * 16, dtype=torch.uint8)
        tensors = {"offsets_ptr": offsets, "mask_ptr": mask}
        reference.prepare(tensors, {"num_groups": 80, "group_bucket": 16}, seed)
        made.append((offsets, mask))
    assert torch.equal(made[0][1], made[1][1])
    assert torch.equal(made[0][0], made[1][0])
    assert not torch.equal(made[0][1], made[2][1])
    assert set(made[0][0].diff().tolist()) == {0, 1, 2, 3, 15, 16}
    assert 0 <= int(made[0][0][0]) <= int(made[0][0][-1]) <= 80 * 16
    assert 0.05 < float((made[0][1] == 0).float().mean()) < 0.2


def test_registered_operator_passes_opcheck() -> None:
    rewards, offsets = grpo_checks.ragged((3, 1, 4), "cpu")
    operator = torch.ops.rltune.grpo_norm.default
    torch.library.opcheck(operator, (rewards, offsets, rewards > 0, 0, 1e-6, True))
    torch.library.opcheck(operator, (rewards.view(2, 4).bfloat16(), None, None, 4, 1e-6, False))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_call_is_one_graph(backend: str) -> None:
    grpo_checks.check_norm_compiled("cpu", backend)


SIX, TWO_BY_THREE, OFFSETS = torch.ones(6), torch.ones(2, 3), torch.tensor([0, 2, 6])


@pytest.mark.parametrize(
    ("rewards", "options", "named"),
    [
        ([1.0], {"group_size": 1}, "rewards: expected a tensor"),
        (SIX.long(), {"group_size": 3}, "rewards: expected element type"),
        (torch.tensor(1.0), {"group_size": 1}, "rewards: expected shape .*, got a scalar"),
        (torch.ones(6, requires_grad=True), {"group_size": 3}, "without requires_grad"),
        (SIX, {}, "either it or group_offsets, got neither"),
        (SIX, {"group_size": 3, "group_offsets": OFFSETS}, "group_offsets, got both"),
        (SIX, {"group_size": 0}, "group_size: expected a positive integer, got 0"),
        (SIX, {"group_size": True}, "group_size: expected a positive integer, got True"),
        (SIX, {"group_size": 2.0}, "group_size: expected a positive integer, got 2.0"),
        (SIX, {"group_size": 4}, "a multiple of group_size 4, got 6 rewards"),
        (TWO_BY_THREE, {"group_size": 2}, r"with group_size 2, got \(2, 3\)"),
        (
            torch.empty(2**31, 1, device="meta"),
            {"group_size": 1},
            "at most 2147483647 groups, got 2147483648",
        ),
        (SIX, {"group_offsets": [0, 6]}, r"group_offsets: expected a tensor \[num_groups"),
        (SIX, {"group_offsets": OFFSETS.float()}, "group_offsets: expected element type"),
        (SIX, {"group_offsets": OFFSETS[:0]}, r"group_offsets: expected shape \[num_groups \+ 1\]"),
        (
            SIX,
            {"group_offsets": OFFSETS[None]},
            r"expected shape \[num_groups \+ 1\], got \(1, 3\)",
        ),
        (SIX, {"group_offsets": OFFSETS.to("meta")}, "group_offsets: expected device cpu"),
        (TWO_BY_THREE, {"group_offsets": OFFSETS}, r"\[num_rewards\] beside group_offsets"),
        (SIX, {"group_size": 3, "mask": [1] * 6}, "mask: expected a tensor"),
        (SIX, {"group_size": 3, "mask": SIX}, "mask: expected element type torch.bool"),
        (SIX, {"group_size": 3, "mask": SIX[:5] > 0}, r"mask: .* of \(6,\), got \(5,\)"),
        (SIX, {"group_size": 3, "mask": (SIX > 0).to("meta")}, "mask: expected device cpu"),
        (SIX, {"group_size": 3, "eps": -1e-6}, "eps: expected a finite number of at least 0"),
        (SIX, {"group_size": 3, "eps": 1e300}, "eps: expected a finite number of at least 0"),
        (SIX, {"group_size": 3, "eps": NAN}, "eps: expected a finite number of at least 0"),
    ],
)
def test_unfit_arguments_are_refused_by_name(rewards: Any, options: Any, named: str) -> None:
    with pytest.raises(OperatorArgumentError, match=named):
        grpo_norm(rewards, **options)
