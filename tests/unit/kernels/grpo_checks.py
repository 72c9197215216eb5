"""What grpo_norm and grpo_loss must do, written once for the interpreter's tests and the GPU's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise
from typing import Any

import torch

from rltune.core.launch import LaunchConfig
from rltune.runtime.launcher import launch_with
from rltune_kernels.grpo_norm import grpo_norm
from rltune_kernels.grpo_norm.candidates import group_bucket
from rltune_kernels.grpo_norm.spec import DEFAULT_EPS
from rltune_kernels.grpo_norm.spec import FORWARD as NORM
from tests.unit.kernels import checks

NAN, INF = float("nan"), float("inf")
MIXED_SIZES = (1, 1024, 2, 3, 0, 7, 129, 8, 128, 127, 300)


def single(value: float) -> float:
    """A number as fp32 holds it."""
    return float(torch.tensor(value, dtype=torch.float32))


def exact_advantages(
    values: Sequence[float], eps: float = DEFAULT_EPS, *, scale_by_std: bool = True
) -> list[float]:
    """Advantages of one group by rational arithmetic and a root of 60 digits; NaN is left out."""
    counted = [Fraction(value) for value in values if not math.isnan(value)]
    if len(counted) < 2:
        return [0.0] * len(values)
    mean = sum(counted, Fraction()) / len(counted)
    variance = sum(((value - mean) ** 2 for value in counted), Fraction()) / (len(counted) - 1)
    with localcontext() as context:
        context.prec = 60
        root = (Decimal(variance.numerator) / Decimal(variance.denominator)).sqrt()
        scale = Fraction(root) + Fraction(single(eps)) if scale_by_std else Fraction(1)
    return [
        0.0 if math.isnan(value) or not variance else float((Fraction(value) - mean) / scale)
        for value in values
    ]


def norm_error(
    got: torch.Tensor, rewards: torch.Tensor, eps: float = DEFAULT_EPS, *, scale_by_std: bool = True
) -> float:
    """Largest error of advantages [num_groups, group_size], in ulp as the declaration counts."""
    worst = 0.0
    for row, values in zip(got.cpu(), rewards.double().cpu(), strict=True):
        exact = exact_advantages(values.tolist(), eps, scale_by_std=scale_by_std)
        expected = torch.tensor(exact, dtype=torch.float64)
        centred = exact_advantages(values.tolist(), eps, scale_by_std=False)
        largest = max(map(abs, exact)) / max([*map(abs, centred), 1e-300])
        scale = values.nan_to_num().abs() * largest * 2.0**-24
        worst = max(worst, checks.ulp_error(row, expected, scale))
    return worst


def check_norm_accuracy(
    num_groups: int, group_size: int, dtype: torch.dtype, device: str, offset: float = 0.0
) -> None:
    """Advantages lie within half an ulp of the exact ones, scaled and not."""
    generator = torch.Generator(device).manual_seed(group_size)
    made = torch.randn((num_groups, group_size), generator=generator, device=device)
    rewards = (made + offset).to(dtype)
    for scale_by_std in (True, False):
        got = grpo_norm(rewards, group_size=group_size, scale_by_std=scale_by_std)
        assert got.dtype == torch.float32
        assert got.shape == rewards.shape
        assert norm_error(got, rewards, scale_by_std=scale_by_std) <= checks.HALF_ULP


def ragged(sizes: Sequence[int], device: str, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Random rewards of groups of these sizes, and their offsets."""
    generator = torch.Generator(device).manual_seed(seed)
    rewards = torch.randn(sum(sizes), generator=generator, device=device)
    offsets = torch.tensor([0, *sizes], device=device).cumsum(0)
    return rewards, offsets


