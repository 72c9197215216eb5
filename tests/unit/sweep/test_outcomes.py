"""Verdicts on candidates from journal records alone."""

from dataclasses import replace

import pytest

from rltune.core.launch import LaunchConfig
from rltune.core.operator import Tensor
from rltune.core.shapes import ShapeKey, TokenRange
from rltune.errors import BytesDifferError
from rltune.sweep import outcomes
from rltune.sweep.decide import edge_cases, edge_rejections, qualified_by_part
from rltune.sweep.outcomes import Qualified, Rejected, compile_key, qualify_key
from rltune.sweep.plan import KernelPlan, Plan, QualificationCase
from rltune.sweep.preset import Budget
from rltune.sweep.stage_qualify import check_control
from rltune.sweep.statement import candidate_evidence
from tests.unit.sweep.test_buffers import kernel

BASE, ONE, TWO, WRONG = (LaunchConfig.of(num_warps=warps) for warps in (4, 8, 16, 2))
CASES = tuple(QualificationCase(tokens=n, seed=1, generator="normal") for n in (1, 3))
SUM = ["4096xf32 thread=8 lanes=32 warps=4 stride=1 arith.addf"]


def part(control=None):
    return KernelPlan(
        kernel=kernel(),
        key=ShapeKey.of("bf16", {"width": 8}),
        baseline=BASE,
        candidates=(ONE, TWO),
        control=control,
        qualification=CASES,
        measurement=(),
    )


def program(digest, reductions=(), scratch=0):
    return {"digest": digest, "reductions": list(reductions), "global_scratch_bytes": scratch}


def compiled(made, **programs):
    ids = {"base": BASE, "one": ONE, "two": TWO, "wrong": WRONG}
    return {
        ("compile", compile_key(made, ids[name].candidate_id, "program")): record
        for name, record in programs.items()
    }


def compared(made, case, found, variant="program"):
    body = {"status": "compared", "outcomes": found, "rows": 3, "compared_bytes": 96}
    return {("qualify", qualify_key(made, case, variant)): body}


def clean(made):
    records = compiled(made, base=program("a"), one=program("b"), two=program("c"))
    for case in CASES:
        records |= compared(made, case, {ONE.candidate_id: None, TWO.candidate_id: None})
    return records


@pytest.mark.parametrize(
    ("one", "cause"),
    [
        ({"error": "no"}, "compile failed"),
        (program("a"), "same program"),
        (program("b", SUM), "reduction order"),
        (program("b", scratch=8), "scratch"),
    ],
)
def test_candidate_is_dropped_before_any_run(one, cause):
    made = part()
    dropped = outcomes.triage(made, compiled(made, base=program("a"), one=one, two=program("c")))
    assert {name: item.cause for name, item in dropped.items()} == {ONE.candidate_id: cause}


def test_equal_programs_are_one_candidate():
    made = part()
    dropped = outcomes.triage(
        made, compiled(made, base=program("a"), one=program("b"), two=program("b"))
    )
    assert dropped[TWO.candidate_id].text == f"as {ONE.candidate_id}"


def test_equal_bytes_in_every_case_qualify():
    made = part()
    assert outcomes.judge(made, ONE.candidate_id, clean(made)) == Qualified(2, 6, 192)


def test_one_difference_rejects():
    made = part()
    found = {"kind": "bytes", "text": "y[0]", "rows": 1}
    records = clean(made) | compared(made, CASES[1], {ONE.candidate_id: found})
    verdict = outcomes.judge(made, ONE.candidate_id, records)
    assert isinstance(verdict, Rejected)
    assert "tokens=3" in verdict.text


def test_difference_in_the_witness_alone_rejects():
    made = part(WRONG)
    found = {"kind": "bytes", "text": "y[0]", "rows": 1}
    records = clean(made) | compared(made, CASES[0], {ONE.candidate_id: found}, "witness")
    assert isinstance(outcomes.judge(made, ONE.candidate_id, records), Rejected)


