"""Plain PyTorch oracle of RoPE, in fp64, and positions and caches that try its edges."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from rltune.core.operator import Axes

_THETA = 1e6
_SEGMENT_TOKENS = 17
"""Mean length of the packed sequences that a sweep is given."""

_EDGE_PERIOD = 16
"""About one position in this many is an edge case."""


def forward(
    x: torch.Tensor, positions: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Rotated heads of x [num_tokens, heads, head_dim] in fp64; positions [num_tokens]."""
    max_positions, num_pairs = cos.shape
    inside = (positions >= 0) & (positions < max_positions)
    y = x.double()
    first, second = y[..., :num_pairs], y[..., num_pairs : 2 * num_pairs]
    rows = positions[inside]
    c, s = cos[rows].double()[:, None], sin[rows].double()[:, None]  # [inside, 1, num_pairs]
    rotated = torch.zeros_like(y[..., : 2 * num_pairs])
    rotated[inside] = torch.cat(
        (first[inside] * c - second[inside] * s, second[inside] * c + first[inside] * s), dim=-1
    )
    return torch.cat((rotated, y[..., 2 * num_pairs :]), dim=-1)


def backward(
    dy: torch.Tensor, positions: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor
) -> torch.Tensor:
    """Gradient of such heads [num_tokens, heads, head_dim] in fp64; positions [num_tokens]."""
    return forward(dy, positions, cos, -sin)


def caches(
    max_positions: int, num_pairs: int, device: torch.device | str
) -> tuple[torch.Tensor, torch.Tensor]:
    """(cos, sin) of p * theta**(-i / num_pairs), each [max_positions, num_pairs] fp32."""
    exponents = torch.arange(num_pairs, dtype=torch.float64, device=device) / max(num_pairs, 1)
    places = torch.arange(max_positions, dtype=torch.float64, device=device)
    angles = places[:, None] * torch.pow(_THETA, -exponents)
    return angles.cos().float(), angles.sin().float()


def prepare(tensors: Mapping[str, torch.Tensor], axes: Axes, seed: int) -> None:
    """Fill the caches with rotations, and positions with packed sequences and edges."""
    positions = tensors["positions_ptr"]
    max_positions = axes["max_positions"]
    cos, sin = caches(max_positions, axes["num_pairs"], positions.device)
    tensors["cos_ptr"].copy_(cos)
    tensors["sin_ptr"].copy_(sin)
    _fill_positions(positions, max_positions, seed)


def _fill_positions(positions: torch.Tensor, max_positions: int, seed: int) -> None:
    device, shape = positions.device, tuple(positions.shape)
    generator = torch.Generator(device).manual_seed(seed)
    tokens = torch.arange(positions.numel(), device=device)
    starts = torch.randint(0, _SEGMENT_TOKENS, shape, generator=generator, device=device) == 0
    last_start = torch.cummax(torch.where(starts, tokens, 0), dim=0).values
    positions.copy_((tokens - last_start) % max_positions)
    edges = (-1, max_positions, max_positions - 1, -(2**63), 2**63 - 1)
    place = torch.randint(0, _EDGE_PERIOD * len(edges), shape, generator=generator, device=device)
    for index, edge in enumerate(edges):
        positions.masked_fill_(place == index, edge)
