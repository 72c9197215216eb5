"""One compile worker: reads requests, compiles with Triton, answers. No torch, no GPU.

Run as a script by any Python that holds a Triton, also one where rltune is not
installed: ``python compile_worker.py PACKAGE_DIR...`` maps the top packages to
the given folders, so nothing else of the caller's environment leaks in. One
JSON object a line on standard input and output; see :func:`answer`.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import importlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any


class PackageFinder:
    """Finds each given top package in its own folder and nowhere else."""

    def __init__(self, folders: Sequence[str]) -> None:
        self._parents = {Path(folder).name: str(Path(folder).parent) for folder in folders}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Spec of a top package this finder was given; None for every other module."""
        if path is None and name in self._parents:
            return PathFinder.find_spec(name, [self._parents[name]], target)
        return None


def answer(request: Mapping[str, Any]) -> dict[str, object]:
    """Compile one program.

    Args:
        request: ``jit`` ("module:function"), ``signature``, ``constexprs``, ``options``
            and ``target`` ("cuda", arch, warp size).

    Returns:
        ``digest``, ``binary`` (base64), ``entry``, ``num_warps``, ``num_ctas``,
        ``shared_bytes``, ``global_scratch_bytes`` and ``reductions``; or ``error``
        with what the compiler said.
    """
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile  # noqa: A004 - Triton's own name

    from rltune.sweep.layouts import reductions

    module, function = str(request["jit"]).split(":")
    signature = dict(request["signature"])
    pointers = [i for i, kind in enumerate(signature.values()) if kind.startswith("*")]
    source = ASTSource(
        getattr(importlib.import_module(module), function),
        signature,
        dict(request["constexprs"]),
        {(index,): [["tt.divisibility", 16]] for index in pointers},
    )
    backend, arch, warp_size = request["target"]
    compiled = compile(
        source, target=GPUTarget(backend, arch, warp_size), options=dict(request["options"])
    )
    binary = compiled.asm["cubin"]
    metadata = compiled.metadata
    scratch = metadata.global_scratch_size + getattr(metadata, "profile_scratch_size", 0)
    return {
        "digest": hashlib.sha256(binary).hexdigest(),
        "binary": base64.b64encode(binary).decode("ascii"),
        "entry": metadata.name,
        "num_warps": metadata.num_warps,
        "num_ctas": metadata.num_ctas,
        "shared_bytes": metadata.shared,
        "global_scratch_bytes": scratch,
        "reductions": list(reductions(compiled.asm["ttgir"])),
    }


def main(folders: Sequence[str]) -> None:
    """Answer requests until standard input ends."""
    sys.meta_path.insert(0, PackageFinder(folders))
    # Compilers print; keep the answers' stream to ourselves.
    answers = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    import triton

    print(json.dumps({"triton": triton.__version__}), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply = answer(request)
        except Exception as error:  # noqa: BLE001 - a compiler raises anything; one candidate drops
            # Triton quotes the source first; the last line says what is wrong.
            lines = str(error).strip().splitlines() or ["no message"]
            reply = {"error": f"{type(error).__name__}: {lines[-1].strip()[:300]}"}
        print(json.dumps(reply), file=answers, flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(sys.argv[1:])
