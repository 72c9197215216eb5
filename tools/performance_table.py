"""Prints the result table of a bundle from its own evidence, as ``docs/performance.md`` has it.

``python tools/performance_table.py BUNDLE``
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rltune.bundle.codec import BundleFile
from rltune.bundle.evidence import decode_evidence

PPM = 1_000_000
HEADER = (
    "| kernel | key | qualified | faster at | best gain | geomean speed-up | counts served |\n"
    "|---|---|---|---|---|---|---|"
)


def read_evidence(path: Path) -> Any:
    """The evidence document of a bundle's first driver."""
    with BundleFile.open(path) as bundle:
        predicate = bundle.decode_predicate()
        name = predicate.target.drivers[0].evidence
        blob = next(blob for blob in predicate.blobs if blob.id == name)
        return decode_evidence(bundle.read_blob(blob))


def gains(part: Mapping[str, Any]) -> list[int]:
    """Confirmed gain of each measured token count in ppm; 0 where the baseline is kept."""
    return [point.get("gain_ppm", 0) for point in part["points"]]


def geomean(gains_ppm: Sequence[int]) -> float:
    """Geometric mean of the speed-ups, counts that keep the baseline as 1."""
    return math.exp(-sum(math.log1p(-gain / PPM) for gain in gains_ppm) / len(gains_ppm))


def rows(evidence: Any) -> Iterator[str]:
    """One line a kernel and key, then the totals."""
    every: list[int] = []
    for part in evidence["parts"]:
        found = gains(part)
        every += found
        axes = ", ".join(f"{name} {size}" for name, size in part["key"]["axes"].items())
        outcomes = [row["outcome"] for row in part["candidates"]]
        yield (
            f"| {part['kernel']} | {axes} "
            f"| {outcomes.count('qualified')} of {len(outcomes)} "
            f"| {sum(gain > 0 for gain in found)} of {len(found)} "
            f"| {max(found) / 10_000:.1f}% | {geomean(found):.3f} "
            f"| {part['share_served_ppm'] / 10_000:.0f}% |"
        )
    faster = sum(gain > 0 for gain in every)
    best = max(every) / 10_000
    yield f"| all | | | {faster} of {len(every)} | {best:.1f}% | {geomean(every):.3f} | |"


def table(path: Path) -> str:
    """The whole table."""
    return "\n".join([HEADER, *rows(read_evidence(path))])


def main(arguments: Sequence[str]) -> int:
    """Print the table of one bundle; return the exit status."""
    if len(arguments) != 1:
        sys.stderr.write("expected one bundle: python tools/performance_table.py NAME.rltune\n")
        return 2
    sys.stdout.write(table(Path(arguments[0])) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
