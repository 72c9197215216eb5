"""Programs compiled for sm_90, without a GPU: what the JIT would launch, and row classes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rltune.bundle.schema_v1 import CompileTarget
from rltune.core.launch import LaunchConfig
from rltune.core.operator import KernelSpec
from rltune.core.shapes import ShapeKey
from rltune.sweep.programs import CompiledProgram, CompilePool, CompileRequest
from rltune_kernels import operator_specs
from rltune_kernels.rms_norm.candidates import prune_rows, row_class
from rltune_kernels.rms_norm.spec import DX, FORWARD

SM90 = CompileTarget(backend="cuda", arch=90, warp_size=32)


@pytest.fixture(scope="module")
def pool() -> Iterator[CompilePool]:
    with CompilePool() as workers:
        yield workers


def compiled(
    pool: CompilePool, kernel: KernelSpec, key: ShapeKey, configs: tuple[LaunchConfig, ...]
) -> dict[LaunchConfig, CompiledProgram]:
    requests = [
        CompileRequest(kernel=kernel, key=key, launch_config=item, target=SM90) for item in configs
    ]
    programs = {}
    for request, outcome in pool.compile_all(requests):
        assert isinstance(outcome, CompiledProgram), (request.launch_config, outcome)
        programs[request.launch_config] = outcome
    return programs


def test_jit_compiles_the_declared_program(tmp_path: Path) -> None:
    """Whatever a count's value, 1 and multiples of 16 included."""
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    environment |= {
        "TRITON_DISABLE_LINE_INFO": "1",
        "TRITON_CACHE_DIR": str(tmp_path),
        "RLTUNE_MODE": "off",
    }
    script = Path(__file__).with_name("jit_programs.py")
    answer = subprocess.run(
        [sys.executable, str(script)], env=environment, check=True, capture_output=True, text=True
    )
    rows = [json.loads(line) for line in answer.stdout.splitlines()]
    kernels = {kernel.kernel_id for spec in operator_specs() for kernel in spec.kernels}
    assert {row["kernel"] for row in rows} == kernels
    for row in rows:
        assert row["jit_digest"] == row["digest"], row["kernel"]
        assert row["jit_signature"] == row["signature"], row["kernel"]
        assert row["jit_attributes"] == row["attributes"], row["kernel"]
        assert row["parameters"] == [name for name, _ in row["signature"]], row["kernel"]


