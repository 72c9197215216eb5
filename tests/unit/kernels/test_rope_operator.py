"""RoPE in the interpreter: accuracy, partial rotation, positions, layouts, registration."""

from dataclasses import replace
from typing import Any, cast

import pytest
import torch

from rltune.errors import OperatorArgumentError
from rltune_kernels.rope import reference, rope
from tests.unit.kernels import checks, rope_checks
from tests.unit.kernels.rope_checks import case

pytestmark = pytest.mark.skipif(
    torch.cuda.is_available(), reason="runs in the interpreter, without a CUDA device"
)
every_dtype = pytest.mark.parametrize("dtype", checks.DTYPES, ids=str)
BF16, FP32 = torch.bfloat16, torch.float32
PARTIAL = [(128, 96), (256, 192)]


@every_dtype
@pytest.mark.parametrize(("head_dim", "rotary_dim"), PARTIAL)
def test_operator_agrees_with_fp64(dtype: torch.dtype, head_dim: int, rotary_dim: int) -> None:
    rope_checks.check_accuracy(case((3, 2, head_dim), rotary_dim, dtype, "cpu"))


@pytest.mark.parametrize(("head_dim", "rotary_dim"), [(128, 128), (10, 6), (7, 2), (2, 2)])
def test_any_widths_agree_with_fp64(head_dim: int, rotary_dim: int) -> None:
    rope_checks.check_accuracy(case((3, 2, head_dim), rotary_dim, BF16, "cpu"))


def test_positions_may_differ_by_batch() -> None:
    made = case((2, 5, 2, 32), 24, BF16, "cpu")
    for positions in (made.positions, torch.stack((made.positions, made.positions.flip(0) + 7))):
        rope_checks.check_accuracy(replace(made, positions=positions))


def test_packed_sequences_rotate_as_if_alone() -> None:
    made = case((6, 2, 32), 32, FP32, "cpu")
    made = replace(made, positions=torch.tensor([0, 1, 2, 0, 1, 0]))
    y = made.call(made.x)
    for part in (slice(0, 3), slice(3, 5), slice(5, 6)):
        length = part.stop - part.start
        alone = rope_checks.rotate(made.x[part], torch.arange(length), made.cos, made.sin)
        assert checks.raw(alone) == checks.raw(y[part])


def test_large_positions_keep_their_angle() -> None:
    made = case((6, 1, 16), 12, FP32, "cpu", max_positions=70_000)
    made = replace(made, positions=torch.tensor([69_999, 0, 65_535, 65_536, 69_998, 32_768]))
    rope_checks.check_accuracy(made)
    rope_checks.check_norms(made)


@pytest.mark.parametrize(("head_dim", "rotary_dim"), PARTIAL)
def test_pairs_keep_their_length(head_dim: int, rotary_dim: int) -> None:
    rope_checks.check_norms(case((3, 2, head_dim), rotary_dim, BF16, "cpu"))


@every_dtype
def test_elements_beyond_the_rotary_dim_are_copied_bit_by_bit(dtype: torch.dtype) -> None:
    rope_checks.check_rest_is_copied(case((3, 1, 128), 96, dtype, "cpu"))


@pytest.mark.parametrize("dtype", [BF16, FP32], ids=str)
def test_positions_outside_the_caches_give_zeros(dtype: torch.dtype) -> None:
    rope_checks.check_outside_positions(case((7, 1, 16), 12, dtype, "cpu"))


def test_caches_without_rows_give_zeros() -> None:
    x = torch.full((3, 2, 8), float("inf"))
    nothing = torch.empty(0, 3)
    y = rope_checks.rotate(x, torch.zeros(3, dtype=torch.int64), nothing, nothing)
    assert not any(checks.raw(y[..., :6]))
    assert torch.equal(y[..., 6:], x[..., 6:])


@pytest.mark.parametrize("shape", [(3, 2, 16), (2, 2, 1, 16)])
def test_layouts_change_no_byte(shape: tuple[int, ...]) -> None:
    rope_checks.check_layouts(case(shape, 12, BF16, "cpu"))


