"""Pins: only launch configs of the kernel's own space, or an error."""

from __future__ import annotations

import pytest

from rltune.core.launch import LaunchConfig
from rltune.core.operator import KernelSpec
from rltune.core.shapes import ShapeKey
from rltune.errors import UsageError
from rltune.runtime.pins import check_names, pinned_config, read_pins, variable_of

BASELINE = LaunchConfig.of(BLOCK=1024, num_warps=4)
CANDIDATES = (
    LaunchConfig.of(BLOCK=512, num_warps=4),
    LaunchConfig.of(BLOCK=512, num_warps=8),
    LaunchConfig.of(BLOCK=512, num_warps=8, maxnreg=64),
)
KERNEL = KernelSpec(
    operator="toy",
    name="forward",
    phase="forward",
    jit="toy:kernel",
    binder="toy:op",
    structural_axes=(),
    dynamic_axis="num_tokens",
    arguments=(),
    grid=lambda axes, config: (1, 1, 1),
    constexprs=lambda axes, dtype, config: {},
    baseline=lambda key: BASELINE,
    candidates=lambda key: CANDIDATES,
)
KEY = ShapeKey.of("bf16", {})


def config_of(text: str) -> LaunchConfig:
    pins = read_pins({"RLTUNE_PIN_TOY_FORWARD": text, "OTHER": "x"})
    return pinned_config(pins[variable_of("toy/forward")], KERNEL, KEY)


def test_pin_names_one_config_of_the_space():
    assert config_of("BLOCK=512,num_warps=4") == CANDIDATES[0]
    assert config_of("BLOCK=1024") == BASELINE
    assert config_of(" maxnreg=64 ") == CANDIDATES[2]


@pytest.mark.parametrize("text", ["BLOCK=256", "BLOCK=512,num_warps=2", "UNKNOWN=1"])
def test_pin_outside_the_space_is_an_error_that_lists_the_space(text):
    with pytest.raises(UsageError, match=r"is no launch config of toy/forward .*BLOCK=1024,w4,s1"):
        config_of(text)


def test_ambiguous_pin_is_an_error_that_lists_what_fits():
    with pytest.raises(UsageError, match="fits several") as caught:
        config_of("BLOCK=512,num_warps=8")
    assert "BLOCK=1024" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["", "BLOCK", "BLOCK=", "=1", "BLOCK=-1", "BLOCK=1,BLOCK=1", "BLOCK=²"]
)
def test_malformed_pin_is_an_error(text):
    with pytest.raises(UsageError, match="expected key=value"):
        read_pins({"RLTUNE_PIN_TOY_FORWARD": text})


def test_pin_of_no_kernel_is_an_error():
    pins = read_pins({"RLTUNE_PIN_TOY_BACKWARD": "BLOCK=1"})
    with pytest.raises(UsageError, match="RLTUNE_PIN_TOY_BACKWARD pins no registered kernel"):
        check_names(pins, ["toy/forward"])
    check_names(pins, ["toy/backward"])
