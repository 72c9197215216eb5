"""Lists the committed bundles whose kernels have changed since; ``--release`` refuses them.

``make test`` prints the list, ``make release-check`` fails on it. Signatures, structure
and programs of the bundles are tested in ``tests/golden`` either way.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
STALE_STATUS = 12


def stale_kernels(path: Path) -> list[str]:
    """Kernels and rules in which a bundle differs from the sources here."""
    from rltune.bundle.codec import BundleFile
    from rltune.sweep.checks import check_coverage, check_membership, check_sources
    from rltune_kernels import operator_specs

    operators = operator_specs()
    with BundleFile.open(path) as bundle:
        predicate = bundle.decode_predicate()
    found = [
        *check_sources(predicate, operators),
        *check_membership(predicate, operators),
        *check_coverage(predicate, operators),
    ]
    return [str(item) for item in found]


def main(arguments: Sequence[str]) -> int:
    """Print one line a bundle and one a stale kernel; return the exit status."""
    os.environ["RLTUNE_MODE"] = "off"
    bundles = sorted((ROOT / "artifacts").glob("*/*.rltune"))
    stale = False
    for path in bundles:
        findings = stale_kernels(path)
        stale = stale or bool(findings)
        sys.stdout.write(f"{path.relative_to(ROOT)}: {len(findings) or 'no'} stale\n")
        sys.stdout.writelines(f"  {item}\n" for item in findings)
    if stale and "--release" in arguments:
        sys.stderr.write("stale bundles: sweep again and sign the result before a release\n")
        return STALE_STATUS
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
