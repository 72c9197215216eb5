"""What every operator must do, written once for the interpreter's tests and for the GPU's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from rltune_kernels.add_rms_norm import add_rms_norm
from rltune_kernels.embedding import embedding
from rltune_kernels.rms_norm import rms_norm
from rltune_kernels.silu import silu
from rltune_kernels.swiglu import swiglu

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
EPS = 1e-6
HALF_ULP = 0.51
"""Largest error of one rounding after arithmetic in a wider type."""

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class FloatOperator:
    """An operator whose inputs and results are all of the element type.

    ``oracle``: the definition on fp64 tensors, given the element type. ``scales``: for each
    gradient, the size of what is added up in it; errors are counted in its last place, as
    sums cancel. ``outputs``: number of results, each of the shape of the first input.
    """

    call: Callable[..., torch.Tensor | Tensors]
    oracle: Callable[..., torch.Tensor | Tensors]
    shapes: Callable[[int, int], tuple[tuple[int, ...], ...]]
    scales: Callable[..., Tensors]
    outputs: int = 1

    def run(self, values: Tensors, dys: Tensors) -> tuple[Tensors, Tensors]:
        """Results and gradients."""
        return with_gradients(self.call, values, dys)

    def upstream(self, values: Tensors) -> Tensors:
        """A random upstream gradient for each result."""
        return tuple(torch.randn_like(values[0]) for _ in range(self.outputs))


def _silu_oracle(_dtype: torch.dtype, x: torch.Tensor) -> torch.Tensor:
    return functional.silu(x)


def _silu_scales(dys: Tensors, x: torch.Tensor) -> Tensors:
    return (dys[0].abs() * torch.sigmoid(x) * (1 + x.abs() * torch.sigmoid(-x)),)


def _swiglu_oracle(_dtype: torch.dtype, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return functional.silu(gate) * up


def _swiglu_scales(dys: Tensors, gate: torch.Tensor, up: torch.Tensor) -> Tensors:
    return _silu_scales((dys[0] * up,), gate)[0], (dys[0] * functional.silu(gate)).abs()


def _rms_norm_oracle(_dtype: torch.dtype, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(x, weight.shape, weight, EPS)


def _rms_norm_scales(dys: Tensors, x: torch.Tensor, weight: torch.Tensor) -> Tensors:
    rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS)
    xhat, g = (x * rstd).abs(), (dys[0] * weight).abs()
    return rstd * (g + xhat * (g * xhat).mean(-1, keepdim=True)), (dys[0].abs() * xhat).sum(0)


def _add_rms_norm_oracle(
    dtype: torch.dtype, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor
) -> Tensors:
    exact = x + residual
    residual_out = exact + (exact.to(dtype).double() - exact).detach()  # rounding is no step down
    return _rms_norm_oracle(dtype, residual_out, weight), residual_out


def _add_rms_norm_scales(
    dys: Tensors, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor
) -> Tensors:
    dx, dw = _rms_norm_scales(dys, x + residual, weight)
    return dx + dys[1].abs(), dx + dys[1].abs(), dw


OPERATORS = {
    "silu": FloatOperator(silu, _silu_oracle, lambda m, n: ((m, n),), _silu_scales),
    "swiglu": FloatOperator(swiglu, _swiglu_oracle, lambda m, n: ((m, n), (m, n)), _swiglu_scales),
    "rms_norm": FloatOperator(
        rms_norm, _rms_norm_oracle, lambda m, n: ((m, n), (n,)), _rms_norm_scales
    ),
    "add_rms_norm": FloatOperator(
        add_rms_norm,
        _add_rms_norm_oracle,
        lambda m, n: ((m, n), (m, n), (n,)),
        _add_rms_norm_scales,
        outputs=2,
    ),
}


def ulp_error(
    got: torch.Tensor, expected: torch.Tensor, scale: torch.Tensor | None = None
) -> float:
    """Largest error in units in the last place, of ``expected`` or of ``scale`` if larger."""
    size = expected.abs() if scale is None else torch.maximum(expected.abs(), scale)
    limits = torch.finfo(got.dtype)
    _, exponent = torch.frexp(size.clamp_min(limits.tiny))
    # eps is the spacing at 1, where frexp's exponent is 1.
    spacing = torch.ldexp(torch.full_like(size, limits.eps), exponent - 1)
    return float(((got.double() - expected).abs() / spacing).max())


def raw(tensor: torch.Tensor) -> bytes:
    """Bytes of a tensor's elements."""
    return tensor.detach().contiguous().cpu().view(torch.uint8).numpy().tobytes()


