"""The fixed launch of rope on a GPU: accuracy, its fused product, positions, layouts, capture."""

from dataclasses import replace

import pytest
import torch

from rltune.core.launch import LaunchConfig
from rltune.core.operator import KernelSpec
from rltune.runtime.launcher import launch_with
from rltune_kernels.rope import rope
from rltune_kernels.rope.spec import BACKWARD, FORWARD
from tests.gpu.common import DEVICE, every_dtype
from tests.unit.kernels import checks, rope_checks
from tests.unit.kernels.rope_checks import case

every_width = pytest.mark.parametrize(
    ("head_dim", "rotary_dim"), [(128, 128), (128, 96), (256, 192), (10, 6), (2, 2)]
)


def witness(
    kernel: KernelSpec, axes: dict[str, int], made: rope_checks.Case, config: LaunchConfig
) -> torch.Tensor:
    """Unrounded results of made.x [num_tokens, heads, head_dim], q's heads and then k's."""
    heads = [axes["num_heads"], axes["num_key_heads"]]
    pair = [item.contiguous() for item in made.x.split(heads, dim=1)]
    out = [torch.full(item.shape, float("nan"), device=DEVICE) for item in pair]
    counts = (made.x.shape[0], made.positions.shape[0], made.cos.shape[0])
    names = ("num_tokens", "num_positions", "max_positions")
    sizes = axes | dict(zip(names, counts, strict=True))
    arguments = (*pair, made.positions, made.cos, made.sin, *out, *counts)
    launch_with(kernel.witness(), sizes, "bf16", arguments, config, None)
    return torch.cat(out, dim=1)


@every_dtype
@every_width
def test_agrees_with_fp64(dtype: torch.dtype, head_dim: int, rotary_dim: int) -> None:
    for shape in ((1, 1), (1, 2, 3), (63, 8), (2, 2049, 8)):
        made = case((*shape, head_dim), rotary_dim, dtype, DEVICE, max_positions=4096)
        rope_checks.check_accuracy(made)
        rope_checks.check_norms(made)
        rope_checks.check_backward_is_the_inverse(made)


@pytest.mark.parametrize("kernel", [FORWARD, BACKWARD], ids=lambda kernel: kernel.name)
def test_the_product_with_cos_is_the_fused_one(kernel: KernelSpec) -> None:
    """Exact products in fp64 tell the stated form from any other fusion."""
    made = case((257, 4, 128), 128, torch.bfloat16, DEVICE)
    axes = {"num_heads": 3, "num_key_heads": 1, "head_dim": 128, "rotary_dim": 128}
    y = witness(kernel, axes, made, kernel.baseline(kernel.shape_key("bf16", axes)))
    x1, x2 = made.x.float().split(64, dim=-1)
    sin = made.sin if kernel is FORWARD else -made.sin
    cos, sin = (item[made.positions][:, None] for item in (made.cos, sin))
    first = x1.double() * cos.double() - (x2 * sin).double()
    second = x2.double() * cos.double() + (x1 * sin).double()
    assert checks.raw(y) == checks.raw(torch.cat((first, second), dim=-1).float())


@pytest.mark.parametrize("kernel", [FORWARD, BACKWARD], ids=lambda kernel: kernel.name)
@pytest.mark.parametrize(
    ("num_heads", "num_key_heads", "head_dim", "rotary_dim"),
    [(32, 8, 128, 128), (8, 2, 128, 96), (3, 3, 256, 192)],
)
def test_candidates_give_the_bytes_of_the_fixed_launch(
    kernel: KernelSpec, num_heads: int, num_key_heads: int, head_dim: int, rotary_dim: int
) -> None:
    """In fp32 outputs of bf16 inputs, where no rounding hides a difference."""
    axes = {"num_heads": num_heads, "num_key_heads": num_key_heads}
    axes |= {"head_dim": head_dim, "rotary_dim": rotary_dim}
    key = kernel.shape_key("bf16", axes)
    made = case((257, num_heads + num_key_heads, head_dim), rotary_dim, torch.bfloat16, DEVICE)
    fixed = checks.raw(witness(kernel, axes, made, kernel.baseline(key)))
    for config in kernel.candidates(key):
        assert checks.raw(witness(kernel, axes, made, config)) == fixed, config.candidate_id