def check_groups_are_alone(sizes: Sequence[int], device: str) -> None:
    """A group's bytes are those of a call with it alone, ragged and of fixed size."""
    rewards, offsets = ragged(sizes, device)
    mask = torch.arange(len(rewards), device=device) % 5 != 4  # two of any three in a row count
    for some in (None, mask):
        whole = grpo_norm(rewards, group_offsets=offsets, mask=some)
        for start, size in zip(offsets.tolist(), sizes, strict=False):
            part = slice(start, start + size)
            own = None if some is None else some[part]
            alone = torch.tensor([0, size], device=device)
            lone = grpo_norm(rewards[part], group_offsets=alone, mask=own)
            assert checks.raw(lone) == checks.raw(whole[part]), size
            if size:
                fixed = grpo_norm(rewards[part], group_size=size, mask=own)
                assert checks.raw(fixed) == checks.raw(whole[part]), size
                assert size < 3 or whole[part].any()


def check_neighbours(device: str) -> None:
    """What else a batch holds, and the place in it, changes no byte of a group."""
    rewards, offsets = ragged((8,) * 40, device)
    whole = grpo_norm(rewards, group_size=8)
    own = slice(8 * 17, 8 * 18)
    for content in (NAN, INF, -3e38, 0.0):
        other = torch.full_like(rewards, content)
        other[own] = rewards[own]
        got = grpo_norm(other, group_size=8)
        assert checks.raw(got[own]) == checks.raw(whole[own]), content
        got = grpo_norm(other, group_offsets=offsets)
        assert checks.raw(got[own]) == checks.raw(whole[own]), content
    for count in (1, 2, 3, 39):
        some = grpo_norm(rewards[: 8 * count], group_size=8)
        assert checks.raw(some) == checks.raw(whole[: 8 * count])
    swapped = grpo_norm(rewards.view(40, 8).flip(0), group_size=8)
    assert checks.raw(swapped) == checks.raw(whole.view(40, 8).flip(0))


def check_left_out(group_size: int, device: str) -> None:
    """A masked or NaN reward gets +0.0, and what it holds changes no byte of a sibling."""
    rewards, _ = ragged((group_size,) * 5, device)
    rewards = rewards.view(5, group_size)
    out = torch.zeros(5, group_size, dtype=torch.bool, device=device)
    for row, stride in enumerate((2, 3, 5, 7, group_size)):
        out[row, ::stride] = True
    expected = grpo_norm(rewards.masked_fill(out, NAN), group_size=group_size)
    assert norm_error(expected, rewards.masked_fill(out, NAN)) <= checks.HALF_ULP
    assert expected[~out].all()
    assert not any(checks.raw(expected[out]))
    for content in (NAN, INF, -INF, 1e38, 0.0):
        filled = rewards.masked_fill(out, content)
        for mask in (~out, (~out).to(torch.uint8) * 255, (~out).to(torch.int64) * 256):
            got = grpo_norm(filled, group_size=group_size, mask=mask)
            assert checks.raw(got) == checks.raw(expected), (content, mask.dtype)


def norm_witness(
    rewards: torch.Tensor,
    offsets: torch.Tensor,
    bucket: int,
    config: LaunchConfig | None = None,
    *,
    scale_by_std: bool = True,
) -> torch.Tensor:
    """Unrounded advantages [num_rewards] of ragged groups in one launch."""
    out = torch.full(rewards.shape, NAN, dtype=torch.float64, device=rewards.device)
    axes = {"num_groups": len(offsets) - 1, "group_bucket": bucket, "num_rewards": len(rewards)}
    key = NORM.shape_key("fp32", axes)
    numbers = (axes["num_groups"], len(rewards), 0, 0, int(scale_by_std), single(DEFAULT_EPS))
    arguments: tuple[Any, ...] = (rewards, rewards.view(torch.uint8), offsets, out, *numbers)
    launch_with(NORM.witness(), axes, "fp32", arguments, config or NORM.baseline(key), None)
    return out


