"""The fixed launch of rms_norm on a GPU: accuracy, repeatability, layouts, capture, compilation."""

import pytest
import torch

from rltune.core.launch import LaunchConfig
from rltune.runtime.launcher import launch_with
from rltune_kernels.rms_norm.candidates import row_control
from rltune_kernels.rms_norm.spec import FORWARD
from tests.gpu import common
from tests.gpu.common import DEVICE, every_dtype, every_width
from tests.unit.kernels import checks


@every_dtype
@every_width
def test_agrees_with_fp64(dtype: torch.dtype, width: int) -> None:
    common.check_many_rows("rms_norm", dtype, width)


@every_dtype
def test_bytes_are_repeatable(dtype: torch.dtype) -> None:
    common.check_repeatable("rms_norm", dtype)


@every_dtype
@every_width
def test_layouts_change_no_byte(dtype: torch.dtype, width: int) -> None:
    checks.check_layouts("rms_norm", 65, width, dtype, DEVICE)
    checks.check_expanded("rms_norm", 65, width, dtype, DEVICE)


@every_dtype
@every_width
def test_rows_do_not_depend_on_their_batch(dtype: torch.dtype, width: int) -> None:
    checks.check_batch_invariance("rms_norm", 131, width, dtype, DEVICE)


def test_zero_rows_give_empty_results() -> None:
    checks.check_empty("rms_norm", 2520, torch.bfloat16, DEVICE)


@every_dtype
def test_graph_capture_gives_the_eager_bytes(dtype: torch.dtype) -> None:
    common.check_graph("rms_norm", dtype)


def test_compiled_call_is_one_graph() -> None:
    checks.check_compiled("rms_norm", DEVICE, "aot_eager")


@pytest.mark.parametrize("num_tokens", [524288, 524289])
def test_offsets_are_64_bit(num_tokens: int) -> None:
    common.check_beyond_32_bits("rms_norm", num_tokens)


@pytest.mark.parametrize("hidden_size", [128, 257, 4096])
def test_control_changes_rstd_and_candidates_do_not(hidden_size: int) -> None:
    """The planted candidate is visible in fp32; every other one gives the baseline's bytes."""
    key = FORWARD.shape_key("bf16", {"hidden_size": hidden_size})
    axes = {"hidden_size": hidden_size, "num_tokens": 4096}
    x = torch.randn((4096, hidden_size), device=DEVICE).to(torch.bfloat16)
    weight = torch.ones(hidden_size, device=DEVICE, dtype=torch.bfloat16)

    def run(config: LaunchConfig) -> tuple[bytes, bytes]:
        y, rstd = torch.empty_like(x), torch.empty(4096, device=DEVICE)
        launch_with(FORWARD, axes, "bf16", (x, weight, y, rstd, 4096, 1e-6), config, None)
        return checks.raw(y), checks.raw(rstd)

    fixed = run(FORWARD.baseline(key))
    for config in FORWARD.candidates(key)[:: 1 if hidden_size == 4096 else 8]:
        assert run(config) == fixed, config.candidate_id
    assert run(row_control(key))[1] != fixed[1]
