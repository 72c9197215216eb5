"""The fixed launch of silu on a GPU, over every input there is."""

import pytest
import torch

from rltune_kernels.silu import silu
from tests.gpu.common import DEVICE
from tests.unit.kernels import checks

CHUNK = 2**28


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_every_16_bit_input_is_within_half_an_ulp(dtype: torch.dtype) -> None:
    bits = torch.arange(-(2**15), 2**15, device=DEVICE).to(torch.int16)
    x = bits.view(dtype).view(64, 1024)
    assert checks.silu_error(x, silu(x)) <= checks.HALF_ULP


def test_every_32_bit_input_is_within_half_an_ulp() -> None:
    for first in range(-(2**31), 2**31, CHUNK):
        bits = torch.arange(first, first + CHUNK, device=DEVICE).to(torch.int32)
        x = bits.view(torch.float32).view(-1, 4096)
        assert checks.silu_error(x, silu(x)) <= checks.HALF_ULP


def test_small_negative_results_are_kept() -> None:
    x = torch.linspace(-10, -6.5, 57, device=DEVICE).to(torch.bfloat16)[None]
    assert bool((silu(x) < 0).all())
