"""The comparison with peers: cases, bindings, accuracy, statistics, result file, table, options."""

from __future__ import annotations

import io
import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from rltune.errors import UsageError
from rltune.runtime import launcher
from rltune.runtime.nvml import probe_host
from tools import compare_peers
from tools.peers import liger, results, table
from tools.peers.accuracy import LIMIT_ULP, max_ulp
from tools.peers.binding import (
    InputSet,
    bind_jit,
    bind_peer,
    exact_results,
    make_set,
    set_bytes,
)
from tools.peers.cases import PHASES, Case, Phase, all_cases, operator_names
from tools.peers.child import Child
from tools.peers.measure import set_count, time_eager
from tools.peers.request import Effort, Request
from tools.peers.results import Outcome, Spread
from tools.peers.subjects import SUBJECTS, Peer, Subject

SCRIPT = Path(compare_peers.__file__)
CPU = torch.device("cpu")
EFFORT = Effort(graph_samples=1, eager_samples=2, calls=3)
TINY: dict[str, dict[str, int]] = {
    "silu": {"num_tokens": 3, "intermediate_size": 40},
    "swiglu": {"num_tokens": 3, "intermediate_size": 40},
    "rms_norm": {"num_tokens": 3, "hidden_size": 48},
    "add_rms_norm": {"num_tokens": 3, "hidden_size": 48},
    "embedding": {"num_tokens": 6, "vocab_size": 5, "hidden_size": 16},
    "rope": {"num_tokens": 3, "q_heads": 4, "k_heads": 2, "head_dim": 16},
    "logprob": {"num_tokens": 3, "vocab_size": 70},
    "ratio_kl": {"num_tokens": 3, "vocab_size": 70},
}

needs_interpreter = pytest.mark.skipif(
    torch.cuda.is_available(), reason="runs in the interpreter, without a CUDA device"
)
each_case = pytest.mark.parametrize(
    ("operator", "phase"), [(name, phase) for name in TINY for phase in PHASES]
)


def sets_of(operator: str) -> tuple[Subject, list[InputSet]]:
    subject = SUBJECTS[operator]
    first = make_set(subject, TINY[operator], CPU, seed=1)
    return subject, [first, make_set(subject, TINY[operator], CPU, 2, first)]


def errors(found: Any, exact: Any) -> list[float]:
    return [max_ulp(got, want) for got, want in zip(found, exact, strict=True)]


# Cases


def test_every_operator_has_its_cases_and_every_case_a_subject() -> None:
    cases = all_cases()
    assert len({case.name for case in cases}) == len(cases) == 44
    assert tuple(SUBJECTS) == operator_names() == tuple(TINY)
    names = {case.name for case in cases}
    assert "rms_norm backward 131072 x 128" in names
    assert "embedding forward 8192 ids of 151936 x 4096" in names
    assert "rope backward 4096 x (32 + 8) x 128" in names
    assert "logprob forward 64 x 151936" in names


def test_cases_of_one_operator() -> None:
    assert {case.operator for case in all_cases(["silu"])} == {"silu"}


# Inputs and implementations, in the interpreter


@needs_interpreter
@each_case
def test_implementations_agree_with_the_oracle(operator: str, phase: Phase) -> None:
    subject, sets = sets_of(operator)
    for place in (0, 1):
        exact = exact_results(subject, phase, sets[place])
        ours = bind_peer(subject.ours, subject, phase, sets)
        limit = 4 if subject.result == torch.float32 else 1
        assert max(errors(ours.results(ours.calls[place]()), exact)) <= limit
        peer = bind_peer(subject.torch, subject, phase, sets)
        assert max(errors(peer.results(peer.calls[place]()), exact)) <= 3 * limit


@needs_interpreter
@each_case
def test_direct_launches_write_the_results_they_are_checked_by(operator: str, phase: Phase) -> None:
    subject, sets = sets_of(operator)
    exact = exact_results(subject, phase, sets[0])
    direct = bind_jit(subject, phase, sets[:1])
    assert direct.poison is not None
    held = direct.results(direct.calls[0]())
    direct.poison()
    assert min(errors(held, exact)) > LIMIT_ULP  # nothing is left of the first call
    again = direct.results(direct.calls[0]())
    assert [item.data_ptr() for item in again] == [item.data_ptr() for item in held]
    assert max(errors(again, exact)) <= (4 if subject.result == torch.float32 else 1)


