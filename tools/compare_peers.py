"""Measures our operators beside PyTorch's and Liger-Kernel's on one NVIDIA GPU.

``python tools/compare_peers.py --output RESULT.json --bundle NAME.rltune --trust-dir DIR``
writes RESULT.json and the table RESULT.md;
``python tools/compare_peers.py --table RESULT.json`` prints the table again.

Each of several rounds starts two fresh processes: one without bundles for every
implementation but ours tuned, one with the bundle for that. Five rounds take three to
four minutes on an NVIDIA H200, about one of them for ``torch.compile``.

Exit statuses: 1 an implementation is wrong, failed or lacks its graph, or a process died;
2 usage; 3 no CUDA device; that of the error if the bundle cannot be read.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:  # as a script, only this folder is on the path
    sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]

from rltune.errors import RltuneError  # noqa: E402
from rltune.runtime.environment import VALUE_VARIABLES  # noqa: E402
from rltune.runtime.nvml import probe_host  # noqa: E402
from tools.peers import results, table  # noqa: E402
from tools.peers.cases import all_cases, operator_names  # noqa: E402
from tools.peers.request import Effort, Request  # noqa: E402

PROBLEM_STATUS: Final = 1
NO_DEVICE_STATUS: Final = 3

OFF_MODE: tuple[str, ...] = ("torch", "compile", "liger", "triton_fixed", "fixed")


@dataclass(kw_only=True, slots=True)
class Found:
    """What the measuring processes said up to now."""

    facts: dict[str, str] = field(default_factory=dict)
    rows: list[Mapping[str, Any]] = field(default_factory=list)
    deaths: list[str] = field(default_factory=list)


def implementations(round_number: int, *, tuned: bool, compile_rounds: int) -> tuple[str, ...]:
    """What a process measures in each case, in order, which turns round from round to round."""
    if tuned:
        return ("tuned",)
    chosen = tuple(name for name in OFF_MODE if name != "compile" or round_number < compile_rounds)
    return chosen if round_number % 2 == 0 else chosen[::-1]


def child_environment(options: argparse.Namespace, *, tuned: bool) -> dict[str, str]:
    """Environment of a measuring process: the caller's, with the mode and the bundle set."""
    environment = {name: value for name, value in os.environ.items() if name not in VALUE_VARIABLES}
    environment.pop("TRITON_INTERPRET", None)
    # What this process can import, the child can, wherever it is started.
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    if not tuned:
        return environment | {"RLTUNE_MODE": "off"}
    # In strict mode a bundle that is refused, or is for another machine, is an error.
    environment |= {"RLTUNE_MODE": "strict", "RLTUNE_BUNDLE_PATH": str(options.bundle.resolve())}
    if options.trust_dir is not None:
        environment["RLTUNE_TRUST_DIR"] = str(options.trust_dir.resolve())
    return environment


def run_child(options: argparse.Namespace, round_number: int, found: Found, *, tuned: bool) -> int:
    """Run one measuring process and keep what it said, however it ended; give its status."""
    request = Request(
        implementations=implementations(
            round_number, tuned=tuned, compile_rounds=options.compile_processes
        ),
        operators=tuple(options.operator),
        device="cuda:0",
        effort=Effort(
            graph_samples=options.samples,
            eager_samples=options.eager_samples,
            calls=options.calls,
        ),
    )
    command = [sys.executable, "-m", "tools.peers.child", request.to_json()]
    started = time.monotonic()
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        env=child_environment(options, tuned=tuned),
        text=True,
    ) as child:
        try:
            text, _ = child.communicate(timeout=options.timeout_s)
            status = child.returncode
        except subprocess.TimeoutExpired:
            child.kill()
            text, _ = child.communicate()
            status = PROBLEM_STATUS
    keep(text, found)
    place = f"round {round_number + 1}, {'tuned' if tuned else 'peers'}"
    sys.stderr.write(f"{place}: {time.monotonic() - started:.1f} s, exit status {status}\n")
    if status:
        found.deaths.append(f"{place}: exit status {status}")
    return status


