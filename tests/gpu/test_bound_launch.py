"""Bound launches on a real device: bytes, streams, capture, threads, the caller's device."""

from __future__ import annotations

import hashlib
import threading

import pytest

from rltune.bundle.schema_v1 import Program
from rltune.core.launch import LaunchConfig
from rltune.runtime.launcher import bind_program, launch_with
from rltune_kernels.silu.spec import FORWARD

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

AXES = {"num_tokens": 33, "intermediate_size": 4096}
CONFIG = LaunchConfig.of(BLOCK=2048, STEPS=1, STAGES=1, num_warps=8)


@pytest.fixture(scope="module")
def program():
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton.compiler import compile as compile_source

    from rltune_kernels.silu import kernel

    major, minor = torch.cuda.get_device_capability()
    constexprs = FORWARD.constexprs(AXES, "bf16", CONFIG)
    source = ASTSource(
        fn=kernel._silu_fwd_kernel,
        signature=FORWARD.signature("bf16", constexprs),
        constexprs={
            (kernel._silu_fwd_kernel.arg_names.index(n),): v for n, v in constexprs.items()
        },
        attrs={(i,): [["tt.divisibility", 16]] for i in range(len(FORWARD.tensors))},
    )
    built = compile_source(
        source, target=GPUTarget("cuda", major * 10 + minor, 32), options=CONFIG.options()
    )
    binary = built.asm["cubin"]
    record = Program(
        digest=hashlib.sha256(binary).hexdigest(),
        blob="program",
        entry=built.metadata.name,
        num_warps=built.metadata.num_warps,
        num_ctas=1,
        shared_bytes=built.metadata.shared,
        global_scratch_bytes=0,
    )
    return record, binary


def buffers():
    x = torch.randn(33, 4096, device="cuda", dtype=torch.bfloat16)
    return x, torch.full_like(x, float("nan"))


def fixed(x):
    y = torch.full_like(x, float("nan"))
    launch_with(
        FORWARD, AXES, "bf16", (x, y, 33), FORWARD.baseline(FORWARD.shape_key("bf16", AXES)), None
    )
    return y


def same_bytes(left, right) -> bool:
    return bool(torch.equal(left.view(torch.int16), right.view(torch.int16)))


def test_bound_launch_gives_the_bytes_of_the_fixed_launch(program):
    bound = bind_program(program[0], program[1], 0)
    x, y = buffers()
    launch_with(FORWARD, AXES, "bf16", (x, y, 33), CONFIG, bound)
    assert same_bytes(y, fixed(x))


def test_program_is_loaded_and_launched_while_a_graph_is_captured(program):
    x, y = buffers()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        launch_with(
            FORWARD, AXES, "bf16", (x, y, 33), CONFIG, bind_program(program[0], program[1], 0)
        )
    x.copy_(torch.randn_like(x))
    graph.replay()
    assert same_bytes(y, fixed(x))


def test_launch_from_a_thread_that_never_used_the_device(program):
    bound = bind_program(program[0], program[1], 0)
    x, y = buffers()
    torch.cuda.synchronize()
    failures: list[BaseException] = []

    def work() -> None:
        try:
            launch_with(FORWARD, AXES, "bf16", (x, y, 33), CONFIG, bound)
            torch.cuda.synchronize()
        except BaseException as error:  # noqa: BLE001 - reported below
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert failures == []
    assert same_bytes(y, fixed(x))


def test_launch_goes_to_the_current_stream(program):
    bound = bind_program(program[0], program[1], 0)
    x, y = buffers()
    assert torch.isnan(y).all()  # loads the check's own kernels, which would wait for the device
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(500_000_000)
        launch_with(FORWARD, AXES, "bf16", (x, y, 33), CONFIG, bound)
    assert torch.isnan(y).all()
    side.synchronize()
    assert same_bytes(y, fixed(x))


def test_device_facts_match_their_own_target():
    from rltune.runtime.device import differences, host_differences, probe_device, probe_host_facts

    facts = probe_device(0)
    target = facts.to_target(evidence="evidence")
    assert differences(target, probe_device(0)) == ()
    assert host_differences(target, probe_host_facts()) == ()
    assert facts.driver != "none"
    assert facts.device.multiprocessor_count > 0
    assert facts.unit != "none"