def test_case_that_was_not_compared_rejects():
    made = part()
    records = clean(made)
    del records["qualify", qualify_key(made, CASES[1], "program")]
    verdict = outcomes.judge(made, ONE.candidate_id, records)
    assert isinstance(verdict, Rejected)
    assert verdict.cause == "not compared"


def test_no_compared_byte_is_no_qualification():
    made = part()
    records = {
        key: {**body, "compared_bytes": 0} if key[0] == "qualify" else body
        for key, body in clean(made).items()
    }
    assert isinstance(outcomes.judge(made, ONE.candidate_id, records), Rejected)


def test_candidate_that_broke_its_process_is_rejected():
    made = part()
    lost = {("lost", outcomes.launch_key(made, ONE.candidate_id)): {"cause": "died", "text": "x"}}
    assert outcomes.judge(made, ONE.candidate_id, clean(made) | lost) == Rejected("died", "x")


def test_rejection_at_an_edge_takes_the_qualification_back():
    made = part()
    plan = Plan(parts=(made,), budget=Budget(), target={}, fingerprints={})
    assert qualified_by_part(plan, clean(made)) == {
        made.plan_id: (ONE.candidate_id, TWO.candidate_id)
    }
    case = edge_cases(TokenRange(8, 8))[0]
    body = {"outcomes": {ONE.candidate_id: {"kind": "bytes", "text": "y", "rows": 1}}}
    edge = {("edge", outcomes.edge_key(made, ONE.candidate_id, case)): body}
    records = clean(made) | edge
    assert qualified_by_part(plan, records) == {made.plan_id: (TWO.candidate_id,)}
    first, second = candidate_evidence(made, records, edge_rejections(records))
    assert (first["outcome"], first["text"]) == ("bytes", f"{case.case_id}: y")
    assert second["outcome"] == "qualified"


def test_edges_are_one_below_at_and_one_above_each_end():
    assert {case.tokens for case in edge_cases(TokenRange(8, 100))} == {7, 8, 9, 99, 100, 101}
    assert {case.tokens for case in edge_cases(TokenRange(1, 1))} == {1, 2}


def control_records(made, found):
    records = clean(made) | compiled(made, wrong=program("d", SUM))
    for case in CASES:
        records |= compared(made, case, {WRONG.candidate_id: found})
    return records


def test_control_that_bytes_do_not_reject_fails_the_sweep():
    made = part(WRONG)
    found = {"kind": "bytes", "text": "y", "rows": 2}
    check_control(made, control_records(made, found), runs_programs=True)
    result = outcomes.control_result(made, control_records(made, found), "program")
    assert (result.rejected_cases, result.flipped_rows, result.rows) == (2, 4, 6)
    with pytest.raises(BytesDifferError, match="planted wrong candidate"):
        check_control(made, control_records(made, None), runs_programs=True)


def test_a_kernel_that_rounds_no_output_of_the_element_type_is_its_own_witness():
    made = part(WRONG)
    assert outcomes.variants(made) == ("program", "witness")
    assert outcomes.variants(part()) == ("program",)
    outputs = {"io": "fp32", "acc": "fp64"}
    arguments = tuple(
        replace(item, dtype=outputs.get(item.dtype, item.dtype))
        if isinstance(item, Tensor) and item.role == "out"
        else item
        for item in made.kernel.arguments
    )
    fixed = replace(made, kernel=replace(made.kernel, arguments=arguments))
    assert outcomes.variants(fixed) == ("program",)


def test_control_needs_another_layout_where_no_program_runs():
    made = part(WRONG)
    check_control(made, control_records(made, None), runs_programs=False)
    same = control_records(made, None) | compiled(made, wrong=program("d"))
    with pytest.raises(BytesDifferError):
        check_control(made, same, runs_programs=False)


def test_control_with_an_order_written_out_is_caught_by_bytes_where_no_program_runs():
    made = part(WRONG)
    found = {"kind": "bytes", "text": "y", "rows": 2}
    same = control_records(made, found) | compiled(made, wrong=program("d"))
    check_control(made, same, runs_programs=False)
