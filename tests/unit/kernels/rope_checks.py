"""What rope must do, written once for the interpreter's tests and for the GPU's."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from rltune_kernels.rope import reference, rope
from tests.unit.kernels import checks


@dataclass(frozen=True)
class Case:
    """Arguments of a call, the heads of q and k as one tensor, and an upstream gradient."""

    x: torch.Tensor
    positions: torch.Tensor
    cos: torch.Tensor
    sin: torch.Tensor
    dy: torch.Tensor

    @property
    def rotary_dim(self) -> int:
        return 2 * self.cos.shape[1]

    def flat_positions(self) -> torch.Tensor:
        return self.positions.expand(self.x.shape[:-2]).reshape(-1)

    def run(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(y, dx)."""
        y, (dx,) = checks.with_gradients(self.call, (self.x,), self.dy)
        return y, dx

    def call(self, x: torch.Tensor) -> torch.Tensor:
        return rotate(x, self.positions, self.cos, self.sin)


def query_heads(heads: int) -> int:
    """How many of ``heads`` are q's; the others are k's, none of a single one."""
    return heads - heads // 3


def rotate(
    x: torch.Tensor, positions: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """``rope`` of the first heads of ``x`` as q and of the others as k, put together again."""
    heads = x.shape[-2]
    q, k = x.split([query_heads(heads), heads - query_heads(heads)], dim=-2)
    return torch.cat(rope(q, k, positions, cos, sin), dim=-2)


def packed(num_tokens: int, max_positions: int, device: str) -> torch.Tensor:
    """Positions of packed sequences of 1, 2, 3, … tokens, then of the caches' last rows."""
    positions = [place for length in range(1, num_tokens + 1) for place in range(length)]
    positions = positions[: num_tokens - num_tokens // 4]
    positions += [max_positions - 1 - i for i in range(num_tokens // 4)]
    return torch.tensor(positions, dtype=torch.int64, device=device) % max_positions


def case(
    shape: tuple[int, ...],
    rotary_dim: int,
    dtype: torch.dtype,
    device: str,
    *,
    max_positions: int = 61,
    seed: int = 0,
) -> Case:
    """Random x and dy, rotations, and packed positions [seq]."""
    generator = torch.Generator(device).manual_seed(seed)
    x, dy = (torch.randn(shape, generator=generator, device=device).to(dtype) for _ in range(2))
    cos, sin = reference.caches(max_positions, rotary_dim // 2, device)
    return Case(x, packed(shape[-3], max_positions, device), cos, sin, dy)


def _scale(x: torch.Tensor, made: Case, positions: torch.Tensor) -> torch.Tensor:
    """|x1 * cos| + |x2 * sin|: the size of what is added up, as the sum may cancel."""
    pairs = made.rotary_dim // 2
    x = x.double().abs()
    swapped = torch.cat((x[..., pairs : 2 * pairs], x[..., :pairs], x[..., 2 * pairs :]), dim=-1)
    cos, sin = made.cos.abs(), made.sin.abs()
    nothing = torch.zeros_like(sin)
    return reference.forward(x, positions, cos, nothing) + reference.forward(
        swapped, positions, sin, nothing
    )


def check_accuracy(made: Case) -> None:
    """Result and gradient lie within the operator's error of fp64."""
    positions = made.flat_positions()
    dtype = made.x.dtype
    y, dx = made.run()
    for got, source, oracle in (
        (y, made.x, reference.forward),
        (dx, made.dy, reference.backward),
    ):
        assert got.dtype == dtype
        assert got.shape == made.x.shape
        flat = source.reshape(-1, *source.shape[-2:])
        expected = oracle(flat, positions, made.cos, made.sin)
        assert expected.any()
        scale = _scale(flat, made, positions)
        assert checks.ulp_error(got.reshape(flat.shape), expected, scale) <= checks.HALF_ULP


def check_norms(made: Case) -> None:
    """A pair keeps its length: a sin or cos read at a wrong offset changes it."""
    pairs = made.rotary_dim // 2
    y, dx = made.run()
    for got, source in ((y, made.x), (dx, made.dy)):
        before, after = (
            torch.hypot(item[..., :pairs].double(), item[..., pairs : 2 * pairs].double())
            for item in (source, got)
        )
        assert bool(((after - before).abs() <= 2 * torch.finfo(got.dtype).eps * before).all())


def check_rest_is_copied(made: Case) -> None:
    """Every bit pattern from rotary_dim on survives, and the input is not written."""
    shape = tuple(made.x.shape)
    bits = checks.fill_bits(shape, made.x.dtype, str(made.x.device))
    pristine = checks.raw(bits)
    rest = checks.raw(bits[..., made.rotary_dim :])
    y, dx = replace(made, x=bits, dy=bits).run()
    assert checks.raw(y[..., made.rotary_dim :]) == rest
    assert checks.raw(dx[..., made.rotary_dim :]) == rest
    assert checks.raw(bits) == pristine


def check_outside_positions(made: Case) -> None:
    """Positions outside the caches give +0.0, others and the rest are what they were."""
    outside = made.positions.clone()
    max_positions = made.cos.shape[0]
    edges = (-1, max_positions, -(2**63), 2**63 - 1, 2**32, max_positions * 2**40)
    outside[: len(edges)] = torch.tensor(edges, device=outside.device)
    x = made.x.clone()
    x[..., 0, 0, 0], x[..., 1, 0, 0] = float("inf"), float("nan")
    made = replace(made, x=x)
    inside = replace(made, positions=made.positions.clone()).run()
    for got, right in zip(replace(made, positions=outside).run(), inside, strict=True):
        assert not any(checks.raw(got[..., : len(edges), :, : made.rotary_dim]))
        assert checks.raw(got[..., len(edges) :, :, :]) == checks.raw(
            right[..., len(edges) :, :, :]
        )
        rest = slice(made.rotary_dim, None)
        assert checks.raw(got[..., rest]) == checks.raw(right[..., rest])


def check_layouts(made: Case) -> None:
    """Strided, transposed and misaligned arguments and gradients give the contiguous bytes."""
    expected = [checks.raw(item) for item in made.run()]
    for arranged in zip(
        *(checks.layouts(v) for v in (made.x, made.positions, made.cos, made.sin, made.dy)),
        strict=False,
    ):
        other = Case(*(value for _, value in arranged))
        assert [checks.raw(item) for item in other.run()] == expected, arranged[0][0]
    swapped = replace(
        made,
        x=made.x.transpose(-3, -2).contiguous().transpose(-3, -2),
        cos=made.cos.t().contiguous().t(),
        sin=made.sin.t().contiguous().t(),
        dy=made.dy.transpose(-3, -2).contiguous().transpose(-3, -2),
        positions=made.positions.to(torch.int32),
    )
    assert [checks.raw(item) for item in swapped.run()] == expected


def check_expanded(made: Case) -> None:
    """Heads and gradients of stride 0, as ``sum().backward()`` makes them, are copied."""
    one = torch.ones((), dtype=made.x.dtype, device=made.x.device)
    spread = replace(made, x=made.x[..., :1, :].expand(made.x.shape), dy=one.expand(made.x.shape))
    whole = replace(spread, x=spread.x.contiguous(), dy=spread.dy.contiguous())
    for got, expected in zip(spread.run(), whole.run(), strict=True):
        assert checks.raw(got) == checks.raw(expected)


def check_batch_invariance(made: Case) -> None:
    """The bytes of a token depend on no other token: prefixes, single tokens, batches."""
    y, dx = made.run()
    seq = made.x.shape[-3]
    for part in (slice(0, 1), slice(0, seq // 2), slice(seq - 1, seq)):
        some = replace(
            made,
            x=made.x[..., part, :, :],
            dy=made.dy[..., part, :, :],
            positions=made.positions[part],
        )
        got = some.run()
        assert checks.raw(got[0]) == checks.raw(y[..., part, :, :])
        assert checks.raw(got[1]) == checks.raw(dx[..., part, :, :])
    twice = replace(
        made,
        x=torch.stack((made.x.flip(-3), made.x)),
        dy=torch.stack((made.dy.flip(-3), made.dy)),
        positions=torch.stack((made.positions.flip(0), made.positions)),
    )
    for both, expected in zip(twice.run(), (y, dx), strict=True):
        assert checks.raw(both[1]) == checks.raw(expected)
        assert checks.raw(both[0]) == checks.raw(expected.flip(-3))


def check_backward_is_the_inverse(made: Case) -> None:
    """Rotating back gives the input, but for one rounding each way and that of the caches."""
    pairs = made.rotary_dim // 2
    back = replace(made, dy=made.call(made.x)).run()[1]
    x = made.x.double()
    size = torch.hypot(x[..., :pairs], x[..., pairs : 2 * pairs])
    scale = torch.cat((size, size, x[..., 2 * pairs :].abs()), dim=-1)
    assert checks.ulp_error(back, x, scale) <= (4 if made.x.dtype == torch.float32 else 2)


def check_compiled(made: Case, backend: str) -> None:
    """A full-graph compiled call gives the eager call's bytes, gradient included."""
    torch.compiler.reset()
    compiled = torch.compile(rotate, fullgraph=True, backend=backend)
    got = checks.with_gradients(
        lambda x: compiled(x, made.positions, made.cos, made.sin), (made.x,), made.dy
    )
    y, dx = made.run()
    assert checks.raw(got[0]) == checks.raw(y)
    assert checks.raw(got[1][0]) == checks.raw(dx)
