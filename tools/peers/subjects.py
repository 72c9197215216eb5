"""The operators under comparison: inputs, fp64 oracle, our function and torch's.

RoPE is one call for q and k. Ours gathers fp32 caches by position and is launched
once for each; the peers take what models give them: q and k with heads before
tokens, and cosines and sines of the tokens, doubled, in the element type.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional

from rltune_kernels.add_rms_norm import add_rms_norm
from rltune_kernels.embedding import embedding
from rltune_kernels.logprob import logprob
from rltune_kernels.ratio_kl import ratio_kl
from rltune_kernels.rms_norm import rms_norm
from rltune_kernels.rope import rope
from rltune_kernels.silu import silu
from rltune_kernels.swiglu import swiglu

EPS = 1e-6
_MAX_POSITIONS = 8192
_THETA = 1e6

Axes = Mapping[str, int]
Tensors = tuple[torch.Tensor, ...]
Make = Callable[[Axes, torch.Generator], torch.Tensor]
Dtype = torch.dtype
_BF16 = torch.bfloat16


@dataclass(frozen=True, kw_only=True, slots=True)
class Peer:
    """One implementation of an operator.

    Attributes:
        call: takes the inputs by position, gives a tensor or several.
        takes: numbers of the inputs it takes, in its order.
        heads_first: whether [batch, tokens, heads, head_dim] is given and returned
            as a view [batch, heads, tokens, head_dim].
        writes_inputs: whether it overwrites inputs or upstream gradients.
    """

    call: Callable[..., Any]
    takes: tuple[int, ...]
    heads_first: bool = False
    writes_inputs: bool = False

    def view(self, tensor: torch.Tensor) -> torch.Tensor:
        """A tensor as this peer takes it, and back."""
        return tensor.transpose(1, 2) if self.heads_first and tensor.dim() == 4 else tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """An operator under comparison.

    Attributes:
        inputs: makes each input; those that get gradients come first.
        gradients: how many inputs get gradients.
        shared: numbers of the inputs that all rotating sets share.
        oracle: fp64 results from all inputs, those with gradients in fp64.
        ours: our public function.
        torch: PyTorch's way.
        result: element type of the results.
    """

    inputs: tuple[Make, ...]
    gradients: int
    shared: frozenset[int] = frozenset()
    oracle: Callable[..., Tensors]
    ours: Peer
    torch: Peer
    result: Dtype = _BF16


def _normal(*axes: str | int) -> Make:
    def make(sizes: Axes, generator: torch.Generator) -> torch.Tensor:
        shape = [sizes[axis] if isinstance(axis, str) else axis for axis in axes]
        device = generator.device
        return torch.randn(shape, generator=generator, dtype=torch.bfloat16, device=device)

    return make


def _ids(sizes: Axes, generator: torch.Generator) -> torch.Tensor:
    shape = (sizes["num_tokens"],)
    device = generator.device
    return torch.randint(0, sizes["vocab_size"], shape, generator=generator, device=device)


def _old_logprob(sizes: Axes, generator: torch.Generator) -> torch.Tensor:
    """Near the log-probability of a token among random logits."""
    noise = torch.randn(sizes["num_tokens"], generator=generator, device=generator.device)
    return 0.1 * noise - math.log(sizes["vocab_size"])


def _positions(sizes: Axes, generator: torch.Generator) -> torch.Tensor:
    return torch.arange(sizes["num_tokens"], device=generator.device)


def _angles(sizes: Axes, tokens: int, generator: torch.Generator) -> torch.Tensor:
    """[tokens, head_dim / 2] in fp64."""
    pairs = sizes["head_dim"] // 2
    places = torch.arange(tokens, dtype=torch.float64, device=generator.device)
    exponents = torch.arange(pairs, dtype=torch.float64, device=generator.device) / pairs
    return places[:, None] * torch.pow(_THETA, -exponents)


def _cache(function: Callable[[torch.Tensor], torch.Tensor]) -> Make:
    return lambda sizes, generator: function(_angles(sizes, _MAX_POSITIONS, generator)).float()


def _doubled(function: Callable[[torch.Tensor], torch.Tensor]) -> Make:
    def make(sizes: Axes, generator: torch.Generator) -> torch.Tensor:
        half = function(_angles(sizes, sizes["num_tokens"], generator))
        return torch.cat((half, half), dim=-1)[None].bfloat16()

    return make


def _rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + EPS) * weight


def _oracle_add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> Tensors:
    exact = x + residual
    # Rounded as the operator defines it; the gradient passes as if it were not.
    total = exact + (exact.bfloat16().double() - exact).detach()
    return _rms(total, weight), total


def _oracle_rope(
    q: torch.Tensor, k: torch.Tensor, positions: torch.Tensor, *caches: torch.Tensor
) -> Tensors:
    cos, sin = (cache[positions].double()[:, None] for cache in caches[:2])  # [tokens, 1, pairs]

    def rotate(x: torch.Tensor) -> torch.Tensor:
        first, second = x.chunk(2, dim=-1)
        return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    return rotate(q), rotate(k)


def _torch_add_rms_norm(x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor) -> Tensors:
    total = x + residual
    return functional.rms_norm(total, weight.shape, weight, EPS), total


def _rotate_half(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def _torch_rope(q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> Tensors:
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return q * cos + _rotate_half(q) * sin, k * cos + _rotate_half(k) * sin


def _chosen(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Log-probabilities of ``ids``, in fp32 or, of fp64 logits, in fp64."""
    wide = logits if logits.dtype == torch.float64 else logits.float()
    return torch.log_softmax(wide, dim=-1).gather(-1, ids[:, None]).squeeze(-1)


