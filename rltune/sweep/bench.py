"""What the stages of a sweep share, and how they ask a measuring process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rltune.bundle.schema_v1 import CompileTarget
from rltune.errors import BaselineError
from rltune.sweep.events import Observer
from rltune.sweep.journal import Journal
from rltune.sweep.outcomes import Variant, compile_key, launch_key
from rltune.sweep.plan import KernelPlan, Plan
from rltune.sweep.processes import Lost, WorkerProcess
from rltune.sweep.store import ProgramStore

_BASELINE_ATTEMPTS = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """What the stages share.

    Attributes:
        plan: the plan.
        journal: where results go.
        store: where program binaries go.
        observer: who watches.
        compile_target: what programs are compiled for.
        specs: ``module:function`` giving the operator specs, for worker processes.
        device: ``cpu`` for the interpreter, else such as ``cuda:0``.
    """

    plan: Plan
    journal: Journal
    store: ProgramStore
    observer: Observer
    compile_target: CompileTarget
    specs: str
    device: str

    @property
    def runs_programs(self) -> bool:
        """Whether the device runs the compiled programs; the interpreter does not."""
        return self.device != "cpu"

    def launch_request(self, part: KernelPlan, launch_id: str, variant: Variant) -> dict[str, Any]:
        """One launch as a worker reads it: id, launch config and program."""
        record = self.journal.records["compile", compile_key(part, launch_id, variant)]
        program = {name: value for name, value in record.items() if name != "reductions"}
        program["path"] = str(self.store.path(str(record["digest"])))
        return {
            "id": launch_id,
            "launch_config": part.launches[launch_id].to_json(),
            "program": program,
        }

    def ask(
        self,
        worker: WorkerProcess,
        part: KernelPlan,
        variant: Variant,
        chosen: list[str],
        request: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Send a request with the baseline and ``chosen``; repeat it without what breaks.

        Args:
            worker: measuring process.
            part: kernel and key.
            variant: which programs to run.
            chosen: candidate ids; each that cannot be run is recorded and removed.
            request: the request's own fields.

        Raises:
            BaselineError: the baseline itself cannot be run, twice.
        """
        attempts = 0
        while True:
            baseline_id = part.baseline.candidate_id
            result = worker.request(
                {
                    **request,
                    "kernel": part.kernel.kernel_id,
                    "key": part.key.to_json(),
                    "baseline": baseline_id,
                    "launches": [
                        self.launch_request(part, launch_id, variant)
                        for launch_id in (baseline_id, *chosen)
                    ],
                },
                self.plan.budget.case_timeout_s,
            )
            if not isinstance(result, Lost):
                return result
            attempts += 1
            if result.launch_id in chosen:
                self._record_lost(part, result)
                chosen.remove(result.launch_id)
            elif attempts >= _BASELINE_ATTEMPTS:
                raise BaselineError(
                    f"{part.plan_id}: the baseline {result.cause}: {result.text}",
                    advice="Nothing can be compared with it; no bundle was written.",
                )

    def _record_lost(self, part: KernelPlan, found: Lost) -> None:
        key = launch_key(part, found.launch_id)
        if not self.journal.done("lost", key):
            self.journal.append("lost", key, {"cause": found.cause, "text": found.text})
        self.observer.dropped(key, f"{found.cause}: {found.text}")
