"""Print the fingerprints of this package as JSON, one per kernel.

``PYTHONPATH=.:tests/golden/assets python -m snapshot_kernels`` needs nothing but
the standard library and ``rltune.core``.
"""

import json
import sys
from pathlib import Path

from rltune.core.fingerprint import source_fingerprint, space_digest
from rltune.errors import SourceError
from snapshot_kernels.scale.spec import SPEC
from snapshot_kernels.syntax import SYNTAX

ASSETS = Path(__file__).parents[1]
ROOTS = (ASSETS, ASSETS.parents[2])


def read_source(module: str) -> str:
    """Text of a module of this package or of rltune."""
    for root in ROOTS:
        path = root.joinpath(*module.split("."))
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return file.read_text(encoding="utf-8")
    raise SourceError(f"{module}: no such module")


def fingerprints() -> dict[str, str]:
    """Fingerprint by kernel id, and the digest of a candidate space."""
    values = {
        kernel.kernel_id: source_fingerprint(kernel, read_source)
        for kernel in (*SPEC.kernels, SYNTAX)
    }
    return {**values, "space": space_digest({"fp32,width=3": ["w1,s1", "w2,s1"], "bf16": []})}


if __name__ == "__main__":
    json.dump(fingerprints(), sys.stdout, indent=2, sort_keys=True)
    sys.stdout.write("\n")