@pytest.mark.parametrize(
    ("kernel", "dtype", "hidden_size"),
    [
        (FORWARD, "bf16", 128),
        (FORWARD, "bf16", 257),
        (FORWARD, "bf16", 1000),
        (FORWARD, "bf16", 4096),
        (FORWARD, "fp32", 128),
        (DX, "bf16", 128),
        (DX, "bf16", 257),
        (DX, "bf16", 4096),
    ],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_row_class_is_the_layout_triton_makes(
    pool: CompilePool, kernel: KernelSpec, dtype: str, hidden_size: int
) -> None:
    key = ShapeKey.of(dtype, {"hidden_size": hidden_size})
    fixed, control = kernel.baseline(key), control_of(kernel, key)
    space = kernel.candidates(key)
    tried = (fixed, control, space[0], space[len(space) // 2], space[-1])
    programs = compiled(pool, kernel, key, tried)
    expected = programs[fixed].reductions
    assert len(expected) == 1
    for config, program in programs.items():
        spread = row_class(key, config.knob("ROWS"), config.num_warps)
        text = f"thread={spread.vector} lanes={spread.lanes} warps={spread.warps} "
        assert text in program.reductions[0], config.candidate_id
        assert (program.reductions == expected) == (config != control), config.candidate_id


def control_of(kernel: KernelSpec, key: ShapeKey) -> LaunchConfig:
    assert kernel.control is not None
    return kernel.control(key)


@pytest.mark.parametrize(
    ("kernel", "hidden_size"),
    # dx of 128 columns is left out: its fp32 store pulls the reduction into another class,
    # so that witness does not count and rounded outputs decide.
    [(FORWARD, 128), (FORWARD, 257), (FORWARD, 4096), (DX, 257), (DX, 4096)],
    ids=lambda value: getattr(value, "name", str(value)),
)
def test_the_witness_adds_in_the_same_order(
    pool: CompilePool, kernel: KernelSpec, hidden_size: int
) -> None:
    """An fp32 store must not move the reduction, or comparing the witness proves nothing."""
    key = ShapeKey.of("bf16", {"hidden_size": hidden_size})
    configs = (kernel.baseline(key), kernel.candidates(key)[-1])
    shipped = compiled(pool, kernel, key, configs)
    for config, program in compiled(pool, kernel.witness(), key, configs).items():
        assert program.reductions == shipped[config].reductions


@pytest.mark.parametrize("hidden_size", [128, 257, 4096])
def test_pruned_row_configs_really_add_in_another_order(
    pool: CompilePool, hidden_size: int
) -> None:
    key = ShapeKey.of("bf16", {"hidden_size": hidden_size})
    fixed = FORWARD.baseline(key)
    rows = fixed.knob("ROWS")
    others = tuple(
        LaunchConfig.of(ROWS=rows, STEPS=1, STAGES=1, num_warps=warps)
        for warps in (1, 2, 4, 8, 16)
        if warps != fixed.num_warps
    )
    programs = compiled(pool, FORWARD, key, (fixed, *others))
    for config in others:
        reason = prune_rows(config, key)
        assert reason is not None
        assert reason.startswith("another row class")
        assert programs[config].reductions != programs[fixed].reductions


@pytest.mark.parametrize(
    "kernel",
    [kernel for spec in operator_specs() for kernel in spec.kernels],
    ids=lambda kernel: kernel.kernel_id,
)
def test_fixed_launch_compiles_for_every_type(pool: CompilePool, kernel: KernelSpec) -> None:
    sizes = {"intermediate_size": 63, "hidden_size": 63, "vocab_size": 7}
    sizes |= {"num_heads": 3, "num_key_heads": 1, "head_dim": 31, "rotary_dim": 22}
    sizes |= {"padded_vocab_size": 11, "num_shards": 4}
    sizes |= {"group_bucket": 8, "length_bucket": 128}
    for dtype in ("fp16", "fp32"):
        key = kernel.shape_key(dtype, sizes)
        (program,) = compiled(pool, kernel, key, (kernel.baseline(key),)).values()
        assert program.global_scratch_bytes == 0
        assert program.num_ctas == 1


WRITTEN_OUT = {
    "rms_norm/dw_partial": ShapeKey.of("bf16", {"hidden_size": 128}),
    "rms_norm/dw_fold": ShapeKey.of("bf16", {"hidden_size": 128}),
    "grpo_norm/forward": ShapeKey.of("fp32", {"group_bucket": 1024}),
    "grpo_loss/forward": ShapeKey.of("fp32", {"length_bucket": 1024}),
    "grpo_loss/fold": ShapeKey.of("fp32", {"length_bucket": 128}),
}


@pytest.mark.parametrize("name", list(WRITTEN_OUT))
def test_an_order_that_is_written_out_is_none_of_the_compilers(
    pool: CompilePool, name: str
) -> None:
    kernel = next(k for spec in operator_specs() for k in spec.kernels if k.kernel_id == name)
    key = WRITTEN_OUT[name]
    space = kernel.candidates(key)
    every = space if len(space) < 20 else space[::8]
    programs = [*compiled(pool, kernel, key, (kernel.baseline(key), *every)).values()]
    if kernel.control:
        programs += compiled(pool, kernel.witness(), key, (kernel.baseline(key), *every)).values()
    for program in programs:
        assert program.reductions == ()


@pytest.mark.parametrize("name", ["logprob/forward", "logprob/shard", "ratio_kl/forward"])
def test_lane_kernels_leave_no_order_to_the_compiler(pool: CompilePool, name: str) -> None:
    operator, kernel_name = name.split("/")
    spec = next(item for item in operator_specs() if item.name == operator)
    kernel = spec.kernel(kernel_name)
    sizes = {"vocab_size": 4104, "padded_vocab_size": 4104, "num_shards": 2}
    key = kernel.shape_key("bf16", sizes)
    space = kernel.candidates(key)
    for program in compiled(pool, kernel, key, (kernel.baseline(key), *space[::5])).values():
        assert program.reductions == ()
        assert program.global_scratch_bytes == 0