def folded(values: torch.Tensor, lanes: int = 128) -> torch.Tensor:
    """The sum of fp64 ``values`` as the declaration orders it."""
    padded = torch.zeros(-(-len(values) // lanes) * lanes, dtype=torch.float64)
    padded[: len(values)] = values
    acc = torch.zeros(lanes, dtype=torch.float64)
    for step in padded.view(-1, lanes):
        acc = acc + step
    while len(acc) > 1:
        acc = acc[: len(acc) // 2] + acc[len(acc) // 2 :]
    return acc[0]


def wide_exponents(count: int, device: str) -> torch.Tensor:
    """Rewards whose sums round in fp64, in a last place that another order may change."""
    generator = torch.Generator().manual_seed(count)
    exponents = torch.randint(-30, 30, (count,), generator=generator)
    return torch.ldexp(torch.randn(count, generator=generator), exponents).to(device)


def check_norm_order(sizes: Sequence[int], device: str) -> None:
    """Means are the folds of lanes that the declaration states; the control's are others."""
    rewards, offsets = wide_exponents(sum(sizes), device), ragged(sizes, device)[1]
    bucket = group_bucket(max(sizes))
    centred = norm_witness(rewards, offsets, bucket, scale_by_std=False).cpu()
    values, bounds = rewards.double().cpu(), offsets.tolist()
    for start, end in pairwise(bounds):
        group = values[start:end]
        mean = folded(group) / (end - start)
        assert checks.raw(centred[start:end]) == checks.raw(group - mean)
    key = NORM.shape_key("fp32", {"group_bucket": bucket})
    assert NORM.control is not None
    control = NORM.control(key)
    other = norm_witness(rewards, offsets, bucket, control, scale_by_std=False).cpu()
    assert checks.raw(other) != checks.raw(centred)


def check_norm_candidates(sizes: Sequence[int], device: str) -> None:
    """Unrounded, every candidate gives the bytes of the fixed launch; the control does not."""
    rewards, offsets = wide_exponents(sum(sizes), device), ragged(sizes, device)[1]
    bucket = group_bucket(max(sizes))
    key = NORM.shape_key("fp32", {"group_bucket": bucket})
    fixed = checks.raw(norm_witness(rewards, offsets, bucket))
    for config in NORM.candidates(key):
        got = checks.raw(norm_witness(rewards, offsets, bucket, config))
        assert got == fixed, config.candidate_id
    assert NORM.control is not None
    assert checks.raw(norm_witness(rewards, offsets, bucket, NORM.control(key))) != fixed


def check_norm_layouts(device: str) -> None:
    """Strided, transposed and misaligned arguments give the contiguous bytes."""
    rewards = torch.randn(6, 12, device=device)
    mask = torch.rand(6, 12, device=device) < 0.7
    expected = checks.raw(grpo_norm(rewards, group_size=12, mask=mask))
    for arranged in zip(checks.layouts(rewards), checks.layouts(mask), strict=True):
        (kind, value), (_, flags) = arranged
        got = grpo_norm(value, group_size=12, mask=flags)
        assert got.is_contiguous()
        assert checks.raw(got) == expected, kind
    offsets = torch.arange(0, 73, 12, device=device)
    flat, flags = rewards.view(-1), mask.view(-1)
    for (kind, value), (_, bounds) in zip(
        checks.layouts(flat), checks.layouts(offsets), strict=True
    ):
        got = grpo_norm(value, group_offsets=bounds, mask=flags)
        assert checks.raw(got) == expected, kind
    got = grpo_norm(flat, group_offsets=offsets.int(), mask=flags.int())
    assert checks.raw(got) == expected


def check_norm_compiled(device: str, backend: str) -> None:
    """A full-graph compiled call gives the eager bytes, of fixed and of ragged groups."""
    torch.compiler.reset()
    rewards, offsets = ragged((3, 1, 4, 8), device)
    mask = torch.rand(16, device=device) < 0.7
    compiled: Any = torch.compile(grpo_norm, fullgraph=True, backend=backend)
    for some in (None, mask):
        got = compiled(rewards, group_offsets=offsets, mask=some)
        assert checks.raw(got) == checks.raw(grpo_norm(rewards, group_offsets=offsets, mask=some))
        got = compiled(rewards, group_size=4, mask=some)
        assert checks.raw(got) == checks.raw(grpo_norm(rewards, group_size=4, mask=some))