@needs_interpreter
def test_recording_ends_with_the_binding() -> None:
    from rltune_kernels.silu import op

    subject, sets = sets_of("silu")
    bind_jit(subject, "forward", sets)
    assert vars(op)["launch"] is launcher.launch


def test_an_operator_without_launches_cannot_be_bound_directly() -> None:
    subject, sets = sets_of("silu")
    with pytest.raises(UsageError, match="no launch was recorded"):
        bind_jit(replace(subject, ours=subject.torch), "forward", sets)


def test_sets_differ_share_what_is_shared_and_hold_no_zeros() -> None:
    subject, (first, second) = sets_of("embedding")
    assert second.inputs[0] is first.inputs[0]
    assert not torch.equal(second.inputs[1], first.inputs[1])
    assert bool((first.inputs[0] != 0).all())
    assert bool((first.upstream[0] != second.upstream[0]).any())
    exact = exact_results(subject, "forward", first)
    assert set_bytes(subject, "forward", first, exact) == 6 * 8 + 6 * 16 * 2
    gradients = exact_results(subject, "backward", first)
    assert set_bytes(subject, "backward", first, gradients) == 6 * 8 + (6 + 5) * 16 * 2


@pytest.mark.parametrize("phase", PHASES)
def test_what_a_peer_overwrites_is_put_back(phase: Phase) -> None:
    class Overwriting(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            result = x * torch.sigmoid(x)
            x.data.fill_(7)
            return result

        @staticmethod
        def backward(ctx: Any, dy: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            dx: torch.Tensor = dy * x
            x.data.fill_(8)
            dy.data.fill_(9)
            return dx

    subject, sets = sets_of("silu")
    before = [tensor.clone() for item in sets for tensor in (*item.inputs, *item.upstream)]
    peer = Peer(call=Overwriting.apply, takes=(0,), writes_inputs=True)
    bound = bind_peer(peer, subject, phase, sets)
    time_eager(bound, EFFORT, lambda: None)
    after = [tensor for item in sets for tensor in (*item.inputs, *item.upstream)]
    assert not all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    assert bound.restore is not None
    bound.restore()
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


# Accuracy


def test_rounding_is_at_most_half_an_ulp() -> None:
    exact = torch.linspace(-40, 40, 1001, dtype=torch.float64)
    assert 0.3 < max_ulp(exact.bfloat16(), exact) <= 0.5


def test_one_step_in_the_last_place_is_one_ulp() -> None:
    exact = torch.full((4,), 1.5, dtype=torch.float64)
    got = exact.bfloat16()
    got[2] += 2**-7
    assert max_ulp(got, exact) == 1


def test_small_values_are_measured_by_the_root_mean_square() -> None:
    exact = torch.tensor([1.0] * 100 + [1e-6], dtype=torch.float64)
    got = exact.bfloat16()
    got[-1] = 2**-8
    assert 0.5 < max_ulp(got, exact) < 1.5


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_is_infinitely_wrong(value: float) -> None:
    got = torch.ones(3, dtype=torch.bfloat16)
    got[1] = value
    assert max_ulp(got, torch.ones(3, dtype=torch.float64)) == math.inf


def test_another_shape_is_infinitely_wrong() -> None:
    assert max_ulp(torch.ones(3), torch.ones(1, dtype=torch.float64)) == math.inf


# The measuring process


def rows_of(implementations: tuple[str, ...], phase: Phase = "forward") -> list[dict[str, Any]]:
    request = Request(implementations=implementations, operators=(), device="cpu", effort=EFFORT)
    answers = io.StringIO()
    case = Case(operator="silu", phase=phase, axes=TINY["silu"])
    Child(Request.from_json(request.to_json()), answers).run([case])
    facts, *rows = map(json.loads, answers.getvalue().splitlines())
    assert facts["facts"]["torch"] == torch.__version__
    return rows


@needs_interpreter
def test_a_case_gives_one_row_an_implementation_in_the_order_asked() -> None:
    rows = rows_of(("fixed", "liger", "triton_fixed", "torch"))
    assert [row["implementation"] for row in rows] == ["fixed", "triton_fixed", "torch"]
    for row in rows:
        assert row["status"] == "ok"
        assert row["case"] == "silu forward 3 x 40"
        assert row["max_ulp"] <= 1
        assert len(row["eager_ns"]) == EFFORT.eager_samples
        assert "graph_ns" not in row
    assert [(row["launches"], row["bound_launches"]) for row in rows] == [(1, 0), (0, 0), (0, 0)]


@pytest.mark.parametrize(
    ("call", "status", "note"),
    [
        (lambda x: x, "wrong", "limit 16"),
        (lambda x: x * math.nan, "wrong", "error of inf ulp"),
        (lambda x: x[:1], "wrong", "error of inf ulp"),
        (lambda x: x @ x, "failed", "RuntimeError: "),
    ],
)
def test_a_peer_that_is_wrong_or_fails_is_not_timed(
    call: Callable[..., Any], status: str, note: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = replace(SUBJECTS["silu"], torch=Peer(call=call, takes=(0,)))
    monkeypatch.setitem(SUBJECTS, "silu", bad)
    (row,) = rows_of(("torch",))
    assert row["status"] == status
    assert note in row["note"]
    assert "eager_ns" not in row


@pytest.mark.parametrize(
    ("bytes_each", "count"), [(1, 128), (1 << 20, 128), (10 << 20, 24), (1 << 30, 4), (0, 128)]
)
def test_sets_exceed_four_times_the_cache_within_limits(bytes_each: int, count: int) -> None:
    assert set_count(bytes_each, 60 << 20) == count


# Liger


def test_without_liger_there_is_no_version_and_no_import() -> None:
    if "liger_kernel" in sys.modules or liger.liger_version():
        pytest.skip("Liger-Kernel is installed")
    with pytest.raises(ImportError):
        liger.liger_peers()


LIGER_MODULES = {
    "swiglu": ("LigerSiLUMulFunction", "lambda a, b: F.silu(a) * b"),
    "rms_norm": (
        "LigerRMSNormFunction",
        "lambda x, w, eps, offset, mode: F.rms_norm(x, w.shape, w + offset, eps)",
    ),
    "fused_add_rms_norm": (
        "LigerFusedAddRMSNormFunction",
        "lambda x, r, w, eps, offset, mode: (F.rms_norm(x + r, w.shape, w + offset, eps), x + r)",
    ),
    "experimental/embedding": ("LigerEmbeddingFunction", "lambda w, ids: F.embedding(ids, w)"),
    "rope": (
        "LigerRopeFunction",
        """lambda q, k, cos, sin: tuple(
            x * cos + torch.cat((-x.chunk(2, -1)[1], x.chunk(2, -1)[0]), -1) * sin for x in (q, k)
        )""",
    ),
}


def test_liger_functions_are_given_their_arguments_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "liger_kernel"
    (package / "ops" / "experimental").mkdir(parents=True)
    for name, (function, body) in LIGER_MODULES.items():
        text = f"class {function}:\n    apply = staticmethod({body})\n"
        head = "import torch\nimport torch.nn.functional as F\n"
        (package / "ops" / f"{name}.py").write_text(head + text)
    for name in list(sys.modules):
        if name.split(".")[0] == "liger_kernel":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        peers = liger.liger_peers()
        assert liger.liger_version()
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "liger_kernel"]:
            del sys.modules[name]
    assert set(peers) == set(TINY) - {"silu", "logprob", "ratio_kl"}
    for operator, peer in peers.items():
        subject, sets = sets_of(operator)
        for phase in PHASES:
            bound = bind_peer(peer, subject, phase, sets[:1])
            exact = exact_results(subject, phase, sets[0])
            assert max(errors(bound.results(bound.calls[0]()), exact)) <= 3


# Statistics and the result file


def test_the_spread_is_that_of_the_medians_of_processes() -> None:
    assert Spread.of([[1, 9, 2], [5, 5], [], [100, 3, 4]]) == Spread(median=4, min=2, max=5)
    assert Spread.of([[], ()]) is None


def row(**fields: Any) -> dict[str, Any]:
    base = {"case": "silu forward 8 x 12288", "implementation": "torch", "status": "ok"}
    return {**base, "note": "", "sets": 4, "launches": 0, "bound_launches": 0, **fields}


def test_an_outcome_takes_the_worst_of_its_processes() -> None:
    found = Outcome.of(
        [
            row(max_ulp=0.5, graph_ns=[1000, 1200, 1100], launches=2, bound_launches=2),
            row(max_ulp=0.75, eager_ns=[7], launches=2, bound_launches=1),
            row(status="wrong", note="error of inf ulp, limit 16", launches=2),
        ]
    )
    assert found == Outcome(
        status="wrong",
        note="error of inf ulp, limit 16",
        max_ulp=0.75,
        processes=3,
        sets=4,
        launches=2,
        bound_launches=0,
        graph_ns=Spread(median=1100, min=1100, max=1100),
        eager_ns=Spread(median=7, min=7, max=7),
    )
    assert not found.served


def measured() -> tuple[results.CaseResult, ...]:
    figures: dict[str, tuple[int, int]] = {
        "tuned": (1334, 9876),
        "fixed": (1334, 10500),
        "torch": (99960, 9996),
        "compile": (123456, 60000),
        "triton_fixed": (1, 1),
    }
    rows = [
        row(
            implementation=name,
            graph_ns=[graph],
            eager_ns=[eager],
            launches=1,
            bound_launches=int(name == "tuned"),
        )
        for name, (graph, eager) in figures.items()
    ]
    other = "silu forward 64 x 12288"
    rows += [
        row(case=other, implementation="tuned", graph_ns=[9996], launches=1),
        row(case=other, implementation="torch", status="wrong", note="error of 99 ulp, limit 16"),
    ]
    return results.collect(all_cases(["silu"]), rows)


TABLE = """\
| operator | phase | shape | ours tuned | ours fixed | torch | torch.compile | Liger |
|---|---|---|---|---|---|---|---|
| silu | forward | 8 x 12288 | **1.33** / **9.88** | **1.33** / 10.5 | 100 / 10.0 | 123 / 60.0 | - |
| silu | forward | 64 x 12288 | **10.0** / -\\* | - | wrong | - | - |

\\* the bundle does not decide every launch of this case."""


def test_table() -> None:
    assert table.render(measured()) == TABLE


def test_a_result_file_reads_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    results.write(path, {"device": "NVIDIA H200", "bundle": None}, measured())
    document = json.loads(path.read_text())
    assert document["format"] == "rltune-peers/1"
    assert document["device"] == "NVIDIA H200"
    first = document["cases"][0]
    assert first["axes"] == {"num_tokens": 8, "intermediate_size": 12288}
    assert first["dtype"] == "bf16"
    assert first["implementations"]["tuned"]["graph_ns"] == {
        "median": 1334,
        "min": 1334,
        "max": 1334,
    }
    assert results.read(path) == measured()


def test_problems_name_case_and_implementation() -> None:
    assert results.problems(measured()) == [
        "silu forward 64 x 12288: torch wrong: error of 99 ulp, limit 16"
    ]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"rltune-peers/1"', '"rltune-peers/2"', "expected format 'rltune-peers/1'"),
        ('"sets"', '"stes"', r"\$\.cases\[0\]\.implementations\.compile: expected the fields"),
        ('"median": 1334', '"median": 1.5', r"graph_ns\.median: expected whole nanoseconds"),
        ('"status": "wrong"', '"status": "odd"', "status: expected .* got 'odd'"),
        ("{", "", "cannot be read as JSON"),
    ],
)
def test_another_result_file_is_refused(old: str, new: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    results.write(path, {}, measured())
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(UsageError, match=message):
        results.read(path)


# The command


def test_the_script_prints_the_table_of_a_result(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    results.write(path, {}, measured())
    done = subprocess.run(
        [sys.executable, str(SCRIPT), "--table", str(path)],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout == TABLE + "\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--output", "a", "--table", "b"],
        ["--output", "a", "--processes", "0"],
        ["--output", "a", "--operator", "gelu"],
    ],
)
def test_usage_errors_exit_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        compare_peers.main(arguments)
    assert caught.value.code == 2
    assert "usage" in capsys.readouterr().err