def test_expanded_inputs_are_copied() -> None:
    rope_checks.check_expanded(case((2, 3, 16), 12, BF16, "cpu"))


def test_tokens_do_not_depend_on_their_batch() -> None:
    rope_checks.check_batch_invariance(case((6, 1, 16), 12, BF16, "cpu"))


@every_dtype
def test_backward_of_forward_is_the_input(dtype: torch.dtype) -> None:
    rope_checks.check_backward_is_the_inverse(case((3, 1, 24), 16, dtype, "cpu"))


def test_gradient_is_the_forward_with_sin_negated() -> None:
    made = case((4, 2, 16), 12, BF16, "cpu")
    made.dy[0, 0, :6], made.dy[0, 1, 6:12] = 0.0, -0.0
    expected = rope_checks.rotate(made.dy, made.positions, made.cos, -made.sin)
    assert checks.raw(made.run()[1]) == checks.raw(expected)


def test_gradient_agrees_with_autograd_of_the_oracle() -> None:
    made = case((8, 1, 16), 12, FP32, "cpu")
    made = replace(made, positions=torch.tensor([0, 3, -1, 60, 61, 0, 1, 2]))
    leaf = made.x.double().requires_grad_()
    y = reference.forward(leaf, made.positions, made.cos, made.sin)
    (expected,) = torch.autograd.grad(y, leaf, made.dy.double())
    assert torch.allclose(made.run()[1].double(), expected, atol=1e-6)


@pytest.mark.parametrize("shape", [(0, 2, 8), (3, 0, 2, 8), (0, 3, 2, 8)])
def test_empty_inputs_give_empty_results(shape: tuple[int, ...]) -> None:
    cos, sin = reference.caches(4, 3, "cpu")
    q, k = (torch.empty(shape, dtype=BF16, requires_grad=True) for _ in range(2))
    for y in rope(q, k, torch.zeros(shape[-3], dtype=torch.int64), cos, sin):
        assert y.shape == shape
        assert y.dtype == BF16
        y.sum().backward(retain_graph=True)
    assert q.grad is not None
    assert k.grad is not None
    assert q.grad.shape == k.grad.shape == shape


def test_keys_without_heads_leave_the_queries_as_they_are_with_some() -> None:
    made = case((3, 2, 16), 12, FP32, "cpu")
    rest = (made.positions, made.cos, made.sin)
    leaf = made.x.clone().requires_grad_()
    alone, none = rope(leaf, made.x[:, :0], *rest)
    assert none.shape == (3, 0, 16)
    assert checks.raw(alone) == checks.raw(rope(made.x, made.x, *rest)[0])
    (dx,) = torch.autograd.grad(alone, leaf, made.dy)
    assert checks.raw(dx) == checks.raw(made.run()[1])


def test_gradient_of_one_result_leaves_the_other_zero() -> None:
    made = case((3, 2, 16), 12, FP32, "cpu")
    q, k = (made.x.clone().requires_grad_() for _ in range(2))
    out = rope(q, k, made.positions, made.cos, made.sin)[1]
    dq, dk = torch.autograd.grad(out, (q, k), made.dy)
    assert not dq.any()
    assert checks.raw(dk) == checks.raw(made.run()[1])


def test_registered_operators_pass_opcheck() -> None:
    made = case((1, 2, 2, 8), 6, FP32, "cpu")
    rest = (made.positions, made.cos, made.sin)
    operators = torch.ops.rltune
    pair = made.x.requires_grad_(), made.dy[..., :1, :]
    torch.library.opcheck(operators.rope.default, (*pair, *rest))
    torch.library.opcheck(operators.rope_backward.default, (made.dy, made.dy[..., :1, :], *rest))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_call_is_one_graph(backend: str) -> None:
    rope_checks.check_compiled(case((2, 2, 1, 16), 12, BF16, "cpu"), backend)


