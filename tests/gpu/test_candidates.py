"""Candidates of every kernel give the baseline's bytes, in every type and at odd widths."""

from collections.abc import Mapping

import pytest
import torch

from rltune.bundle.schema_v1 import CompileTarget, Program
from rltune.core.launch import LaunchConfig
from rltune.core.operator import KernelSpec
from rltune.core.shapes import ShapeKey
from rltune.runtime.launcher import bind_program, launch_with
from rltune.sweep import qualify
from rltune.sweep.buffers import CaseBuffers
from rltune.sweep.programs import CompiledProgram, CompilePool, CompileRequest
from rltune_kernels import operator_specs
from tests.gpu.common import DEVICE

KERNELS = [kernel for spec in operator_specs() for kernel in spec.kernels]
DTYPES = ("bf16", "fp16", "fp32")
SAMPLES = 6
"""Candidates tried of each space, spread evenly over it; a sweep tries all."""

BUCKETS = (
    {"group_bucket": 8, "length_bucket": 128},
    {"group_bucket": 64, "length_bucket": 512},
    {"group_bucket": 1024, "length_bucket": 1024},
)
SIZES = (
    {
        "hidden_size": 63,
        "intermediate_size": 63,
        "rotary_dim": 6,
        "head_dim": 10,
        "padding": 1,
        **BUCKETS[0],
    },
    {
        "hidden_size": 257,
        "intermediate_size": 257,
        "rotary_dim": 96,
        "head_dim": 128,
        "padding": 7,
        **BUCKETS[1],
    },
    {
        "hidden_size": 4097,
        "intermediate_size": 5376,
        "rotary_dim": 192,
        "head_dim": 256,
        "padding": 50217,
        **BUCKETS[2],
    },
)
INPUTS = ("normal", "cancellation", "mixed_exponents")


Programs = Mapping[tuple[str, ShapeKey, LaunchConfig], CompiledProgram]


def shape_key(kernel: KernelSpec, dtype: str, sizes: dict[str, int]) -> ShapeKey:
    vocab_size = 40
    if "padded_vocab_size" in kernel.structural_axes:
        vocab_size += sizes["padding"] - 1
    given = {
        **sizes,
        "num_heads": 3,
        "num_key_heads": 1,
        "vocab_size": vocab_size,
        "padded_vocab_size": vocab_size + 1,
        "num_shards": 2,
    }
    return kernel.shape_key(dtype, given)


def chosen(kernel: KernelSpec, key: ShapeKey) -> tuple[LaunchConfig, ...]:
    """The baseline, and some candidates."""
    candidates = kernel.candidates(key)
    return kernel.baseline(key), *candidates[:: max(1, len(candidates) // SAMPLES)]


@pytest.fixture(scope="module")
def programs() -> Programs:
    """Every witness, compiled on all cores at once."""
    major, minor = torch.cuda.get_device_capability()
    target = CompileTarget(backend="cuda", arch=10 * major + minor, warp_size=32)
    requests = [
        CompileRequest(kernel=kernel.witness(), key=key, launch_config=config, target=target)
        for kernel in KERNELS
        for dtype in DTYPES
        for key in (shape_key(kernel, dtype, sizes) for sizes in SIZES)
        for config in chosen(kernel, key)
    ]
    made = {}
    with CompilePool() as pool:
        for request, outcome in pool.compile_all(requests):
            assert isinstance(outcome, CompiledProgram), outcome
            made[request.kernel.kernel_id, request.key, request.launch_config] = outcome
    return made


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.kernel_id)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", SIZES, ids=lambda sizes: str(sizes["hidden_size"]))
def test_candidates_give_the_bytes_of_the_fixed_launch(
    kernel: KernelSpec, dtype: str, sizes: dict[str, int], programs: Programs
) -> None:
    """As unrounded witnesses, and over three steps of every loop."""
    key = shape_key(kernel, dtype, sizes)
    count = 6200 if kernel.name == "dw_fold" else 261
    axes = {**dict(key.axes), kernel.dynamic_axis: count}
    witness = kernel.witness()
    launches = [
        launch(witness, key, config, programs[kernel.kernel_id, key, config])
        for config in chosen(kernel, key)
    ]
    for generator in INPUTS:
        buffers = CaseBuffers(witness, dtype, axes, torch.device(DEVICE))
        buffers.fill(generator, 1)
        fixed = qualify.run_baseline(buffers, launches[0], 2)
        assert isinstance(fixed, qualify.BaselineRun), fixed
        for once in launches[1:]:
            assert qualify.check_candidate(buffers, once, fixed, 1) is None


def launch(
    kernel: KernelSpec, key: ShapeKey, config: LaunchConfig, compiled: CompiledProgram
) -> qualify.Launch:
    """A launch of one config on given buffers."""
    facts = {name: getattr(compiled, name) for name in Program.__slots__ if name != "blob"}
    bound = bind_program(Program(blob=compiled.digest, **facts), compiled.binary, 0)

    def once(buffers: CaseBuffers) -> None:
        launch_with(kernel, buffers.axes, key.dtype, buffers.arguments(), config, bound)
        torch.cuda.synchronize()

    return once
