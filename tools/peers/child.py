"""The measuring process: every case in one mode of the runtime.

``python -m tools.peers.child REQUEST`` takes one JSON object and prints one JSON object
a line: first the facts of this machine, then one row an implementation and case.
"""

from __future__ import annotations

import gc
import json
import math
import os
import platform
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TextIO

import torch

from rltune import runtime
from rltune.runtime.environment import TRITON_DISTRIBUTIONS, installed_version
from tools.peers.accuracy import LIMIT_ULP, max_ulp
from tools.peers.binding import (
    Bound,
    InputSet,
    bind_jit,
    bind_peer,
    exact_results,
    make_set,
    set_bytes,
)
from tools.peers.cases import Case, all_cases
from tools.peers.liger import liger_peers, liger_version
from tools.peers.measure import Flush, set_count, time_eager, time_graph
from tools.peers.request import Request
from tools.peers.subjects import SUBJECTS, Peer, Tensors

NO_DEVICE_STATUS: Final = 3

_CPU_SETS = 2
_NOTE_CHARACTERS = 150


@dataclass(frozen=True, kw_only=True, slots=True)
class _Prepared:
    """One case with its input sets and the oracle's answer for the first of them."""

    case: Case
    sets: tuple[InputSet, ...]
    exact: Tensors


