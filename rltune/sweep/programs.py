"""Compiling programs: worker processes in a cleaned environment, answers by digest."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import IO, Any, Self

import rltune
from rltune.bundle.schema_v1 import CompileTarget
from rltune.core.launch import LaunchConfig
from rltune.core.operator import KernelSpec
from rltune.core.shapes import ShapeKey
from rltune.errors import EnvironmentUnfitError

_KEPT_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "TMPDIR", "LANG", "LC_ALL")
_COMPILE_TIMEOUT_S = 300.0


@dataclass(frozen=True, kw_only=True, slots=True)
class CompileRequest:
    """What decides a program: kernel, structural key, launch config, target."""

    kernel: KernelSpec
    key: ShapeKey
    launch_config: LaunchConfig
    target: CompileTarget

    def to_json(self) -> dict[str, object]:
        """The request as the worker reads it."""
        axes = dict(self.key.axes)
        constexprs = dict(self.kernel.constexprs(axes, self.key.dtype, self.launch_config))
        return {
            "jit": self.kernel.jit,
            "signature": self.kernel.signature(self.key.dtype, constexprs),
            "constexprs": constexprs,
            "options": self.launch_config.options(),
            "target": [self.target.backend, self.target.arch, self.target.warp_size],
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class CompiledProgram:
    """A program as compiled.

    Attributes:
        digest: hex sha256 of ``binary``.
        binary: the cubin.
        entry: kernel function in the binary.
        num_warps: warps per program.
        num_ctas: programs per cluster.
        shared_bytes: dynamic shared memory of a launch.
        global_scratch_bytes: scratch memory per program.
        reductions: projected reduction layouts, in program order.
    """

    digest: str
    binary: bytes
    entry: str
    num_warps: int
    num_ctas: int
    shared_bytes: int
    global_scratch_bytes: int
    reductions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CompileFailed:
    """The compiler refused; ``reason`` is what it said."""

    reason: str


CompileOutcome = CompiledProgram | CompileFailed


def package_folders() -> tuple[str, ...]:
    """Folders of the packages a compile worker needs: rltune and the kernels."""
    import importlib.util

    found = importlib.util.find_spec("rltune_kernels")
    if found is None or not found.submodule_search_locations:
        raise EnvironmentUnfitError(
            "the package rltune_kernels is not installed here",
            advice="Install the wheel, or run from a checkout's environment.",
        )
    return str(Path(rltune.__file__).parent), next(iter(found.submodule_search_locations))


class CompileWorker:
    """One worker process; compiles one program at a time.

    Raises:
        EnvironmentUnfitError: the interpreter does not start or holds no Triton.
    """

    def __init__(self, python: str, cache_dir: str) -> None:
        script = Path(__file__).with_name("compile_worker.py")
        environment = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
        environment |= {
            "TRITON_DISABLE_LINE_INFO": "1",
            "TRITON_CACHE_DIR": cache_dir,
            "HOME": cache_dir,
            "RLTUNE_MODE": "off",
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        # -I: neither the working directory nor PYTHONPATH may shadow Triton.
        command = [python, "-I", str(script), *package_folders()]
        self._messages = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the worker
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._messages,
                env=environment,
                text=True,
            )
        except OSError as error:
            self._messages.close()
            raise EnvironmentUnfitError(
                f"{python}: cannot be run: {error.strerror}",
                advice="Name a Python interpreter that has Triton installed.",
            ) from None
        greeting = self._stream(self._process.stdout).readline()
        if not greeting:
            self._process.wait()
            self._messages.seek(0)
            tail = self._messages.read().strip().splitlines()[-1:]
            self.close()
            raise EnvironmentUnfitError(
                f"{python}: the compile worker did not start: {''.join(tail) or 'no message'}",
                advice="Name a Python interpreter that has Triton installed.",
            )
        self.triton: str = json.loads(greeting)["triton"]

    @staticmethod
    def _stream(stream: IO[str] | None) -> IO[str]:
        if stream is None:
            raise EnvironmentUnfitError("a compile worker has no pipe")
        return stream

    def compile(self, request: CompileRequest) -> CompileOutcome:
        """Compile one program; a compiler that dies is a failed candidate."""
        watchdog = threading.Timer(_COMPILE_TIMEOUT_S, self._process.kill)
        watchdog.start()
        try:
            print(json.dumps(request.to_json()), file=self._stream(self._process.stdin), flush=True)
            reply = self._stream(self._process.stdout).readline()
        except BrokenPipeError:
            reply = ""
        finally:
            watchdog.cancel()
        if not reply:
            return CompileFailed(f"the compiler died with status {self._process.wait()}")
        return _decode(json.loads(reply))

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def close(self) -> None:
        """End the process and its pipes."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._messages):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def _decode(reply: Mapping[str, Any]) -> CompileOutcome:
    if "error" in reply:
        return CompileFailed(str(reply["error"]))
    return CompiledProgram(
        digest=reply["digest"],
        binary=base64.b64decode(reply["binary"]),
        entry=reply["entry"],
        num_warps=reply["num_warps"],
        num_ctas=reply["num_ctas"],
        shared_bytes=reply["shared_bytes"],
        global_scratch_bytes=reply["global_scratch_bytes"],
        reductions=tuple(reply["reductions"]),
    )


class CompilePool:
    """Compile workers on all cores. A worker that dies is replaced.

    Attributes:
        triton: version of the workers' Triton.
    """

    def __init__(self, *, python: str = sys.executable, size: int | None = None) -> None:
        self._python = python
        self._cache = tempfile.TemporaryDirectory(prefix="rltune-compile-")
        self._free: SimpleQueue[CompileWorker] = SimpleQueue()
        self._size = size or os.cpu_count() or 1
        self._threads = ThreadPoolExecutor(self._size)
        self._workers: list[CompileWorker] = []
        try:
            for worker in self._threads.map(lambda _: self._start(), range(self._size)):
                self._free.put(worker)
        except EnvironmentUnfitError:
            self.close()
            raise
        self.triton = self._workers[0].triton

    def _start(self) -> CompileWorker:
        worker = CompileWorker(self._python, self._cache.name)
        self._workers.append(worker)
        return worker

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all workers and remove their cache."""
        for worker in self._workers:
            worker.close()
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._cache.cleanup()

    def _compile(self, request: CompileRequest) -> CompileOutcome:
        worker = self._free.get()
        try:
            return worker.compile(request)
        finally:
            self._free.put(worker if worker.alive else self._start())

    def compile_all(
        self, requests: Sequence[CompileRequest]
    ) -> Iterator[tuple[CompileRequest, CompileOutcome]]:
        """Compile in parallel and yield each outcome as it comes."""
        futures: dict[Future[CompileOutcome], CompileRequest] = {
            self._threads.submit(self._compile, request): request for request in requests
        }
        for future in as_completed(futures):
            yield futures[future], future.result()
