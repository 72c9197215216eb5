"""The measuring process: qualifies and times launches, and may be killed at any time.

``python -m rltune.sweep.worker`` reads one JSON request a line and answers with
events and one result a line. A launch that fails ends the process, so that a
broken context never reaches the next candidate.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TextIO

from rltune.bundle.schema_v1 import Program
from rltune.core.launch import LaunchConfig
from rltune.core.operator import KernelSpec
from rltune.core.shapes import ShapeKey
from rltune.errors import RltuneError
from rltune.sweep import qualify, timing
from rltune.sweep.buffers import CaseBuffers

if TYPE_CHECKING:
    from rltune.runtime.launcher import BoundProgram

FAILED_STATUS: Final = 71
"""Exit status after a launch that failed."""

CONTROL_ID: Final = "A/A control"
"""Launch id of the baseline measured against itself."""

Request = Mapping[str, Any]


class LaunchFailedError(RltuneError):
    """A candidate could not be launched or broke the device."""

    code = "RLT-SWEEP-002"


class Worker:
    """State of one worker process: kernels, device and bound programs.

    Args:
        specs: ``module:function`` giving the operator specs.
        device: ``cpu`` for the interpreter, else such as ``cuda:0``.
        answers: where answers go.
    """

    def __init__(self, specs: str, device: str, answers: TextIO) -> None:
        import torch

        module, function = specs.split(":")
        operators = getattr(importlib.import_module(module), function)()
        self._kernels: dict[str, KernelSpec] = {
            kernel.kernel_id: kernel for spec in operators for kernel in spec.kernels
        }
        self._device = torch.device(device)
        self._answers = answers
        self._bound: dict[str, BoundProgram] = {}
        if self._device.type == "cuda":
            torch.cuda.set_device(self._device)

    def _say(self, message: Mapping[str, Any]) -> None:
        print(json.dumps(message), file=self._answers, flush=True)

    def serve(self, requests: TextIO) -> None:
        """Answer requests until the stream ends."""
        self._say({"ready": True})
        handlers = {"qualify": self._qualify, "measure": self._measure}
        for line in requests:
            request = json.loads(line)
            try:
                result = handlers[request["op"]](request)
            except LaunchFailedError as error:
                self._say({"failed": error.message})
                sys.exit(FAILED_STATUS)
            self._say({"result": result})

    def _program(self, launch: Request) -> BoundProgram | None:
        if self._device.type == "cpu":
            return None
        from rltune.runtime.launcher import bind_program

        program = launch["program"]
        digest = program["digest"]
        if digest not in self._bound:
            binary = Path(program["path"]).read_bytes()
            facts = {name: value for name, value in program.items() if name != "path"}
            self._bound[digest] = bind_program(
                Program(blob="", **facts), binary, self._device.index or 0
            )
        return self._bound[digest]

    def _launcher(self, kernel: KernelSpec, key: ShapeKey, launch: Request) -> timing.LaunchSet:
        from rltune.runtime.launcher import launch_with

        config = LaunchConfig.from_json(launch["launch_config"], "$.launch_config")
        program = self._program(launch)

        def run(buffers: CaseBuffers) -> None:
            launch_with(kernel, buffers.axes, key.dtype, buffers.arguments(), config, program)

        return run

    def _guarded(self, launch_id: str, run: timing.LaunchSet) -> qualify.Launch:
        """``run`` with its launch id announced before, and waited for, after."""

        def guarded(buffers: CaseBuffers) -> None:
            self._say({"begin": launch_id})
            with _launch_errors(launch_id):
                run(buffers)
                self._wait()

        return guarded

    def _wait(self) -> None:
        if self._device.type == "cuda":
            import torch

            torch.cuda.synchronize(self._device)

    def _fits(self, needed_bytes: int) -> bool:
        if self._device.type == "cpu":
            return True
        import torch

        free, _ = torch.cuda.mem_get_info(self._device)
        return needed_bytes < free * 9 // 10

    def _qualify(self, request: Request) -> dict[str, Any]:
        kernel = self._kernels[request["kernel"]]
        if request["witness"]:
            kernel = kernel.witness()
        key = ShapeKey.from_json(request["key"], "$.key")
        axes = {**dict(key.axes), kernel.dynamic_axis: request["tokens"]}
        # Buffers, their pristine copies, and the bytes of two runs.
        if not self._fits(4 * CaseBuffers.needed_bytes(kernel, key.dtype, axes)):
            return {"status": "did not fit"}
        buffers = CaseBuffers(kernel, key.dtype, axes, self._device)
        buffers.fill(request["generator"], request["seed"])
        runs = {
            launch["id"]: self._guarded(launch["id"], self._launcher(kernel, key, launch))
            for launch in request["launches"]
        }
        baseline_id = request["baseline"]
        baseline = qualify.run_baseline(buffers, runs.pop(baseline_id), request["repeats"])
        if isinstance(baseline, qualify.Mismatch):
            return {"status": "baseline", "mismatch": baseline.to_json()}
        outcomes: dict[str, Any] = {}
        for launch_id, run in runs.items():
            found = qualify.check_candidate(buffers, run, baseline, request["repeats"])
            outcomes[launch_id] = found.to_json() if found else None
        return {
            "status": "compared",
            "digests": dict(baseline.digests),
            "compared_bytes": baseline.compared_bytes,
            "rows": baseline.rows,
            "outcomes": outcomes,
        }

    def _measure(self, request: Request) -> dict[str, Any]:
        kernel = self._kernels[request["kernel"]]
        key = ShapeKey.from_json(request["key"], "$.key")
        axes = {**dict(key.axes), kernel.dynamic_axis: request["tokens"]}
        case_bytes = CaseBuffers.needed_bytes(kernel, key.dtype, axes)
        count = timing.buffer_set_count(case_bytes, self._l2_bytes())
        # Each input is kept twice: the buffer and its pristine copy.
        if not self._fits(2 * count * case_bytes):
            return {"status": "did not fit"}
        sets = [CaseBuffers(kernel, key.dtype, axes, self._device) for _ in range(count)]
        for index, buffers in enumerate(sets):
            buffers.fill("normal", index + 1)
            buffers.reset()
        runs = {item["id"]: self._launcher(kernel, key, item) for item in request["launches"]}
        runs[CONTROL_ID] = runs[request["baseline"]]
        for launch_id, run in runs.items():
            self._guarded(launch_id, run)(sets[0])
        self._say({"begin": ""})
        with _launch_errors("timing"):
            if self._device.type == "cpu":
                times = timing.time_wall(runs, sets[0], request["samples"], request["seed"])
            else:
                times = timing.time_cuda(runs, sets, request["samples"], request["seed"])
        return {
            "status": "measured",
            "method": times.method,
            "buffer_sets": times.buffer_sets,
            "cold_ps": {name: list(values) for name, values in times.cold_ps.items()},
            "warm_ps": {name: list(values) for name, values in times.warm_ps.items()},
        }

    def _l2_bytes(self) -> int:
        if self._device.type == "cpu":
            return 0
        import torch

        return int(torch.cuda.get_device_properties(self._device).L2_cache_size)


@contextlib.contextmanager
def _launch_errors(launch_id: str) -> Any:
    """Turn whatever a launch raises into one error; the process ends after it."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - a kernel raises anything, and this process ends
        first_line = str(error).strip().splitlines() or [type(error).__name__]
        raise LaunchFailedError(f"{launch_id}: {first_line[0][:300]}") from None


def main(arguments: Sequence[str]) -> None:
    """Run a worker; ``arguments`` are the specs and the device."""
    # Libraries print; keep the answers' stream to ourselves.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    specs, device = arguments
    Worker(specs, device, answers).serve(sys.stdin)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        main(sys.argv[1:])
