"""Launch configs: stable ids, strict decoding."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rltune.core.launch import LaunchConfig, ceil_div, next_power_of_2
from rltune.errors import BundleError

CONFIG = LaunchConfig.of(num_warps=4, num_stages=2, ROWS=8, BLOCK=1024)


def test_knobs_are_sorted_so_that_equal_configs_are_equal() -> None:
    other = LaunchConfig.of(BLOCK=1024, ROWS=8, num_stages=2, num_warps=4)

    assert other == CONFIG
    assert hash(other) == hash(CONFIG)
    assert CONFIG.knob("ROWS") == 8
    with pytest.raises(KeyError):
        CONFIG.knob("WIDTH")


def test_candidate_id_names_every_option_that_is_not_the_plain_one() -> None:
    assert CONFIG.candidate_id == "BLOCK=1024,ROWS=8,w4,s2"
    full = replace(CONFIG, num_ctas=2, maxnreg=128, enable_fp_fusion=True)
    assert full.candidate_id == "BLOCK=1024,ROWS=8,w4,s2,c2,r128,fusion"
    assert LaunchConfig.of(num_warps=1).candidate_id == "w1,s1"


def test_options_are_written_out_in_full() -> None:
    assert CONFIG.options() == {
        "num_warps": 4,
        "num_stages": 2,
        "num_ctas": 1,
        "maxnreg": None,
        "enable_fp_fusion": False,
    }


@pytest.mark.parametrize("config", [CONFIG, replace(CONFIG, knobs=(), num_ctas=2, maxnreg=64)])
def test_json_gives_the_config_back(config: LaunchConfig) -> None:
    assert LaunchConfig.from_json(config.to_json(), "$") == config


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("num_warps", 0, r"\$\.l\.num_warps: expected an integer of at least 1, got 0"),
        ("num_warps", True, "num_warps: expected an integer"),
        ("num_stages", "1", "num_stages: expected an integer"),
        ("num_stages", -1, "num_stages: expected an integer"),
        ("num_ctas", None, "num_ctas: expected an integer"),
        ("maxnreg", 0, "maxnreg: expected an integer"),
        ("enable_fp_fusion", 0, "enable_fp_fusion: expected true or false"),
        ("knobs", [], "knobs: expected an object"),
        ("knobs", {"BLOCK": 1.0}, r"knobs\.BLOCK: expected an integer"),
        ("other", 1, r"\$\.l: expected an object with knobs"),
    ],
)
def test_from_json_is_strict(field: str, value: object, message: str) -> None:
    with pytest.raises(BundleError, match=message):
        LaunchConfig.from_json({**CONFIG.to_json(), field: value}, "$.l")


def test_from_json_refuses_missing_fields_and_other_types() -> None:
    incomplete = CONFIG.to_json()
    del incomplete["maxnreg"]

    values: tuple[object, ...] = (incomplete, None, [], "w4")
    for value in values:
        with pytest.raises(BundleError, match=r"\$: expected an object"):
            LaunchConfig.from_json(value, "$")


@pytest.mark.parametrize(
    ("n", "expected"), [(0, 1), (1, 1), (2, 2), (3, 4), (4, 4), (4095, 4096), (4097, 8192)]
)
def test_next_power_of_2(n: int, expected: int) -> None:
    assert next_power_of_2(n) == expected


@pytest.mark.parametrize(("a", "b", "expected"), [(0, 4, 0), (1, 4, 1), (4, 4, 1), (5, 4, 2)])
def test_ceil_div(a: int, b: int, expected: int) -> None:
    assert ceil_div(a, b) == expected
