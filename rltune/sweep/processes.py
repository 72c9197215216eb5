"""The sweep's side of a measuring process: requests, deadlines, death, restart."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from queue import Empty, Queue
from typing import Any, Literal

from rltune.errors import EnvironmentUnfitError
from rltune.runtime.environment import VALUE_VARIABLES

_START_TIMEOUT_S = 180.0
_LAST_WORDS_TIMEOUT_S = 5.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Lost:
    """A request that gave no result.

    Attributes:
        cause: ``failed`` (a launch raised), ``died`` or ``timed out``.
        launch_id: launch in hand when it happened; empty if none.
        text: what the worker said last.
    """

    cause: Literal["failed", "died", "timed out"]
    launch_id: str
    text: str


class WorkerProcess:
    """One worker, started on first use and again after each death.

    Args:
        specs: ``module:function`` giving the operator specs.
        device: ``cpu`` for the interpreter, else such as ``cuda:0``.
    """

    def __init__(self, specs: str, device: str) -> None:
        self._command = [sys.executable, "-m", "rltune.sweep.worker", specs, device]
        self._interpreted = device == "cpu"
        self._process: subprocess.Popen[str] | None = None
        self._lines: Queue[str | None] = Queue()
        self._errors: list[str] = []
        self._error_reader = threading.Thread()

    def _environment(self) -> dict[str, str]:
        environment = {
            name: value for name, value in os.environ.items() if name not in VALUE_VARIABLES
        }
        environment.pop("TRITON_INTERPRET", None)
        environment["RLTUNE_MODE"] = "off"
        # What this process can import, the worker can, wherever it is started.
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        if self._interpreted:
            environment["TRITON_INTERPRET"] = "1"
        return environment

    def start(self) -> None:
        """Start the process and wait until it is ready.

        Raises:
            EnvironmentUnfitError: it did not come up; names its last message.
        """
        self._lines = Queue()
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment(),
            text=True,
        )
        self._errors = []
        threading.Thread(target=self._read, args=(self._process, self._lines), daemon=True).start()
        self._error_reader = threading.Thread(
            target=self._read_errors, args=(self._process,), daemon=True
        )
        self._error_reader.start()
        try:
            message = self._next(_START_TIMEOUT_S)
        except Empty:
            message = None
        if message is None or "ready" not in message:
            self.close()
            raise EnvironmentUnfitError(
                f"the measuring process did not start: {self._last_error()}",
                advice="Run `python -c 'import torch, triton'` in this environment.",
            )

    @staticmethod
    def _read(process: subprocess.Popen[str], lines: Queue[str | None]) -> None:
        if process.stdout is not None:
            with process.stdout as stream:
                for line in stream:
                    lines.put(line)
        lines.put(None)

    def _read_errors(self, process: subprocess.Popen[str]) -> None:
        if process.stderr is None:
            return
        with process.stderr as stream:
            for line in stream:
                self._errors = [*self._errors[-20:], line.rstrip()]

    def _last_error(self) -> str:
        """What an ended process said last."""
        self._error_reader.join(_LAST_WORDS_TIMEOUT_S)
        return self._errors[-1] if self._errors else "no message"

    def _next(self, timeout_s: float) -> dict[str, Any] | None:
        line = self._lines.get(timeout=timeout_s)
        if line is None:
            return None
        message: dict[str, Any] = json.loads(line)
        return message

    def request(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any] | Lost:
        """Send a request and wait for its result.

        Args:
            request: see :mod:`rltune.sweep.worker`.
            timeout_s: longest silence; each event starts it anew.
        """
        if self._process is None or self._process.poll() is not None:
            self.start()
        process = self._process
        in_hand = ""
        with contextlib.suppress(BrokenPipeError):
            if process is not None and process.stdin is not None:
                print(json.dumps(request), file=process.stdin, flush=True)
        while True:
            try:
                message = self._next(timeout_s)
            except Empty:
                self.close()
                return Lost(
                    cause="timed out", launch_id=in_hand, text=f"no answer in {timeout_s:g} s"
                )
            if message is None:
                self.close()
                return Lost(cause="died", launch_id=in_hand, text=self._last_error())
            if "begin" in message:
                in_hand = message["begin"]
            elif "failed" in message:
                self.close()
                return Lost(cause="failed", launch_id=in_hand, text=message["failed"])
            else:
                result: dict[str, Any] = message["result"]
                return result

    def close(self) -> None:
        """End the process; a later request starts a fresh one."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        # Each reading thread closes its own stream at its end.
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()