@every_dtype
def test_bytes_are_repeatable(dtype: torch.dtype) -> None:
    made = case((515, 32, 128), 96, dtype, DEVICE)
    seen = {b"".join(checks.raw(item) for item in made.run()) for _ in range(20)}
    assert len(seen) == 1


@every_dtype
@every_width
def test_layouts_change_no_byte(dtype: torch.dtype, head_dim: int, rotary_dim: int) -> None:
    for shape in ((65, 3, head_dim), (2, 33, 3, head_dim)):
        made = case(shape, rotary_dim, dtype, DEVICE)
        rope_checks.check_layouts(made)
        rope_checks.check_expanded(made)


@every_dtype
@every_width
def test_tokens_do_not_depend_on_their_batch(
    dtype: torch.dtype, head_dim: int, rotary_dim: int
) -> None:
    rope_checks.check_batch_invariance(case((131, 5, head_dim), rotary_dim, dtype, DEVICE))


@every_dtype
def test_elements_beyond_the_rotary_dim_are_copied_bit_by_bit(dtype: torch.dtype) -> None:
    for head_dim, rotary_dim in ((128, 96), (256, 192), (129, 2)):
        rope_checks.check_rest_is_copied(case((65, 3, head_dim), rotary_dim, dtype, DEVICE))


@every_dtype
def test_positions_outside_the_caches_give_zeros(dtype: torch.dtype) -> None:
    rope_checks.check_outside_positions(case((65, 3, 128), 96, dtype, DEVICE))
    rope_checks.check_outside_positions(case((2, 33, 3, 128), 128, dtype, DEVICE))


def test_a_million_positions_keep_their_angle() -> None:
    made = case((64, 4, 128), 128, torch.float32, DEVICE, max_positions=1_000_001)
    made = replace(made, positions=1_000_000 - made.positions)
    rope_checks.check_accuracy(made)
    rope_checks.check_norms(made)


def test_zero_tokens_give_an_empty_result() -> None:
    made = case((0, 4, 128), 128, torch.bfloat16, DEVICE)
    assert [item.shape for item in made.run()] == [(0, 4, 128)] * 2


@every_dtype
def test_graph_capture_gives_the_eager_bytes(dtype: torch.dtype) -> None:
    """Positions are data: a replay takes new ones as it takes a new x."""
    made = case((2, 33, 8, 128), 96, dtype, DEVICE)
    made.run()  # loads every program
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = made.run()
    for seed in (1, 2):
        fresh = case((2, 33, 8, 128), 96, dtype, DEVICE, seed=seed)
        fresh = replace(fresh, positions=fresh.positions.roll(seed), dy=made.dy)
        made.x.copy_(fresh.x)
        made.positions.copy_(fresh.positions)
        graph.replay()
        torch.cuda.synchronize()
        for got, expected in zip(captured, fresh.run(), strict=True):
            assert checks.raw(got) == checks.raw(expected)


def test_compiled_call_is_one_graph() -> None:
    rope_checks.check_compiled(case((2, 33, 8, 128), 96, torch.bfloat16, DEVICE), "aot_eager")


@pytest.mark.parametrize("num_tokens", [524288, 524289])
def test_offsets_are_64_bit(num_tokens: int) -> None:
    """2**31 elements and more: the bytes of the tokens run apart, forward and dx."""
    shape = (num_tokens, 32, 128)
    small = case((64, 32, 128), 128, torch.bfloat16, DEVICE)
    x = torch.randn(shape, device=DEVICE, dtype=torch.bfloat16)
    positions = torch.arange(num_tokens, device=DEVICE) % small.cos.shape[0]
    made = replace(small, x=x, dy=x, positions=positions)
    whole = made.run()
    for part in (slice(0, 16), slice(num_tokens - 16, num_tokens)):
        some = replace(made, x=x[part], dy=x[part], positions=positions[part])
        for got, expected in zip(some.run(), whole, strict=True):
            assert torch.equal(got.view(torch.int16), expected[part].view(torch.int16))


def test_offsets_into_the_caches_are_64_bit() -> None:
    rows = 2**31 // 64 + 1
    cos = torch.empty((rows, 64), device=DEVICE)
    cos[-1].fill_(0.5)
    x = torch.ones((2, 1, 128), device=DEVICE)
    y, _ = rope(x, x, torch.tensor([rows - 1, rows], device=DEVICE), cos, cos)
    assert y[0, 0, :64].eq(0.0).all()
    assert y[0, 0, 64:].eq(1.0).all()
    assert not y[1].any()
