"""What a module binds its names to.

Works on syntax alone: nothing is imported and nothing runs. What cannot be
decided from the text is refused when it is needed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from rltune.errors import SourceError

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign
"""A statement that binds module-level names once."""


@dataclass(frozen=True, slots=True)
class Import:
    """What an import binds a name to.

    Attributes:
        module: dotted module name; relative imports keep their leading dots.
        attribute: the name taken from it, or ``""`` for the module itself.
    """

    module: str
    attribute: str


def chain(node: ast.expr) -> tuple[str, ...]:
    """``a.b.c`` as ("a", "b", "c"); empty for every other expression."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return (node.id, *reversed(names)) if isinstance(node, ast.Name) else ()


class ModuleNames:
    """The module-level names of one module.

    Args:
        module: dotted name, for messages.
        source: the module's text.

    Raises:
        SourceError: the text is not Python.
    """

    def __init__(self, module: str, source: str) -> None:
        self.module = module
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError) as error:
            raise SourceError(f"{module}: cannot be parsed: {error}") from None
        self._bindings: dict[str, list[Import | Definition]] = {}
        self._refused: dict[str, tuple[int, str]] = {}
        self._called: dict[str, int] = {}
        self._star_line = 0
        for statement in tree.body:
            self._bind(statement)
        for node in ast.walk(tree):
            if isinstance(node, ast.Global):
                self._refuse(node.names, node.lineno, "is set through a global statement")

    def binds(self, name: str) -> bool:
        """Whether the module binds ``name`` at module level, in whatever way."""
        return name in self._bindings or name in self._refused or self._star_line > 0

    def lookup(self, name: str) -> Import | Definition:
        """What ``name`` is bound to.

        Raises:
            SourceError: the text does not decide it.
            KeyError: the module does not bind the name.
        """
        if self._star_line:
            raise self._error(self._star_line, name, "may come from a star import")
        if name in self._refused:
            line, why = self._refused[name]
            raise self._error(line, name, why)
        found = self._bindings[name]
        if any(item != found[0] for item in found):
            lines = [item.lineno for item in found if not isinstance(item, Import)]
            raise self._error(max(lines, default=1), name, "is bound several times")
        if name in self._called and isinstance(found[0], ast.Assign | ast.AnnAssign):
            raise self._error(self._called[name], name, "may be changed by a call of its method")
        return found[0]

    def _error(self, line: int, name: str, why: str) -> SourceError:
        return SourceError(
            f"{self.module}:{line}: {name!r} has no fingerprint: it {why}",
            advice="Bind it once, at module level, without conditions.",
        )

    def _refuse(self, names: Iterable[str], line: int, why: str) -> None:
        for name in names:
            self._refused.setdefault(name, (line, why))

    def _bind(self, statement: ast.stmt) -> None:
        bound = BoundNames()
        bound.visit(statement)
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            if any(alias.name == "*" for alias in statement.names):
                self._star_line = statement.lineno
            for name, imports in bound.imports.items():
                self._bindings.setdefault(name, []).extend(imports)
        elif isinstance(statement, Definition):
            for name in bound.names:
                self._bindings.setdefault(name, []).append(statement)
        else:
            names = [*bound.names, *bound.imports]
            self._refuse(names, statement.lineno, "is bound under a condition or changed")
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for node in ast.walk(statement):
                self._note_changes(node)

    def _note_changes(self, node: ast.AST) -> None:
        if isinstance(node, ast.stmt):
            self._refuse(_changed(node), node.lineno, "is changed after its definition")
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            for name in _owners([node.value.func]):
                self._called[name] = node.lineno


def _changed(statement: ast.stmt) -> list[str]:
    """Names whose objects a statement changes by assignment, as in ``X[k] = v``."""
    if isinstance(statement, ast.Assign | ast.Delete):
        return _owners(statement.targets)
    if isinstance(statement, ast.AugAssign | ast.AnnAssign):
        return _owners([statement.target])
    return []


def _owners(targets: Iterable[ast.expr]) -> list[str]:
    """``X`` for each target of the form ``X.a``, ``X[k]`` or deeper."""
    owners = []
    for target in targets:
        node = target
        while isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        if node is not target and isinstance(node, ast.Name):
            owners.append(node.id)
    return owners


class BoundNames(ast.NodeVisitor):
    """Collects the names that statements bind in their own scope.

    Attributes:
        names: names bound in any way but an import.
        imports: what imports bind, by name.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.imports: dict[str, list[Import]] = {}

    def visit_Name(self, node: ast.Name) -> None:
        """A name that is stored or deleted is bound."""
        if not isinstance(node.ctx, ast.Load):
            self.names.add(node.id)

    def visit_Import(self, node: ast.Import) -> None:
        """``import a.b`` binds ``a``; ``import a.b as c`` binds ``c``."""
        for alias in node.names:
            top = alias.name.partition(".")[0]
            bound = Import(alias.name if alias.asname else top, "")
            self.imports.setdefault(alias.asname or top, []).append(bound)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """``from a import b as c`` binds ``c``."""
        module = "." * node.level + (node.module or "")
        for alias in node.names:
            bound = Import(module, alias.name)
            self.imports.setdefault(alias.asname or alias.name, []).append(bound)

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        self.names.add(node.name)

    # the names are those that ast.NodeVisitor calls
    visit_FunctionDef = visit_AsyncFunctionDef = visit_ClassDef = _definition  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        """A lambda binds nothing outside itself."""

    def _comprehension(self, node: ast.expr) -> None:
        walruses = (item for item in ast.walk(node) if isinstance(item, ast.NamedExpr))
        self.names.update(item.target.id for item in walruses)

    # the names are those that ast.NodeVisitor calls
    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension  # noqa: N815

    def generic_visit(self, node: ast.AST) -> None:
        """``except ... as name``, ``case name``, ``case [*name]``, ``case {**rest}``."""
        if isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            self.names.add(node.name)
        if isinstance(node, ast.MatchMapping) and node.rest:
            self.names.add(node.rest)
        super().generic_visit(node)
