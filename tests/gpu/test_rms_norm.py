"""RMSNorm on a GPU: its row classes, its controls, and the drift of a residual stream."""

import statistics

import pytest
import torch

from rltune.core.launch import LaunchConfig
from rltune.runtime.launcher import launch_with
from rltune.sweep.buffers import CaseBuffers
from rltune.sweep.timing import LaunchSet, time_cuda
from rltune_kernels.rms_norm.candidates import row_class, row_control
from rltune_kernels.rms_norm.spec import FORWARD
from tests.gpu.common import DEVICE
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
    fixed = FORWARD.baseline(key)
    candidates = [c for c in FORWARD.candidates(key) if c.knob("STEPS") == 1]
    own = row_class(key, fixed.knob("ROWS"), fixed.num_warps)
    assert {row_class(key, c.knob("ROWS"), c.num_warps) for c in candidates} == {own}

    def launcher(config: LaunchConfig) -> LaunchSet:
        return lambda case: launch_with(FORWARD, axes, "bf16", case.arguments(), config, None)

    buffers = CaseBuffers(FORWARD, "bf16", axes, torch.device(DEVICE))
    buffers.fill("normal", seed=1)
    one_row = LaunchConfig.of(ROWS=1, STEPS=1, STAGES=1, num_warps=1)
    launches = {c.candidate_id: launcher(c) for c in (one_row, *candidates)}
    times = time_cuda(launches, [buffers], samples=9, seed=1)
    median_us = {name: statistics.median(taken) / 1e6 for name, taken in times.cold_ps.items()}
    slow = median_us.pop(one_row.candidate_id)
    assert slow >= 3 * min(median_us.values()), (slow, median_us)


def test_residual_stream_does_not_drift() -> None:
    checks.check_residual_stream(64, 4096, 72, DEVICE)