def inputs(
    name: str, num_tokens: int, width: int, dtype: torch.dtype, device: str, seed: int = 0
) -> Tensors:
    """Random inputs; the first row of the first one spans silu's whole range."""
    generator = torch.Generator(device).manual_seed(seed)
    made = [
        torch.randn(shape, generator=generator, device=device).to(dtype)
        for shape in OPERATORS[name].shapes(num_tokens, width)
    ]
    made[0][0] = torch.linspace(-100, 60, width, device=device).to(dtype)
    return tuple(made)


def with_gradients(call: Callable[..., Any], values: Tensors, dy: Any) -> tuple[Any, Tensors]:
    """Results and gradients of ``call`` for upstream gradients ``dy``.

    A single tensor ``dy`` stands for a single result, which comes back as a tensor.
    """
    leaves = tuple(value.detach().requires_grad_() for value in values)
    result = call(*leaves)
    if isinstance(dy, torch.Tensor):
        return result.detach(), torch.autograd.grad(result, leaves, dy)
    results = result if isinstance(result, tuple) else (result,)
    gradients = torch.autograd.grad(results, leaves, dy)
    return tuple(item.detach() for item in results), gradients


def raw_all(*groups: Tensors) -> list[bytes]:
    """Bytes of every tensor of every group."""
    return [raw(item) for group in groups for item in group]


def check_accuracy(name: str, num_tokens: int, width: int, dtype: torch.dtype, device: str) -> None:
    """Results and gradients lie within half an ulp of fp64, gradients of what they add up."""
    operator = OPERATORS[name]
    values = inputs(name, num_tokens, width, dtype, device)
    dys = operator.upstream(values)
    results, gradients = operator.run(values, dys)
    exact = tuple(value.double() for value in values)
    exact_dys = tuple(dy.double() for dy in dys)
    expected, expected_gradients = with_gradients(
        lambda *leaves: operator.oracle(dtype, *leaves), exact, exact_dys
    )
    for got, right in zip(results, expected, strict=True):
        assert got.dtype == dtype
        assert ulp_error(got, right) <= HALF_ULP
    scales = operator.scales(exact_dys, *exact)
    for got, right, scale in zip(gradients, expected_gradients, scales, strict=True):
        assert got.dtype == dtype
        assert ulp_error(got, right, scale) <= HALF_ULP


