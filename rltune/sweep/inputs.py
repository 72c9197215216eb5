"""The input battery: named, seeded generators of values that expose a changed order.

Values are made in fp32 on the device and rounded once to the element type, so
equal (generator, seed, shape, device kind) give equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    Generate = Callable[[torch.Generator, tuple[int, ...], torch.device], torch.Tensor]

_SPECIAL_PERIOD = 97
"""One element in about this many is special: most short rows stay finite."""


def _normal(
    generator: torch.Generator, shape: tuple[int, ...], device: torch.device
) -> torch.Tensor:
    import torch

    return torch.randn(shape, generator=generator, device=device)


def _mixed_exponents(
    generator: torch.Generator, shape: tuple[int, ...], device: torch.device
) -> torch.Tensor:
    import torch

    exponents = torch.randint(-120, 121, shape, generator=generator, device=device)
    return torch.ldexp(_normal(generator, shape, device), exponents)


def _cancellation(
    generator: torch.Generator, shape: tuple[int, ...], device: torch.device
) -> torch.Tensor:
    values = _normal(generator, shape, device).mul_(1e4)
    half = shape[-1] // 2
    # The second half undoes the first up to one part in 256: sums are all rounding.
    values[..., half : 2 * half] = -values[..., :half] * (1 + 2.0**-8)
    return values


def _one_hot_huge(
    generator: torch.Generator, shape: tuple[int, ...], device: torch.device
) -> torch.Tensor:
    import torch

    values = _normal(generator, shape, device).mul_(1e-3)
    hot = torch.randint(0, shape[-1], shape[:-1], generator=generator, device=device)
    return values.scatter_(-1, hot.unsqueeze(-1), 3e4)


def _all_equal(
    generator: torch.Generator, shape: tuple[int, ...], device: torch.device
) -> torch.Tensor:
    import torch

    return torch.ones(shape, device=device) * _normal(generator, (1,), device)


def _subnormal(
    generator: torch.Generator, shape: tuple[int, ...], device: torch.device
) -> torch.Tensor:
    return _normal(generator, shape, device).mul_(2.0**-130)


def _sprinkle(
    generator: torch.Generator,
    shape: tuple[int, ...],
    device: torch.device,
    specials: tuple[float, ...],
) -> torch.Tensor:
    import torch

    values = _normal(generator, shape, device)
    where = torch.randint(0, _SPECIAL_PERIOD, shape, generator=generator, device=device)
    for index, special in enumerate(specials):
        values[where == index] = special
    return values


def _signed_zeros(
    generator: torch.Generator, shape: tuple[int, ...], device: torch.device
) -> torch.Tensor:
    return _sprinkle(generator, shape, device, (0.0, -0.0) * 24)


def _infinities(
    generator: torch.Generator, shape: tuple[int, ...], device: torch.device
) -> torch.Tensor:
    return _sprinkle(generator, shape, device, (float("inf"), float("-inf")))


def _nans(generator: torch.Generator, shape: tuple[int, ...], device: torch.device) -> torch.Tensor:
    return _sprinkle(generator, shape, device, (float("nan"),))


def _ascending(
    generator: torch.Generator, shape: tuple[int, ...], device: torch.device
) -> torch.Tensor:
    return _normal(generator, shape, device).sort(dim=-1).values


def _descending(
    generator: torch.Generator, shape: tuple[int, ...], device: torch.device
) -> torch.Tensor:
    return _normal(generator, shape, device).sort(dim=-1, descending=True).values


def _near_ties(
    generator: torch.Generator, shape: tuple[int, ...], device: torch.device
) -> torch.Tensor:
    import torch

    # Odd multiples of 2**-4: products and their sums fall on or beside rounding ties.
    odd = torch.randint(-64, 64, shape, generator=generator, device=device).mul_(2).add_(1)
    return odd.to(torch.float32).mul_(2.0**-4)


_GENERATORS: Mapping[str, Generate] = {
    "normal": _normal,
    "mixed_exponents": _mixed_exponents,
    "cancellation": _cancellation,
    "one_hot_huge": _one_hot_huge,
    "all_equal": _all_equal,
    "subnormal": _subnormal,
    "signed_zeros": _signed_zeros,
    "infinities": _infinities,
    "nans": _nans,
    "ascending": _ascending,
    "descending": _descending,
    "near_ties": _near_ties,
}

BATTERY: tuple[str, ...] = tuple(_GENERATORS)
"""Names of the generators, in the order they are used."""


def generate(name: str, seed: int, tensor: torch.Tensor) -> None:
    """Fill ``tensor`` with the values of one generator.

    Args:
        name: a name in ``BATTERY``.
        seed: any integer; each input of a kernel gets its own.
        tensor: any shape and floating dtype; written in place.
    """
    import torch

    generator = torch.Generator(tensor.device).manual_seed(seed)
    shape = tuple(tensor.shape)
    if tensor.numel():
        tensor.copy_(_GENERATORS[name](generator, shape, tensor.device))
