"""Qualification on the device: what a planted wrong candidate shows, and where."""

import torch

from rltune.core.launch import LaunchConfig
from rltune.runtime.launcher import launch_with
from rltune.sweep import qualify
from rltune.sweep.buffers import CaseBuffers
from rltune_kernels.rms_norm.candidates import row_control
from rltune_kernels.rms_norm.spec import FORWARD

AXES = {"num_tokens": 16, "hidden_size": 4096}
KEY = FORWARD.shape_key("bf16", AXES)


def launcher(config: LaunchConfig) -> qualify.Launch:
    def launch(buffers: CaseBuffers) -> None:
        launch_with(FORWARD, AXES, "bf16", buffers.arguments(), config, None)
        torch.cuda.synchronize()

    return launch


def outputs(config: LaunchConfig, buffers: CaseBuffers) -> dict[str, torch.Tensor]:
    buffers.reset()
    launcher(config)(buffers)
    return {name: data.clone() for name, data in buffers.outputs().items()}


def test_control_is_rejected_on_small_cases_where_bf16_outputs_do_not_show_it():
    """16 rows of 4096: fp32 rstd differs in some, the bf16 output in none."""
    hidden = 0
    for seed in range(12):
        buffers = CaseBuffers(FORWARD, "bf16", AXES, torch.device("cuda"))
        buffers.fill("normal", seed)
        fixed = outputs(FORWARD.baseline(KEY), buffers)
        control = outputs(row_control(KEY), buffers)
        if torch.equal(fixed["rstd_ptr"], control["rstd_ptr"]):
            continue
        baseline = qualify.run_baseline(buffers, launcher(FORWARD.baseline(KEY)), 2)
        assert isinstance(baseline, qualify.BaselineRun)
        found = qualify.check_candidate(buffers, launcher(row_control(KEY)), baseline, 1)
        assert found is not None
        hidden += torch.equal(fixed["y_ptr"], control["y_ptr"])
    assert hidden > 0
