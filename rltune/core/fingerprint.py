"""Source fingerprint: one digest over everything that decides a kernel's numbers.

The closure is taken from the text of the modules: nothing is imported and
nothing runs, so a machine without Triton or torch gets the same digest. Names
of first-party modules are followed; names of other packages are recorded by
their dotted name, since their versions are matched on their own.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
from collections.abc import Callable, Mapping, Sequence

from rltune.core.canonical import digest
from rltune.core.operator import KernelSpec
from rltune.core.source_form import to_form
from rltune.core.source_names import Definition, Import, ModuleNames, chain
from rltune.core.source_reads import Read, global_reads
from rltune.errors import SourceError

_CORE = "rltune.core"
_DECLARATIONS = ("rltune.core.operator.KernelSpec", "rltune.core.operator.OperatorSpec")
_DYNAMIC = (
    *(f"builtins.{name}" for name in ("eval", "exec", "compile", "globals", "locals", "vars")),
    "importlib",
    "sys.modules",
)


def source_fingerprint(kernel: KernelSpec, read_source: Callable[[str], str]) -> str:
    """Hex sha256 over the named facts that decide what ``kernel`` computes.

    The facts are the source closures of the Triton kernel, its grid, its
    constexprs, its derived axes and its binder, and the declared argument
    binding. Comments, docstrings, layout, positions and paths are no facts.

    Two things are recorded by name only: objects that declare an operator or
    kernel (``KernelSpec``, ``OperatorSpec``), whose binding is a fact of its own
    and whose candidate rules are not part of the numbers; and classes of
    ``rltune.core``, which are vocabulary.

    Args:
        kernel: the declaration.
        read_source: gives the text of a module by its dotted name, the
            ``__init__`` of a package; raises SourceError if there is none.

    Raises:
        SourceError: a name in the closure cannot be resolved from the text.
    """
    roots = _roots(kernel)
    closure = _Closure(read_source, {module.partition(".")[0] for module, _ in roots.values()})
    for module, name in roots.values():
        closure.add_root(module, name)
    return digest(
        {
            "format": "rltune-source/1",
            "roots": {role: f"{module}:{name}" for role, (module, name) in roots.items()},
            "definitions": [list(item) for item in sorted(closure.definitions.items())],
            "opaque": sorted(closure.opaque),
            "binding": kernel.binding(),
        }
    )


def space_digest(candidate_ids: Mapping[str, Sequence[str]]) -> str:
    """Hex sha256 over the candidate ids of every swept key, by key text.

    The order of keys does not matter; the order of candidates is the plan's.
    """
    return digest({key: list(ids) for key, ids in candidate_ids.items()})


def _roots(kernel: KernelSpec) -> dict[str, tuple[str, str]]:
    roots = {
        "jit": _split(kernel.jit, kernel),
        "binder": _split(kernel.binder, kernel),
        "grid": _place(kernel.grid, kernel),
        "constexprs": _place(kernel.constexprs, kernel),
    }
    if kernel.derived_axes is not None:
        roots["derived_axes"] = _place(kernel.derived_axes, kernel)
    return roots


def _split(text: str, kernel: KernelSpec) -> tuple[str, str]:
    module, colon, name = text.partition(":")
    if not (module and colon and name):
        raise SourceError(f"{kernel.kernel_id}: expected module:function, got {text!r}")
    return module, name


def _place(function: object, kernel: KernelSpec) -> tuple[str, str]:
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", "<nameless>")
    if not isinstance(module, str) or "<" in name:
        raise SourceError(
            f"{kernel.kernel_id}: {name} has no fingerprint: it is no module-level function",
            advice="Define it with def at module level.",
        )
    return module, name


class _Closure:
    """Definitions reached from the roots, and the dotted names where following ends."""

    def __init__(self, read_source: Callable[[str], str], packages: set[str]) -> None:
        self.definitions: dict[str, str] = {}
        self.opaque: set[str] = set()
        self._read_source = read_source
        # `rltune` itself is the tool; only its core holds helpers of grids
        self._first_party = (_CORE, *sorted(packages - {"rltune"}))
        self._modules: dict[str, ModuleNames | None] = {}

    def add_root(self, module: str, qualified_name: str) -> None:
        names = tuple(qualified_name.split("."))
        found = self._follow(module, names, f"{module}:1")
        if found is None:
            raise SourceError(f"{module}: {qualified_name!r} is not a definition of this module")
        self._add(*found)

    def _add(self, module: str, name: str, definition: Definition) -> None:
        pending = [(module, name, definition)]
        while pending:
            module, name, definition = pending.pop()
            label = f"{module}:{name}"
            if label in self.definitions:
                continue
            text = _form(definition, module)
            self.definitions[label] = hashlib.sha256(text.encode("ascii")).hexdigest()
            for read in global_reads(definition, module):
                found = self._resolve(module, read)
                if found is not None:
                    pending.append(found)

    def _resolve(self, module: str, read: Read) -> tuple[str, str, Definition] | None:
        """The definition that ``read`` stands for, or None where it is recorded by name."""
        where = f"{module}:{read.line}"
        names = (read.name, *read.attributes)
        if read.imported is not None:
            start, names = _step(read.imported, names)
            return self._follow(start, names, where)
        if self._names(module, where).binds(read.name):
            return self._follow(module, names, where)
        if read.maybe_local:
            return None
        if not hasattr(builtins, read.name) or read.name.startswith("__"):
            raise _unresolved(where, read.name, "it is bound nowhere in the module")
        return self._follow("builtins", (read.name,), where)

    def _follow(
        self, module: str, names: tuple[str, ...], where: str
    ) -> tuple[str, str, Definition] | None:
        """Follow imports from ``names`` in ``module`` to a definition."""
        module, names, bound = self._find(module, names, where)
        dotted = ".".join((module, *names))
        if bound is None:
            if any(f"{dotted}.".startswith(f"{name}.") for name in _DYNAMIC):
                raise _unresolved(where, dotted, "what it reaches is known only when it runs")
            self.opaque.add(dotted)
            return None
        vocabulary = isinstance(bound, ast.ClassDef) and f"{module}.".startswith(f"{_CORE}.")
        if vocabulary or self._declares(module, bound):
            self.opaque.add(f"{module}.{names[0]}")
            return None
        return module, names[0], bound

    def _find(
        self, module: str, names: tuple[str, ...], where: str
    ) -> tuple[str, tuple[str, ...], Definition | None]:
        """Where following ends: a definition, or a name of another package and None."""
        seen: set[tuple[str, tuple[str, ...]]] = set()
        while self._is_first_party(module) or (module == "rltune" and names[:1] == ("core",)):
            if not names:
                raise _unresolved(where, module, "a first-party module is used as a value")
            if module.startswith(".") or (module, names) in seen:
                raise _unresolved(where, names[0], "its import is relative or circular")
            seen.add((module, names))
            bound = self._lookup(module, names[0], where)
            if isinstance(bound, Import):
                module, names = _step(bound, names)
            elif bound is None:
                module, names = f"{module}.{names[0]}", names[1:]
            else:
                return module, names, bound
        return module, names, None

    def _lookup(self, module: str, name: str, where: str) -> Import | Definition | None:
        """What ``module`` binds ``name`` to; None if it is a submodule."""
        table = self._table(module) if self._is_first_party(module) else None
        if table is not None and table.binds(name):
            return table.lookup(name)
        submodule = f"{module}.{name}"
        if self._table(submodule) is not None:
            return None
        raise _unresolved(where, submodule, "neither a definition nor a module has this name")

    def _declares(self, module: str, bound: Definition) -> bool:
        """Whether a definition makes a kernel or operator declaration."""
        if isinstance(bound, (ast.FunctionDef, ast.AsyncFunctionDef)):
            maker = bound.returns
        elif isinstance(bound, (ast.Assign, ast.AnnAssign)) and isinstance(bound.value, ast.Call):
            maker = bound.value.func
        else:
            return False
        names = chain(maker) if maker is not None else ()
        where = f"{module}:{bound.lineno}"
        if not names or not self._names(module, where).binds(names[0]):
            return False
        place, names, found = self._find(module, names, where)
        if ".".join((place, *names)) in _DECLARATIONS:
            return True
        is_call = not isinstance(bound, (ast.FunctionDef, ast.AsyncFunctionDef))
        return is_call and isinstance(found, ast.FunctionDef) and self._declares(place, found)

    def _is_first_party(self, module: str) -> bool:
        # a leading dot is a relative import, which only first-party code can hold here
        inside = any(f"{module}.".startswith(f"{name}.") for name in self._first_party)
        return inside or module.startswith(".")

    def _names(self, module: str, where: str) -> ModuleNames:
        table = self._table(module)
        if table is None:
            raise _unresolved(where, module, "its source cannot be read")
        return table

    def _table(self, module: str) -> ModuleNames | None:
        if module not in self._modules:
            try:
                source = self._read_source(module)
            except SourceError:
                self._modules[module] = None
            else:
                self._modules[module] = ModuleNames(module, source)
        return self._modules[module]


def _step(bound: Import, names: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    rest = names[1:]
    return bound.module, (bound.attribute, *rest) if bound.attribute else rest


def _form(definition: Definition, module: str) -> str:
    try:
        return to_form(definition, module)
    except RecursionError:
        raise SourceError(f"{module}:{definition.lineno}: nested too deeply") from None


def _unresolved(where: str, name: str, why: str) -> SourceError:
    return SourceError(
        f"{where}: {name!r} has no fingerprint: {why}",
        advice="Import the function by its absolute name, or define it in the module.",
    )
