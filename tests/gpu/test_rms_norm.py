"""RMSNorm on a GPU: its row classes, its controls, and the drift of a residual stream."""

import pytest
import torch

from rltune.core.launch import LaunchConfig
from rltune.runtime.launcher import launch_with
from rltune_kernels.rms_norm.candidates import row_class, row_control
from rltune_kernels.rms_norm.spec import FORWARD
from tests.gpu.common import DEVICE, device_us
from tests.unit.kernels import checks


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


def test_narrow_rows_have_a_class_three_times_faster_than_a_row_a_program() -> None:
    """131072 x 128: the fastest candidate against ROWS 1 with one warp, times in one run."""
    axes = {"num_tokens": 131072, "hidden_size": 128}
    key = FORWARD.shape_key("bf16", axes)
    x = torch.randn((131072, 128), device=DEVICE).to(torch.bfloat16)
    weight = torch.randn(128, device=DEVICE).to(torch.bfloat16)
    y, rstd = torch.empty_like(x), torch.empty(131072, device=DEVICE)

    def time_us(config: LaunchConfig) -> float:
        arguments = (x, weight, y, rstd, 131072, 1e-6)
        return device_us(lambda: launch_with(FORWARD, axes, "bf16", arguments, config, None))

    candidates = [c for c in FORWARD.candidates(key) if c.knob("STEPS") == 1]
    fixed = FORWARD.baseline(key)
    own = row_class(key, fixed.knob("ROWS"), fixed.num_warps)
    assert {row_class(key, c.knob("ROWS"), c.num_warps) for c in candidates} == {own}
    one_row = time_us(LaunchConfig.of(ROWS=1, STEPS=1, STAGES=1, num_warps=1))
    fastest = min(time_us(config) for config in candidates)
    assert one_row >= 3 * fastest, (one_row, fastest)


def test_residual_stream_does_not_drift() -> None:
    checks.check_residual_stream(64, 4096, 72, DEVICE)
