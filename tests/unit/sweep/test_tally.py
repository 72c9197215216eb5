"""Outcomes by compiling alone and by evidence, and the counts of distinct programs."""

from dataclasses import replace

import pytest

import rltune_kernels
from rltune.bundle.codec import BundleFile, build_body, write_unsigned
from rltune.bundle.evidence import encode_evidence
from rltune.bundle.schema_v1 import Driver
from rltune.core.launch import LaunchConfig
from rltune.core.shapes import ShapeKey
from rltune.errors import BaselineError
from rltune.runtime.device import INTERPRETER_COMPILE_TARGET
from rltune.sweep import outcomes
from rltune.sweep.outcomes import ProgramCounts, compile_key, count_programs
from rltune.sweep.plan import KernelPlan, plan_parts
from rltune.sweep.preset import load_preset
from rltune.sweep.tally import compile_outcomes, evidence_outcomes
from tests.support.bundles import TARGET, make_predicate


class Watcher:
    """Keeps what it is told."""

    def __init__(self):
        self.stages, self.items, self.drops, self.notes = [], [], {}, []

    def stage(self, name, total):
        self.stages.append((name, total))

    def advance(self, item, *, resumed=False):
        self.items.append(item)

    def dropped(self, launch, reason):
        self.drops[launch.rpartition(" | ")[2]] = reason

    def note(self, text):
        self.notes.append(text)


def part_of(kernel_id: str) -> KernelPlan:
    parts = plan_parts(load_preset("smoke"), rltune_kernels.operator_specs())
    return next(part for part in parts if part.kernel.kernel_id == kernel_id)


def one_more_stage(config: LaunchConfig) -> LaunchConfig:
    """Without a loop there is nothing to pipeline: the same binary under another id."""
    return replace(config, num_stages=config.num_stages + 1)


def broken(config: LaunchConfig) -> LaunchConfig:
    """Blocks must be powers of two."""
    return replace(config, knobs=tuple((name, 3) for name, _ in config.knobs))


def test_compiling_finds_equal_programs_other_orders_and_failures():
    part = part_of("rms_norm/forward")
    assert part.control is not None
    wrong = part.control
    tried = (
        one_more_stage(part.baseline),
        wrong,
        one_more_stage(wrong),
        broken(part.baseline),
        part.candidates[0],
    )
    watcher = Watcher()
    made = replace(part, candidates=tried, control=None)
    found = compile_outcomes([made], INTERPRETER_COMPILE_TARGET, watcher)[made.plan_id]
    causes = ["same program", "reduction order", "same program", "compile failed", "not compared"]
    assert list(found.items()) == [
        (config.candidate_id, cause) for config, cause in zip(tried, causes, strict=True)
    ]
    assert watcher.stages == [("compile", 6)]
    assert len(watcher.items) == 6
    assert watcher.drops[tried[0].candidate_id].endswith(f"as {part.baseline.candidate_id}")
    assert watcher.drops[tried[2].candidate_id].endswith(f"as {wrong.candidate_id}")
    assert "sm_90" in watcher.notes[0]
    assert count_programs(found.values()) == ProgramCounts(programs=3, same_order=2, qualified=1)


def test_baseline_that_does_not_compile_is_an_error():
    part = part_of("silu/forward")
    made = replace(part, baseline=broken(part.baseline), candidates=())
    with pytest.raises(BaselineError, match=r"silu/forward .* the baseline does not compile"):
        compile_outcomes([made], INTERPRETER_COMPILE_TARGET, Watcher())


def test_equal_programs_are_one_also_where_the_first_is_dropped():
    one, two = (LaunchConfig.of(num_warps=warps) for warps in (8, 16))
    part = replace(part_of("silu/forward"), candidates=(one, two))
    for changes, cause in (
        ({"reductions": ["another"]}, "reduction order"),
        ({"global_scratch_bytes": 8}, "scratch"),
    ):
        same = {"digest": "b", "reductions": [], "global_scratch_bytes": 0, **changes}
        records = {
            ("compile", compile_key(part, config.candidate_id, "program")): record
            for config, record in (
                (part.baseline, {"digest": "a", "reductions": [], "global_scratch_bytes": 0}),
                (one, same),
                (two, same),
            )
        }
        dropped = outcomes.triage(part, records)
        assert dropped[one.candidate_id].cause == cause
        assert dropped[two.candidate_id].cause == "same program"
        assert dropped[two.candidate_id].text == f"as {one.candidate_id}"


def test_counts_include_the_baseline():
    assert count_programs([]) == ProgramCounts(programs=1, same_order=1, qualified=1)
    found = ["qualified", "bytes", "scratch", "reduction order", "same program", "compile failed"]
    assert count_programs(found) == ProgramCounts(programs=5, same_order=3, qualified=2)


def test_qualified_means_under_every_driver(tmp_path):
    key = ShapeKey.of("bf16", {"intermediate_size": 40})

    def evidence(**found):
        rows = [{"candidate_id": name, "outcome": outcome} for name, outcome in found.items()]
        part = {"kernel": "silu/forward", "key": key.to_json(), "candidates": rows}
        return encode_evidence({"parts": [part]})

    index, body = build_body(
        [
            ("old", "evidence", evidence(a="qualified", b="qualified", c="bytes")),
            ("new", "evidence", evidence(a="qualified", b="bytes", c="qualified")),
        ]
    )
    drivers = (Driver(version="580.1", evidence="old"), Driver(version="590.1", evidence="new"))
    predicate = make_predicate(blobs=index, decisions=(), target=replace(TARGET, drivers=drivers))
    path = tmp_path / "two.rltune"
    write_unsigned(path, predicate, body)
    with BundleFile.open(path) as bundle:
        found = evidence_outcomes(bundle, predicate)
    assert found == {f"silu/forward {key}": {"a": "qualified", "b": "bytes", "c": "bytes"}}