def _torch_ratio_kl(
    logits: torch.Tensor, ref_logits: torch.Tensor, ids: torch.Tensor, old: torch.Tensor
) -> Tensors:
    own = _chosen(logits, ids)
    distance = _chosen(ref_logits, ids) - own
    return torch.exp(own - old), torch.expm1(distance) - distance


def _oracle_ratio_kl(
    logits: torch.Tensor, ref_logits: torch.Tensor, ids: torch.Tensor, old: torch.Tensor
) -> Tensors:
    return _torch_ratio_kl(logits, ref_logits.double(), ids, old.double())


_ELEMENTS = _normal("num_tokens", "intermediate_size")
_TOKENS = _normal("num_tokens", "hidden_size")
_WEIGHT = _normal("hidden_size")
_LOGITS = _normal("num_tokens", "vocab_size")

SUBJECTS: Mapping[str, Subject] = {
    "silu": Subject(
        inputs=(_ELEMENTS,),
        gradients=1,
        oracle=lambda x: (x * torch.sigmoid(x),),
        ours=Peer(call=silu, takes=(0,)),
        torch=Peer(call=functional.silu, takes=(0,)),
    ),
    "swiglu": Subject(
        inputs=(_ELEMENTS, _ELEMENTS),
        gradients=2,
        oracle=lambda gate, up: (gate * torch.sigmoid(gate) * up,),
        ours=Peer(call=swiglu, takes=(0, 1)),
        torch=Peer(call=lambda gate, up: functional.silu(gate) * up, takes=(0, 1)),
    ),
    "rms_norm": Subject(
        inputs=(_TOKENS, _WEIGHT),
        gradients=2,
        oracle=lambda x, weight: (_rms(x, weight),),
        ours=Peer(call=lambda x, weight: rms_norm(x, weight, EPS), takes=(0, 1)),
        torch=Peer(
            call=lambda x, weight: functional.rms_norm(x, weight.shape, weight, EPS), takes=(0, 1)
        ),
    ),
    "add_rms_norm": Subject(
        inputs=(_TOKENS, _TOKENS, _WEIGHT),
        gradients=3,
        oracle=_oracle_add_rms_norm,
        ours=Peer(
            call=lambda x, residual, weight: add_rms_norm(x, residual, weight, EPS),
            takes=(0, 1, 2),
        ),
        torch=Peer(call=_torch_add_rms_norm, takes=(0, 1, 2)),
    ),
    "embedding": Subject(
        inputs=(_normal("vocab_size", "hidden_size"), _ids),
        gradients=1,
        shared=frozenset({0}),
        oracle=lambda weight, ids: (functional.embedding(ids, weight),),
        ours=Peer(call=embedding, takes=(1, 0)),
        torch=Peer(call=functional.embedding, takes=(1, 0)),
    ),
    "rope": Subject(
        inputs=(
            _normal(1, "num_tokens", "q_heads", "head_dim"),
            _normal(1, "num_tokens", "k_heads", "head_dim"),
            _positions,
            _cache(torch.cos),
            _cache(torch.sin),
            _doubled(torch.cos),
            _doubled(torch.sin),
        ),
        gradients=2,
        shared=frozenset({2, 3, 4, 5, 6}),
        oracle=_oracle_rope,
        ours=Peer(call=rope, takes=(0, 1, 2, 3, 4)),
        torch=Peer(call=_torch_rope, takes=(0, 1, 5, 6), heads_first=True),
    ),
    "logprob": Subject(
        inputs=(_LOGITS, _ids),
        gradients=1,
        oracle=lambda logits, ids: (_chosen(logits.double(), ids),),
        ours=Peer(call=logprob, takes=(0, 1)),
        torch=Peer(call=_chosen, takes=(0, 1)),
        result=torch.float32,
    ),
    "ratio_kl": Subject(
        inputs=(_LOGITS, _LOGITS, _ids, _old_logprob),
        gradients=1,
        oracle=lambda logits, *rest: _oracle_ratio_kl(logits.double(), *rest),
        ours=Peer(call=ratio_kl, takes=(0, 1, 2, 3)),
        torch=Peer(call=_torch_ratio_kl, takes=(0, 1, 2, 3)),
        result=torch.float32,
    ),
}
"""Every operator under comparison, by name."""