def test_prepared_positions_hold_every_edge_and_depend_on_the_seed_alone() -> None:
    axes = {"max_positions": 50, "num_pairs": 3}
    made = []
    for seed in (1, 1, 2):
        tensors = {
            "positions_ptr": torch.empty(2000, dtype=torch.int64),
            "cos_ptr": torch.empty(50, 3),
            "sin_ptr": torch.empty(50, 3),
        }
        reference.prepare(tensors, axes, seed)
        made.append(tensors["positions_ptr"])
    assert torch.equal(made[0], made[1])
    assert not torch.equal(made[0], made[2])
    assert {-1, 50, 0, 1, 49, -(2**63), 2**63 - 1} <= set(made[0].tolist())
    assert torch.allclose(tensors["cos_ptr"] ** 2 + tensors["sin_ptr"] ** 2, torch.ones(50, 3))


def cache(columns: int, **options: Any) -> torch.Tensor:
    return torch.ones(5, columns, **options)


Q, K, POSITIONS = torch.ones(2, 3, 4, 8), torch.ones(2, 3, 1, 8), torch.arange(3)
C4 = cache(4)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((torch.ones(3, 8), K, POSITIONS, C4, C4), r"q: expected shape \[\.\.\., seq"),
        ((Q.long(), K, POSITIONS, C4, C4), "q: expected element type"),
        ((Q[:, :, :0], K, POSITIONS, C4, C4), "q: expected at least one head"),
        ((torch.ones(1, 1, 4098), K, POSITIONS[:1], C4, C4), "head_dim up to 4096"),
        ((Q, None, POSITIONS, C4, C4), r"k: expected a tensor \[\.\.\., seq"),
        ((Q, K[0], POSITIONS, C4, C4), r"k: .* of \(2, 3, 'heads', 8\), got \(3, 1, 8\)"),
        ((Q, K[..., :6], POSITIONS, C4, C4), r"k: .* of \(2, 3, 1, 8\), got \(2, 3, 1, 6\)"),
        ((Q, K.half(), POSITIONS, C4, C4), "k: expected element type torch.float32"),
        ((Q, K.to("meta"), POSITIONS, C4, C4), "k: expected device cpu"),
        ((Q, K, POSITIONS, cache(5), cache(5)), "from 2 to head_dim 8, got rotary_dim 10"),
        ((Q, K, POSITIONS, cache(0), cache(0)), "got rotary_dim 0"),
        ((Q, K, POSITIONS, C4.half(), C4), "cos: expected element type torch.float32"),
        ((Q, K, POSITIONS, C4[0], C4), r"cos: expected shape \[max_positions"),
        ((Q, K, POSITIONS, C4, cache(3)), r"sin: expected .* of \(5, 4\), got \(5, 3\)"),
        ((Q, K, POSITIONS, C4, C4.half()), "sin: expected element type torch.float32"),
        ((Q, K, POSITIONS, C4.to("meta"), C4), "cos: expected device cpu"),
        ((Q, K, POSITIONS, cache(4, requires_grad=True), C4), "cos: .* without requires_grad"),
        ((Q, K, POSITIONS, C4, cache(4, requires_grad=True)), "sin: .* without requires_grad"),
        ((Q, K, POSITIONS.float(), C4, C4), "positions: expected element type"),
        ((Q, K, [0, 1, 2], C4, C4), "positions: expected a tensor"),
        ((Q, K, torch.arange(2), C4, C4), r"\[seq\] of \(3,\) or \(2, 3\), got \(2,\)"),
        ((Q[0], K[0], torch.arange(4), C4, C4), r"shape \[seq\] of \(3,\), got \(4,\)"),
        ((Q, K, POSITIONS.to("meta"), C4, C4), "positions: expected device cpu"),
        (
            (*[torch.empty(2**30, 1, 1, device="meta")] * 2, POSITIONS, C4, C4),
            "at most 2147483647 heads",
        ),
    ],
)
def test_unfit_arguments_are_refused_by_name(arguments: Any, named: str) -> None:
    with pytest.raises(OperatorArgumentError, match=named):
        rope(*cast("tuple[Any, Any, Any, Any, Any]", arguments))