@pytest.mark.parametrize(("option", "status"), [("--table", 2), ("--bundle", 11)])
def test_a_missing_file_is_named(
    option: str, status: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [option, str(tmp_path / "missing")]
    if option == "--bundle":
        arguments += ["--output", str(tmp_path / "result.json")]
    assert compare_peers.main(arguments) == status
    assert "missing" in capsys.readouterr().err


def test_without_a_device_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if probe_host().models:
        pytest.skip("there is a CUDA device")
    assert compare_peers.main(["--output", str(tmp_path / "result.json")]) == 3
    assert "no CUDA device" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_process_without_a_device_ends_the_comparison(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    arguments = ["--output", str(tmp_path / "result.json"), "--operator", "silu"]
    assert compare_peers.measure(compare_peers.parse(arguments), arguments, None) == 3
    assert "no CUDA device: torch sees none" in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


def test_results_are_written_though_a_process_died_and_a_peer_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # There is no device here, so what its processes say is said for them.
    def said(
        _options: object, round_number: int, found: compare_peers.Found, *, tuned: bool
    ) -> int:
        assert not tuned
        found.facts = {"device": "NVIDIA H200", "torch": "2.11.0"}
        found.rows.append(row(graph_ns=[1000 + round_number], eager_ns=[2000]))
        if round_number:
            found.rows.append(row(implementation="fixed", status="wrong", note="error of 99 ulp"))
            found.deaths.append("round 2, peers: exit status -11")
        return -11 * round_number

    monkeypatch.setattr(compare_peers, "run_child", said)
    output = tmp_path / "result.json"
    arguments = ["--output", str(output), "--processes", "2", "--operator", "silu"]
    assert compare_peers.measure(compare_peers.parse(arguments), arguments, None) == 1
    printed = capsys.readouterr()
    assert "exit status -11" in printed.err
    assert "silu forward 8 x 12288: fixed wrong: error of 99 ulp" in printed.err
    assert "Liger-Kernel is not installed" in printed.err
    assert printed.out == output.with_suffix(".md").read_text()
    assert "| - | wrong | **1.00** / **2.00** | - | - |" in printed.out
    document = json.loads(output.read_text())
    assert document["device"] == "NVIDIA H200"
    assert document["bundle"] is None
    assert document["command"] == f"python tools/compare_peers.py {' '.join(arguments)}"
    (case,) = document["cases"]
    assert case["implementations"]["torch"]["processes"] == 2


def test_the_order_of_implementations_turns_and_compile_ends() -> None:
    def order(number: int) -> tuple[str, ...]:
        return compare_peers.implementations(number, tuned=False, compile_rounds=2)

    assert order(1) == order(0)[::-1]
    assert set(order(1)) - set(order(2)) == {"compile"}
    assert compare_peers.implementations(0, tuned=True, compile_rounds=2) == ("tuned",)


def test_modes_of_the_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("DISABLE_PTXAS_OPT", "1")
    options = compare_peers.parse(
        ["--output", "x", "--bundle", str(tmp_path / "b"), "--trust-dir", str(tmp_path)]
    )
    off = compare_peers.child_environment(options, tuned=False)
    assert off["RLTUNE_MODE"] == "off"
    assert not {"TRITON_INTERPRET", "DISABLE_PTXAS_OPT"} & set(off)
    tuned = compare_peers.child_environment(options, tuned=True)
    assert tuned["RLTUNE_MODE"] == "strict"
    assert tuned["RLTUNE_BUNDLE_PATH"] == str(tmp_path / "b")
    assert tuned["RLTUNE_TRUST_DIR"] == str(tmp_path)


def test_a_line_cut_off_at_a_death_does_not_count() -> None:
    found = compare_peers.Found()
    compare_peers.keep('{"facts": {"torch": "2"}}\n{"case": "a"}\n{"cas', found)
    assert found.facts == {"torch": "2"}
    assert found.rows == [{"case": "a"}]
