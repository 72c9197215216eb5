"""What every operator must do, written once for the interpreter's tests and for the GPU's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch.nn import functional

from rltune.core.operator import OperatorSpec
from rltune_kernels.embedding import embedding
from rltune_kernels.rms_norm import rms_norm
from rltune_kernels.rms_norm.spec import SPEC as RMS_NORM_SPEC
from rltune_kernels.silu import silu
from rltune_kernels.silu.spec import SPEC as SILU_SPEC
from rltune_kernels.swiglu import swiglu
from rltune_kernels.swiglu.spec import SPEC as SWIGLU_SPEC

DTYPES = (torch.bfloat16, torch.float16, torch.float32)
EPS = 1e-6
Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class FloatOperator:
    """An operator whose inputs are all of the element type.

    ``spec``: states the error allowed to results. ``scales``: for each gradient, the size of
    what is added up in it; errors are counted in its last place, as sums cancel.
    """

    call: Callable[..., torch.Tensor]
    oracle: Callable[..., torch.Tensor]
    shapes: Callable[[int, int], tuple[tuple[int, ...], ...]]
    scales: Callable[..., Tensors]
    spec: OperatorSpec


def _silu_scales(dy: torch.Tensor, x: torch.Tensor) -> Tensors:
    return (dy.abs() * torch.sigmoid(x) * (1 + x.abs() * torch.sigmoid(-x)),)


def _swiglu_scales(dy: torch.Tensor, gate: torch.Tensor, up: torch.Tensor) -> Tensors:
    return _silu_scales(dy * up, gate)[0], (dy * functional.silu(gate)).abs()


def _rms_norm_oracle(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return functional.rms_norm(x, weight.shape, weight, EPS)


def _rms_norm_scales(dy: torch.Tensor, x: torch.Tensor, weight: torch.Tensor) -> Tensors:
    rstd = torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS)
    xhat, g = (x * rstd).abs(), (dy * weight).abs()
    return rstd * (g + xhat * (g * xhat).mean(-1, keepdim=True)), (dy.abs() * xhat).sum(0)


OPERATORS = {
    "silu": FloatOperator(silu, functional.silu, lambda m, n: ((m, n),), _silu_scales, SILU_SPEC),
    "swiglu": FloatOperator(
        swiglu,
        lambda gate, up: functional.silu(gate) * up,
        lambda m, n: ((m, n), (m, n)),
        _swiglu_scales,
        SWIGLU_SPEC,
    ),
    "rms_norm": FloatOperator(
        rms_norm, _rms_norm_oracle, lambda m, n: ((m, n), (n,)), _rms_norm_scales, RMS_NORM_SPEC
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


def with_gradients(
    call: Callable[..., torch.Tensor], values: Tensors, dy: torch.Tensor
) -> tuple[torch.Tensor, Tensors]:
    """Result and gradients of ``call`` for an upstream gradient ``dy``."""
    leaves = tuple(value.detach().requires_grad_() for value in values)
    result = call(*leaves)
    return result.detach(), torch.autograd.grad(result, leaves, dy)


def check_accuracy(name: str, num_tokens: int, width: int, dtype: torch.dtype, device: str) -> None:
    """Result and gradients lie within the operator's error of fp64."""
    operator = OPERATORS[name]
    values = inputs(name, num_tokens, width, dtype, device)
    dy = torch.randn_like(values[0])
    result, gradients = with_gradients(operator.call, values, dy)
    exact = tuple(value.double() for value in values)
    expected, expected_gradients = with_gradients(operator.oracle, exact, dy.double())
    allowed = operator.spec.tolerance_ulp["fp32"] if dtype == torch.float32 else 0.51
    assert result.dtype == dtype
    assert ulp_error(result, expected) <= allowed
    scales = operator.scales(dy.double(), *exact)
    for got, right, scale in zip(gradients, expected_gradients, scales, strict=True):
        assert got.dtype == dtype
        assert ulp_error(got, right, scale) <= (8 if dtype == torch.float32 else 0.51)


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
    dy = torch.randn_like(values[0])
    result, gradients = with_gradients(operator.call, values, dy)
    expected = [raw(item) for item in (result, *gradients)]
    for arranged in zip(*(layouts(value) for value in (*values, dy)), strict=False):
        kinds = {kind for kind, _ in arranged}
        *others, other_dy = (value for _, value in arranged)
        got, got_gradients = with_gradients(operator.call, tuple(others), other_dy)
        assert [raw(item) for item in (got, *got_gradients)] == expected, kinds


def check_expanded(name: str, num_tokens: int, width: int, dtype: torch.dtype, device: str) -> None:
    """Rows and gradients of stride 0, as ``sum().backward()`` makes them, are copied."""
    operator = OPERATORS[name]
    first, *rest = inputs(name, num_tokens, width, dtype, device)
    rows = first[:1].expand(num_tokens, width)
    one = torch.ones((), dtype=dtype, device=device).expand(num_tokens, width)
    got = with_gradients(operator.call, (rows, *rest), one)
    expected = with_gradients(operator.call, (rows.contiguous(), *rest), one.contiguous())
    assert raw(got[0]) == raw(expected[0])
    assert [raw(item) for item in got[1]] == [raw(item) for item in expected[1]]


def check_batch_invariance(
    name: str, num_tokens: int, width: int, dtype: torch.dtype, device: str
) -> None:
    """The first m rows of a call are the bytes of a call of m rows, forward and dx."""
    operator = OPERATORS[name]
    values = inputs(name, num_tokens, width, dtype, device)
    dy = torch.randn_like(values[0])
    result, gradients = with_gradients(operator.call, values, dy)
    for count in {1, 2, num_tokens // 2, num_tokens - 1} - {0}:
        part = tuple(value[:count] if value.dim() == 2 else value for value in values)
        got, got_gradients = with_gradients(operator.call, part, dy[:count])
        assert raw(got) == raw(result[:count])
        for some, every, value in zip(got_gradients, gradients, values, strict=True):
            if value.dim() == 2:
                assert raw(some) == raw(every[:count])


def check_empty(name: str, width: int, dtype: torch.dtype, device: str) -> None:
    """Zero rows: an empty result at once, and gradients of the right shape, dw zeros."""
    operator = OPERATORS[name]
    values = tuple(
        torch.ones(shape, dtype=dtype, device=device) for shape in operator.shapes(0, width)
    )
    batched = tuple(value.view(3, 0, width) if value.dim() == 2 else value for value in values)
    dy = torch.ones((3, 0, width), dtype=dtype, device=device)
    result, gradients = with_gradients(operator.call, batched, dy)
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
    dy = torch.randn_like(values[0])
    compiled = torch.compile(operator.call, fullgraph=True, backend=backend)
    got, got_gradients = with_gradients(compiled, values, dy)
    result, gradients = with_gradients(operator.call, values, dy)
    assert raw(got) == raw(result)
    assert [raw(item) for item in got_gradients] == [raw(item) for item in gradients]


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
    """dweight is the left fold in fp32 over ascending positions, rounded once."""
    ids = edge_ids(num_tokens, vocab_size, device)
    weight = torch.zeros((vocab_size, width), dtype=dtype, device=device, requires_grad=True)
    dy = torch.randn((num_tokens, width), device=device).to(dtype)
    (dweight,) = torch.autograd.grad(embedding(ids, weight), weight, dy)
    folded = torch.zeros((vocab_size, width), device=device)
    for position, token in enumerate(ids.tolist()):
        if 0 <= token < vocab_size:
            folded[token] += dy[position].float()
    assert raw(dweight) == raw(folded.to(dtype))
