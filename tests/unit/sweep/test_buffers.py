"""Buffers and comparison: guard zones, poison, restoring, first difference."""

import pytest
import torch

from rltune.core.launch import LaunchConfig
from rltune.core.operator import KernelSpec, Scalar, Tensor
from rltune.sweep import qualify
from rltune.sweep.buffers import GUARD_BYTES, CaseBuffers, GuardedBuffer, digest_bytes
from rltune.sweep.inputs import BATTERY, generate

CPU = torch.device("cpu")


def _grid(axes, launch):
    return (1, 1, 1)


def _constexprs(axes, dtype, launch):
    return {}


def _baseline(key):
    return LaunchConfig.of(num_warps=4)


def _candidates(key):
    return ()


def kernel(**changes):
    fields = {
        "operator": "toy",
        "name": "forward",
        "phase": "forward",
        "jit": "toy:kernel",
        "binder": "toy:bind",
        "structural_axes": ("width",),
        "dynamic_axis": "num_tokens",
        "arguments": (
            Tensor(name="x_ptr", axes=("num_tokens", "width")),
            Tensor(name="y_ptr", axes=("num_tokens", "width"), role="out"),
            Tensor(name="sum_ptr", axes=("width",), role="in_out", values="zero", dtype="fp32"),
            Scalar(name="num_tokens", dtype="i64", source="num_tokens"),
        ),
        "grid": _grid,
        "constexprs": _constexprs,
        "baseline": _baseline,
        "candidates": _candidates,
    }
    return KernelSpec(**{**fields, **changes})


def buffers():
    made = CaseBuffers(kernel(), "bf16", {"num_tokens": 3, "width": 8}, CPU)
    made.fill("normal", 1)
    return made


def run_baseline(case, launch):
    found = qualify.run_baseline(case, launch, 2)
    assert isinstance(found, qualify.BaselineRun)
    return found


def copy_launch(case):
    x, y, total, _ = case.arguments()
    y.copy_(x)
    total.add_(x.float().sum(0))


def test_equal_candidate_passes_and_everything_is_compared():
    case = buffers()
    baseline = run_baseline(case, copy_launch)
    assert baseline.compared_bytes == 3 * 8 * 2 + 8 * 4
    assert qualify.check_candidate(case, copy_launch, baseline, 2) is None


def test_in_place_buffer_is_restored_before_each_launch():
    case = buffers()
    first = qualify.run_baseline(case, copy_launch, 5)
    assert isinstance(first, qualify.BaselineRun)  # would be unstable if sums piled up


def run_wrong(change):
    case = buffers()
    baseline = run_baseline(case, copy_launch)

    def wrong(buffers):
        copy_launch(buffers)
        change(*buffers.arguments()[:3])

    return qualify.check_candidate(case, wrong, baseline, 2)


def test_negative_zero_is_another_byte():
    case = buffers()
    baseline = run_baseline(case, _store(0.0))
    found = qualify.check_candidate(case, _store(-0.0), baseline, 1)
    assert found is not None
    assert found.kind == "bytes"
    assert "y_ptr[0, 0]" in found.text


def _store(value):
    def launch(case):
        case.arguments()[1].fill_(value)

    return launch


def test_unwritten_output_keeps_its_poison_and_is_caught():
    case = buffers()
    baseline = run_baseline(case, copy_launch)

    def lazy(buffers):
        x, y, total, _ = buffers.arguments()
        y[:2].copy_(x[:2])
        total.add_(x.float().sum(0))

    found = qualify.check_candidate(case, lazy, baseline, 1)
    assert found is not None
    assert "y_ptr[2, 0]" in found.text
    assert found.rows == 1


def test_changed_input_is_damage():
    found = run_wrong(lambda x, y, total: x.add_(1))
    assert found is not None
    assert found.kind == "damage"
    assert "x_ptr" in found.text


@pytest.mark.parametrize("offset", [-1, 3 * 8])
def test_write_into_a_guard_zone_is_damage(offset):
    def overrun(x, y, total):
        y.as_strided((1,), (1,), y.storage_offset() + offset).fill_(1)

    found = run_wrong(overrun)
    assert found is not None
    assert found.kind == "damage"
    assert "outside y_ptr" in found.text


def test_unstable_candidate_is_told_from_a_wrong_one():
    case = buffers()
    baseline = run_baseline(case, copy_launch)
    calls = []

    def unstable(buffers):
        copy_launch(buffers)
        calls.append(1)
        if len(calls) == 2:
            buffers.arguments()[1][1, 2] += 1

    found = qualify.check_candidate(case, unstable, baseline, 2)
    assert found is not None
    assert found.kind == "unstable"


def test_baseline_that_does_not_repeat_itself_is_refused():
    case = buffers()
    found = qualify.run_baseline(case, lambda b: b.arguments()[1].copy_(torch.randn(3, 8)), 2)
    assert isinstance(found, qualify.Mismatch)
    assert "does not repeat itself" in found.text


def test_allocation_is_aligned_and_guarded():
    buffer = GuardedBuffer.allocate((3, 5), "bf16", CPU)
    assert buffer.tensor.data_ptr() % 256 == 0
    assert buffer.storage.numel() >= 30 + 2 * GUARD_BYTES
    assert buffer.guards_intact()


def test_large_digest_sees_every_byte(monkeypatch):
    monkeypatch.setattr("rltune.sweep.buffers._WHOLE_DIGEST_BYTES", 16)
    data = torch.zeros(3 * 4096 + 40, dtype=torch.uint8)
    digests = {digest_bytes(data)}
    for index in (0, 4095, 8192, 3 * 4096 + 39):
        data[index] = 1
        digests.add(digest_bytes(data))
    data[8192], data[4096] = 0, 1  # the same bytes at another place
    digests.add(digest_bytes(data))
    assert len(digests) == 6


@pytest.mark.parametrize("name", BATTERY)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_battery_is_reproducible_and_seeded(name, dtype):
    def fill(seed):
        tensor = torch.empty((7, 130), dtype=dtype)
        generate(name, seed, tensor)
        return tensor.view(torch.uint8)

    assert torch.equal(fill(1), fill(1))
    assert not torch.equal(fill(1), fill(2))


def test_battery_holds_the_values_it_names():
    def values(name, dtype=torch.float32):
        tensor = torch.empty((64, 256), dtype=dtype)
        generate(name, 3, tensor)
        return tensor

    assert values("nans").isnan().any()
    assert values("infinities").isinf().any()
    zeros = values("signed_zeros")
    assert (zeros.view(torch.int32) == -(2**31)).any()
    assert (zeros.view(torch.int32) == 0).any()
    tiny = values("subnormal").abs()
    assert ((tiny > 0) & (tiny < torch.finfo(torch.float32).tiny)).any()
    mixed = values("mixed_exponents").abs().double()
    assert mixed.max() / mixed[mixed > 0].min() > 2.0**200