class Child:
    """Measures cases and says what it found.

    Args:
        request: what to measure.
        answers: where answers go.
    """

    def __init__(self, request: Request, answers: TextIO) -> None:
        self._request = request
        self._answers = answers
        self._device = torch.device(request.device)
        self._liger: Mapping[str, Peer] = {}
        self._on_cuda = self._device.type == "cuda"
        self._l2_bytes = 0
        if self._on_cuda:
            torch.cuda.set_device(self._device)
            self._l2_bytes = int(torch.cuda.get_device_properties(self._device).L2_cache_size)
        self._flush = Flush(self._l2_bytes, self._device)

    def run(self, cases: Sequence[Case]) -> None:
        """Measure every case and print a row for each implementation that has it."""
        self._say({"facts": self._facts()})
        if "liger" in self._request.implementations and liger_version():
            try:
                self._liger = liger_peers()
            except ImportError as error:
                sys.stderr.write(f"Liger-Kernel cannot be imported, so it is left out: {error}\n")
        with self._stream():
            for case in cases:
                self._run_case(case)
                gc.collect()
                if self._on_cuda:
                    torch.cuda.empty_cache()

    def _run_case(self, case: Case) -> None:
        prepared = self._prepare(case)
        for implementation in self._request.implementations:
            bind = self._binder(implementation, prepared)
            if bind is None:
                continue
            try:
                row = self._measure(bind, prepared)
            except Exception as error:  # noqa: BLE001 - peers raise anything; the row says so
                row = {"status": "failed", "note": _described(error)}
            self._say({"case": case.name, "implementation": implementation, **row})

    def _prepare(self, case: Case) -> _Prepared:
        subject = SUBJECTS[case.operator]
        first = make_set(subject, case.axes, self._device, seed=1)
        exact = exact_results(subject, case.phase, first)
        needed = set_bytes(subject, case.phase, first, exact)
        count = set_count(needed, self._l2_bytes) if self._on_cuda else _CPU_SETS
        others = [
            make_set(subject, case.axes, self._device, seed, first) for seed in range(2, count + 1)
        ]
        return _Prepared(case=case, sets=(first, *others), exact=exact)

    def _binder(self, implementation: str, prepared: _Prepared) -> Callable[[], Bound] | None:
        case, sets = prepared.case, prepared.sets
        subject = SUBJECTS[case.operator]
        if implementation == "triton_fixed":
            return lambda: bind_jit(subject, case.phase, sets)
        peers = {
            "fixed": subject.ours,
            "tuned": subject.ours,
            "torch": subject.torch,
            "compile": subject.torch,
            "liger": self._liger.get(case.operator),
        }
        peer = peers[implementation]
        if peer is None:
            return None
        if implementation == "compile":
            return lambda: bind_peer(_compiled(peer), subject, case.phase, sets)
        return lambda: bind_peer(peer, subject, case.phase, sets)

    def _measure(self, bind: Callable[[], Bound], prepared: _Prepared) -> dict[str, Any]:
        forward = prepared.case.phase == "forward"
        with torch.no_grad() if forward else nullcontext():
            bound = bind()
            try:
                return self._check_and_time(bound, prepared.exact)
            finally:
                if bound.restore is not None:
                    bound.restore()

    def _check_and_time(self, bound: Bound, exact: Tensors) -> dict[str, Any]:
        if bound.poison is not None:
            bound.poison()
        before = runtime.status().calls
        results = bound.results(bound.calls[0]())
        after = runtime.status().calls
        bound_launches = after.bound - before.bound
        row: dict[str, Any] = {
            "sets": len(bound.calls),
            "launches": bound_launches + after.triton_launched - before.triton_launched,
            "bound_launches": bound_launches,
        }
        worst = max(max_ulp(got, want) for got, want in zip(results, exact, strict=True))
        del results
        if math.isfinite(worst):
            row["max_ulp"] = round(worst, 3)
        if not worst <= LIMIT_ULP:
            note = f"error of {worst:.4g} ulp, limit {LIMIT_ULP:g}"
            return row | {"status": "wrong", "note": note}
        row |= {"status": "ok", "note": ""}
        row["eager_ns"] = time_eager(bound, self._request.effort, self._wait)
        if self._on_cuda:
            try:
                row["graph_ns"] = time_graph(bound, self._request.effort, self._flush)
            except RuntimeError as error:
                row["note"] = f"no graph: {_described(error)}"
        return row

    def _wait(self) -> None:
        if self._on_cuda:
            torch.cuda.synchronize(self._device)

    def _stream(self) -> AbstractContextManager[Any]:
        """A stream of its own: the default one cannot be captured."""
        if not self._on_cuda:
            return nullcontext()
        make: Any = torch.cuda.Stream
        stream = make()
        stream.wait_stream(torch.cuda.current_stream())
        return torch.cuda.stream(stream)

    def _facts(self) -> dict[str, str]:
        return {
            "device": torch.cuda.get_device_name(self._device) if self._on_cuda else "interpreter",
            "torch": torch.__version__,
            "triton": installed_version(*TRITON_DISTRIBUTIONS),
            "liger": liger_version(),
            "python": platform.python_version(),
        }

    def _say(self, message: Mapping[str, Any]) -> None:
        self._answers.write(json.dumps(message) + "\n")
        self._answers.flush()


def _described(error: Exception) -> str:
    """One line: what was raised, its text with the middle left out if long, and where."""
    text = " ".join(str(error).split())
    if len(text) > 2 * _NOTE_CHARACTERS:
        text = f"{text[:_NOTE_CHARACTERS]} ... {text[-_NOTE_CHARACTERS:]}"
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {text} ({Path(place.filename).name}:{place.lineno})"


def _compiled(peer: Peer) -> Peer:
    """The peer through ``torch.compile`` with its defaults, for one size."""
    import torch._functorch.config as functorch

    torch.compiler.reset()  # each size compiles afresh
    # Saved tensors must outlive a backward that runs more than once.
    functorch.donated_buffer = False
    return replace(peer, call=torch.compile(peer.call, fullgraph=True, dynamic=False))


def main(arguments: Sequence[str]) -> int:
    """Serve one request; return the exit status."""
    # Libraries print; keep the answers' stream to ourselves.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    (text,) = arguments
    request = Request.from_json(text)
    if request.device != "cpu" and not torch.cuda.is_available():
        sys.stderr.write("no CUDA device: torch sees none\n")
        return NO_DEVICE_STATUS
    Child(request, answers).run(all_cases(request.operators))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
