"""Device facts: each field is matched exactly and named when it differs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rltune.bundle.schema_v1 import CompileTarget, Device, Driver, RecordedFact, Target
from rltune.runtime.device import (
    DeviceFacts,
    HostFacts,
    differences,
    host_differences,
    probe_device,
)

FACTS = DeviceFacts(
    kind="cuda",
    device=Device(
        name="NVIDIA H200",
        compute_capability="9.0",
        multiprocessor_count=132,
        memory_bytes=150_000_000_000,
        partition="none",
    ),
    driver="580.1",
    compile_target=CompileTarget(backend="cuda", arch=90, warp_size=32),
    triton="3.7.1",
    ptxas="bundled",
    codegen_environment={},
    torch="2.13.0",
    unit="GPU-1",
)
TARGET = FACTS.to_target(evidence="evidence")


def test_target_of_a_device_matches_it():
    assert differences(TARGET, FACTS) == ()


@pytest.mark.parametrize(
    ("facts", "field", "expected", "found"),
    [
        ({"device": {"name": "NVIDIA H200 NVL"}}, "device.name", "NVIDIA H200", "NVIDIA H200 NVL"),
        ({"device": {"compute_capability": "9.1"}}, "device.compute_capability", "9.0", "9.1"),
        ({"device": {"multiprocessor_count": 131}}, "device.multiprocessor_count", "132", "131"),
        ({"device": {"memory_bytes": 1}}, "device.memory_bytes", "150000000000", "1"),
        ({"device": {"partition": "1g.18gb"}}, "device.partition", "none", "1g.18gb"),
        ({"driver": "580.2"}, "driver", "580.1", "580.2"),
        (
            {"compile_target": CompileTarget(backend="cuda", arch=100, warp_size=32)},
            "compile_target",
            "cuda:90:32",
            "cuda:100:32",
        ),
        ({"triton": "3.7.0"}, "triton", "3.7.1", "3.7.0"),
        ({"ptxas": "custom:ff"}, "ptxas", "bundled", "custom:ff"),
        (
            {"codegen_environment": {"DISABLE_LLVM_OPT": "1"}},
            "codegen_environment.DISABLE_LLVM_OPT",
            "unset",
            "1",
        ),
        ({"kind": "interpreter"}, "kind", "cuda", "interpreter"),
    ],
)
def test_one_other_fact_is_one_difference(facts, field, expected, found):
    device = replace(FACTS.device, **facts.get("device", {}))
    other = replace(FACTS, **{**facts, "device": device})
    (difference,) = differences(TARGET, other)
    assert (difference.field, difference.expected, difference.found) == (field, expected, found)
    assert str(difference) == f"{field}: expected {expected}, found {found}"


@pytest.mark.parametrize("fact", ["torch", "unit"])
def test_torch_and_unit_bind_only_where_the_target_says_so(fact):
    other = replace(FACTS, torch="else", unit="else")
    assert differences(TARGET, other) == ()
    record = RecordedFact(value=getattr(FACTS, fact), match=True)
    bound = replace(TARGET, torch=record) if fact == "torch" else replace(TARGET, unit=record)
    assert [item.field for item in differences(bound, other)] == [fact]


def test_any_listed_driver_matches_and_all_are_named_otherwise():
    drivers = tuple(Driver(version=version, evidence="e") for version in ("570.1", "580.1"))
    target = replace(TARGET, drivers=drivers)
    assert differences(target, FACTS) == ()
    (difference,) = differences(target, replace(FACTS, driver="590.1"))
    assert (difference.expected, difference.found) == ("570.1 or 580.1", "590.1")


def interpreter_target() -> Target:
    return probe_device(None, {}).to_target(evidence="evidence")


def test_interpreter_bundle_never_matches_a_gpu_and_the_other_way_round():
    assert [item.field for item in differences(interpreter_target(), FACTS)] == ["kind"]
    assert [item.field for item in differences(TARGET, probe_device(None, {}))] == ["kind"]
    assert differences(interpreter_target(), probe_device(None, {})) == ()


def host_of(models: tuple[tuple[str, str], ...] = (), driver: str = "580.1") -> HostFacts:
    interpreter = replace(probe_device(None, {}), triton="3.7.1")
    return HostFacts(driver=driver, models=models, interpreter=interpreter)


def test_host_facts_speak_against_a_target_before_any_device_is_used():
    assert host_differences(TARGET, host_of()) == ()
    assert host_differences(TARGET, host_of((("NVIDIA H200", "9.0"),))) == ()
    other = host_differences(TARGET, host_of((("NVIDIA L4", "8.9"),), driver="570.1"))
    assert [(item.field, item.found) for item in other] == [
        ("device.name", "NVIDIA L4 8.9"),
        ("driver", "570.1"),
    ]


def test_host_facts_cannot_speak_about_a_partition():
    target = replace(TARGET, device=replace(TARGET.device, partition="1g.18gb"))
    assert host_differences(target, host_of((("NVIDIA L4", "8.9"),))) == ()
