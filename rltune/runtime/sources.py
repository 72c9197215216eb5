"""Source text of modules, found without executing them.

A fingerprint must be the same in a process that never imports torch, so the
modules that hold kernels are located by their package's path and read, not run.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder

from rltune.core.fingerprint import source_fingerprint
from rltune.core.operator import KernelSpec
from rltune.errors import SourceError


def read_source(module: str) -> str:
    """Source text of ``module``, such as ``rltune_kernels.silu.kernel``.

    Raises:
        SourceError: no such module, or it has no source text.
    """
    spec = _find(module)
    get_source = getattr(spec.loader, "get_source", None)
    try:
        text = None if get_source is None else get_source(module)
    except (ImportError, OSError, SyntaxError, UnicodeDecodeError) as error:
        raise SourceError(f"module {module}: its source cannot be read: {error}") from None
    if text is None:
        raise SourceError(
            f"module {module}: it has no source text ({spec.origin or 'unknown origin'})",
            advice="Install the package with its .py files.",
        )
    return str(text)


def installed_fingerprint(kernel: KernelSpec) -> str:
    """Fingerprint of ``kernel`` as installed here.

    Raises:
        SourceError: its source is missing or has a form that has no fingerprint.
    """
    return source_fingerprint(kernel, read_source)


def _find(module: str) -> ModuleSpec:
    search: Sequence[str] | None = None
    spec: ModuleSpec | None = None
    parts = module.split(".")
    for depth in range(1, len(parts) + 1):
        name = ".".join(parts[:depth])
        spec = _find_one(name, search)
        if spec is None:
            raise SourceError(f"module {module}: {name} is not installed")
        search = spec.submodule_search_locations
        if search is None and depth < len(parts):
            raise SourceError(f"module {module}: {name} is not a package")
    if spec is None:
        raise SourceError("module name is empty")
    return spec


def _find_one(name: str, search: Sequence[str] | None) -> ModuleSpec | None:
    loaded = sys.modules.get(name)
    if loaded is not None and loaded.__spec__ is not None:
        return loaded.__spec__
    for finder in sys.meta_path:  # editable installs bring a finder of their own
        find_spec = getattr(finder, "find_spec", None)
        spec = None if find_spec is None else find_spec(name, search)
        if isinstance(spec, ModuleSpec):
            return spec
    return PathFinder.find_spec(name, search)