def keep(text: str, found: Found) -> None:
    """Read a process's lines; one that was cut off at its death does not count."""
    for line in text.splitlines(keepends=True):
        if not line.endswith("\n"):
            continue
        message = json.loads(line)
        if "facts" in message:
            found.facts = message["facts"]
        else:
            found.rows.append(message)


def payload_digest(path: Path | None) -> str | None:
    """Digest of a bundle's signed payload; None without a bundle.

    Raises:
        RltuneError: it is no bundle.
    """
    if path is None:
        return None
    from rltune.bundle.codec import BundleFile

    with BundleFile.open(path) as bundle:
        return bundle.payload_digest


def measure(options: argparse.Namespace, arguments: Sequence[str], digest: str | None) -> int:
    """Measure, write the result file and the table; return the exit status."""
    found = Found()
    for round_number in range(options.processes):
        for tuned in (False, True) if options.bundle is not None else (False,):
            if run_child(options, round_number, found, tuned=tuned) == NO_DEVICE_STATUS:
                return NO_DEVICE_STATUS
    summed = results.collect(all_cases(options.operator), found.rows)
    facts = {
        "device": found.facts.get("device", ""),
        "driver": probe_host().driver,
        **{name: found.facts.get(name, "") for name in ("torch", "triton", "liger", "python")},
        "date": datetime.now(UTC).date().isoformat(),
        "command": shlex.join(["python", "tools/compare_peers.py", *arguments]),
        "bundle": digest,
    }
    if not facts["liger"]:
        sys.stderr.write("Liger-Kernel is not installed; its column stays empty\n")
    results.write(options.output, facts, summed)
    text = table.render(summed) + "\n"
    options.output.with_suffix(".md").write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    problems = [*found.deaths, *results.problems(summed)]
    for line in problems:
        sys.stderr.write(f"{line}\n")
    return PROBLEM_STATUS if problems else 0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """The options; argparse itself exits with status 2."""
    parser = argparse.ArgumentParser(prog="compare_peers.py")
    parser.add_argument("--table", type=Path, metavar="RESULT", help="print the table of a result")
    parser.add_argument("--output", type=Path, metavar="RESULT", help="result file to write")
    parser.add_argument("--bundle", type=Path, help="bundle for ours tuned")
    parser.add_argument("--trust-dir", type=Path, help="trust store for the bundle")
    parser.add_argument("--processes", type=_positive, default=5, help="rounds of fresh processes")
    parser.add_argument(
        "--compile-processes", type=_positive, default=2, help="rounds that measure torch.compile"
    )
    parser.add_argument("--samples", type=_positive, default=15, help="graph replays")
    parser.add_argument("--eager-samples", type=_positive, default=5, help="rounds of calls")
    parser.add_argument("--calls", type=_positive, default=40, help="calls in a round")
    parser.add_argument("--timeout-s", type=_positive, default=240, help="longest child process")
    parser.add_argument(
        "--operator",
        action="append",
        default=[],
        choices=operator_names(),
        help="measure this operator only; may be repeated",
    )
    options = parser.parse_args(arguments)
    if (options.table is None) == (options.output is None):
        parser.error("expected one of --table RESULT and --output RESULT")
    return options


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, got {value}")
    return value


def main(arguments: Sequence[str]) -> int:
    """Measure, or print the table of a result file; return the exit status."""
    options = parse(arguments)
    try:
        if options.table is not None:
            sys.stdout.write(table.render(results.read(options.table)) + "\n")
            return 0
        digest = payload_digest(options.bundle)
    except RltuneError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_status
    if not probe_host().models:
        sys.stderr.write("no CUDA device: the driver names none\n")
        return NO_DEVICE_STATUS
    return measure(options, arguments, digest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