def layouts(tensor: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """The same values in storage that no kernel takes as it is."""
    yield "strided", tensor.repeat_interleave(2, dim=-1)[..., ::2]
    storage = torch.empty(tensor.numel() + 1, dtype=tensor.dtype, device=tensor.device)
    yield "misaligned", storage[1:].view(tensor.shape).copy_(tensor)
    if tensor.dim() == 2:
        yield "transposed", tensor.t().contiguous().t()


def check_layouts(name: str, num_tokens: int, width: int, dtype: torch.dtype, device: str) -> None:
    """Strided, transposed and misaligned inputs and gradients give the contiguous bytes."""
    operator = OPERATORS[name]
    values = inputs(name, num_tokens, width, dtype, device)
    dys = operator.upstream(values)
    expected = raw_all(*operator.run(values, dys))
    for arranged in zip(*(layouts(value) for value in (*values, *dys)), strict=False):
        kinds = {kind for kind, _ in arranged}
        others = tuple(value for _, value in arranged)
        got = operator.run(others[: len(values)], others[len(values) :])
        assert raw_all(*got) == expected, kinds


def check_expanded(name: str, num_tokens: int, width: int, dtype: torch.dtype, device: str) -> None:
    """Rows and gradients of stride 0, as ``sum().backward()`` makes them, are copied."""
    operator = OPERATORS[name]
    first, *rest = inputs(name, num_tokens, width, dtype, device)
    rows = first[:1].expand(num_tokens, width)
    one = torch.ones((), dtype=dtype, device=device).expand(num_tokens, width)
    got = operator.run((rows, *rest), (one,) * operator.outputs)
    expected = operator.run((rows.contiguous(), *rest), (one.contiguous(),) * operator.outputs)
    assert raw_all(*got) == raw_all(*expected)


def batches(num_tokens: int, device: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Rows to run together, as indices into a batch, by what they try."""
    every = torch.arange(num_tokens, device=device)
    for count in sorted({1, 2, num_tokens // 2, num_tokens - 1} - {0}):
        yield f"prefix of {count}", every[:count]
    yield "another order", every.flip(0)
    yield "another place", every.roll(num_tokens // 3 + 1)
    yield "duplicates", every.repeat_interleave(2)[1:]
    for size in (1, 3, num_tokens // 2 + 1):
        last = every[size * ((num_tokens - 1) // size) :]
        yield f"last chunk of {size}", last
        yield f"middle chunk of {size}", every[num_tokens // 3 :][:size]


def check_batch_invariance(
    name: str, num_tokens: int, width: int, dtype: torch.dtype, device: str
) -> None:
    """The bytes of a row depend on no other row: not on number, order, place or content."""
    operator = OPERATORS[name]
    values = inputs(name, num_tokens, width, dtype, device)
    dys = operator.upstream(values)
    rows = [value.dim() == 2 for value in values]

    def row_outputs(values: Tensors, dys: Tensors) -> Tensors:
        results, gradients = operator.run(values, dys)
        return results + tuple(
            item for item, of_rows in zip(gradients, rows, strict=True) if of_rows
        )

    whole = row_outputs(values, dys)
    for kind, index in batches(num_tokens, device):
        some = tuple(v[index] if r else v for v, r in zip(values, rows, strict=True))
        got = row_outputs(some, tuple(dy[index] for dy in dys))
        assert raw_all(got) == raw_all(tuple(item[index] for item in whole)), kind
    kept = torch.arange(num_tokens, device=device) % 3 == 1
    for content in (float("nan"), float("inf"), 3e4, 0.0):
        others = ~kept[:, None]
        some = tuple(
            v.masked_fill(others, content) if r else v for v, r in zip(values, rows, strict=True)
        )
        got = row_outputs(some, tuple(dy.masked_fill(others, content) for dy in dys))
        assert raw_all(tuple(item[kept] for item in got)) == raw_all(
            tuple(item[kept] for item in whole)
        ), content


def check_padding(name: str, num_tokens: int, width: int, dtype: torch.dtype, device: str) -> None:
    """Rows of zeros after the last change no byte, that of a weight's gradient included."""
    operator = OPERATORS[name]
    values = inputs(name, num_tokens, width, dtype, device)
    dys = operator.upstream(values)
    results, gradients = operator.run(values, dys)
    padding = (0, 0, 0, num_tokens + 70)
    padded = tuple(functional.pad(v, padding) if v.dim() == 2 else v for v in values)
    got, got_gradients = operator.run(padded, tuple(functional.pad(dy, padding) for dy in dys))
    assert raw_all(tuple(item[:num_tokens] for item in got)) == raw_all(results)
    for some, every in zip(got_gradients, gradients, strict=True):
        assert raw(some[:num_tokens] if some.dim() == 2 else some) == raw(every)


def check_add_is_two_calls(num_tokens: int, width: int, dtype: torch.dtype, device: str) -> None:
    """add_rms_norm gives the bytes of an addition and rms_norm; its dw those of rms_norm."""
    operator = OPERATORS["add_rms_norm"]
    values = x, residual, weight = inputs("add_rms_norm", num_tokens, width, dtype, device)
    dys = operator.upstream(values)
    results, gradients = operator.run(values, dys)
    total = x + residual
    y, (_, dw) = with_gradients(rms_norm, (total, weight), dys[0])
    assert raw_all(results) == raw_all((y, total))
    assert raw(gradients[0]) == raw(gradients[1])
    assert raw(gradients[2]) == raw(dw)


def check_empty(name: str, width: int, dtype: torch.dtype, device: str) -> None:
    """Zero rows: an empty result at once, and gradients of the right shape, dw zeros."""
    operator = OPERATORS[name]
    values = tuple(
        torch.ones(shape, dtype=dtype, device=device) for shape in operator.shapes(0, width)
    )
    batched = tuple(value.view(3, 0, width) if value.dim() == 2 else value for value in values)
    dy = torch.ones((3, 0, width), dtype=dtype, device=device)
    results, gradients = operator.run(batched, (dy,) * operator.outputs)
    for result in results:
        assert result.shape == (3, 0, width)
        assert result.dtype == dtype
    for gradient, value in zip(gradients, batched, strict=True):
        assert gradient.shape == value.shape
        assert not gradient.any()


def check_compiled(name: str, device: str, backend: str) -> None:
    """A full-graph compiled call gives the eager call's bytes, gradients included."""
    torch.compiler.reset()
    operator = OPERATORS[name]
    values = inputs(name, 5, 63, torch.bfloat16, device)
    dys = operator.upstream(values)
    compiled = torch.compile(operator.call, fullgraph=True, backend=backend)
    assert raw_all(*with_gradients(compiled, values, dys)) == raw_all(*operator.run(values, dys))


def check_registered(name: str, device: str) -> None:
    """The registered operator passes every test of ``opcheck``."""
    values = inputs(name, 3, 63, torch.float32, device)
    leaves = tuple(value.requires_grad_() for value in values)
    extra: tuple[Any, ...] = (EPS,) if name.endswith("rms_norm") else ()
    torch.library.opcheck(getattr(torch.ops.rltune, name).default, (*leaves, *extra))


def silu_error(x: torch.Tensor, y: torch.Tensor) -> float:
    """Largest error of silu over the finite ``x``, in ulp; infinities and NaN are checked."""
    finite = x.isfinite()
    assert bool(y[x == float("inf")].eq(float("inf")).all())
    assert bool(y[x == float("-inf")].isnan().all())
    assert bool(y[x.isnan()].isnan().all())
    return ulp_error(y[finite], functional.silu(x[finite].double()))


def check_residual_stream(num_tokens: int, width: int, layers: int, device: str) -> None:
    """The size of a bf16 residual stream after many layers is that of an fp64 one.

    A norm that rounds rstd, or that truncates, scales whole rows by one coherent error.
    """
    generator = torch.Generator(device).manual_seed(0)
    x = torch.randn((num_tokens, width), generator=generator, device=device).to(torch.bfloat16)
    signs = torch.randint(0, 2, (layers, width), generator=generator, device=device) * 2 - 1
    weight = torch.ones(width, dtype=torch.bfloat16, device=device)
    stream, branch, exact, exact_branch = x, x, x.double(), x.double()
    for layer in range(layers):  # a branch is its norm in another direction, as a layer gives
        normed, stream = add_rms_norm(branch, stream, weight)
        branch = normed.roll(7 * layer + 7, -1) * signs[layer]
        exact = exact + exact_branch
        exact_branch = functional.rms_norm(exact, (width,), None, EPS)
        exact_branch = exact_branch.roll(7 * layer + 7, -1) * signs[layer]
    ratio = stream.double().norm(dim=-1) / exact.norm(dim=-1)
    assert float((ratio - 1).abs().max()) <= 3e-3
    sizes = branch.double().square().mean(-1).sqrt()
    assert float((sizes - 1).abs().mean()) <= 2**-12


def edge_ids(num_tokens: int, vocab_size: int, device: str) -> torch.Tensor:
    """Ids in the vocabulary, some often, and ids outside it."""
    ids = torch.randint(0, vocab_size, (num_tokens,), generator=torch.Generator().manual_seed(3))
    edges = (-1, vocab_size, 0, 0, vocab_size - 1, 2**63 - 1, -(2**63))
    ids[: len(edges)] = torch.tensor(edges)[:num_tokens]
    return ids.to(device)


def fill_bits(shape: tuple[int, ...], dtype: torch.dtype, device: str) -> torch.Tensor:
    """Every kind of bit pattern, NaN payloads among them."""
    kind = torch.int32 if dtype == torch.float32 else torch.int16
    limits = torch.iinfo(kind)
    bits = torch.randint(
        limits.min, limits.max, shape, generator=torch.Generator().manual_seed(5), dtype=kind
    )
    return bits.to(device).view(dtype)


def check_embedding_copies(
    num_tokens: int, vocab_size: int, width: int, dtype: torch.dtype, device: str
) -> None:
    """Rows are copied bit by bit; ids outside the vocabulary give zeros."""
    ids = edge_ids(num_tokens, vocab_size, device)
    weight = fill_bits((vocab_size, width), dtype, device)
    got = embedding(ids, weight)
    inside = (ids >= 0) & (ids < vocab_size)
    assert raw(got[inside]) == raw(weight[ids[inside]])
    assert not any(raw(got[~inside]))


def check_embedding_gradient(
    num_tokens: int, vocab_size: int, width: int, dtype: torch.dtype, device: str
) -> None:
    """dweight is the left fold over ascending positions in a wider type, rounded once."""
    ids = edge_ids(num_tokens, vocab_size, device)
    weight = torch.zeros((vocab_size, width), dtype=dtype, device=device, requires_grad=True)
    dy = torch.randn((num_tokens, width), device=device).to(dtype)
    (dweight,) = torch.autograd.grad(embedding(ids, weight), weight, dy)
    wide = torch.float64 if dtype == torch.float32 else torch.float32
    folded = torch.zeros((vocab_size, width), device=device, dtype=wide)
    for position, token in enumerate(ids.tolist()):
        if 0 <= token < vocab_size:
            folded[token] += dy[position].to(wide)
    assert raw(dweight) == raw(folded.to(dtype))


def check_embedding_batch(
    num_tokens: int, vocab_size: int, width: int, dtype: torch.dtype, device: str
) -> None:
    """A row, and the gradient of a token, depend on no other token of the batch."""
    ids = edge_ids(num_tokens, vocab_size, device)
    weight = torch.randn((vocab_size, width), device=device).to(dtype)
    dy = torch.randn((num_tokens, width), device=device).to(dtype)
    y, (dweight,) = with_gradients(lambda value: embedding(ids, value), (weight,), dy)
    for token in ids.unique().tolist():
        own = ids == token
        got, (row,) = with_gradients(lambda v, own=own: embedding(ids[own], v), (weight,), dy[own])
        assert raw(got) == raw(y[own])
        if 0 <= token < vocab_size:
            assert raw(row[token]) == raw(dweight[token])
        else:
            assert not row.any()
    twice = torch.cat((ids, ids + (ids >= 0))), torch.cat((dy, torch.zeros_like(dy)))
    got, (padded,) = with_gradients(lambda v: embedding(twice[0], v), (weight,), twice[1])
    assert raw(got[:num_tokens]) == raw(y)
    assert raw(padded) == raw(dweight)
