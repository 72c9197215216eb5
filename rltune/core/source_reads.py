"""Which global names a definition reads.

Scopes are taken from the syntax: parameters, local names and the targets of
comprehensions are not global; imports inside a function are followed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

from rltune.core.source_names import BoundNames, Definition, Import, chain
from rltune.errors import SourceError


@dataclass(frozen=True, slots=True)
class Read:
    """A global name that a definition reads.

    Attributes:
        name: the name.
        attributes: the attributes that follow it, as in ``name.a.b``.
        line: where, counted from 1.
        imported: what an import inside the function binds the name to, or None.
        maybe_local: whether an enclosing class body also binds the name.
    """

    name: str
    attributes: tuple[str, ...]
    line: int
    imported: Import | None
    maybe_local: bool


@dataclass(slots=True)
class _Scope:
    names: set[str] = field(default_factory=set)
    imports: dict[str, list[Import]] = field(default_factory=dict)
    is_class: bool = False


def global_reads(definition: Definition, module: str) -> list[Read]:
    """The global names that ``definition`` reads, with the attributes taken from them.

    Decorators, defaults and annotations count as read.

    Raises:
        SourceError: a global statement, or a name that one function imports and
            binds in another way too.
    """
    reader = _Reader(module)
    reader.visit(definition)
    return reader.reads


class _Reader(ast.NodeVisitor):
    def __init__(self, module: str) -> None:
        self.reads: list[Read] = []
        self._module = module
        self._scopes: list[_Scope] = []

    def visit_Name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load):
            self._read((node.id,), node.lineno)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        names = chain(node)
        if names:
            self._read(names, node.lineno)
        else:
            self.generic_visit(node)

    def visit_Global(self, node: ast.Global) -> None:
        raise SourceError(
            f"{self._module}:{node.lineno}: global {', '.join(node.names)} has no fingerprint",
            advice="Pass the value as an argument.",
        )

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._visit_all([*node.decorator_list, node.args, node.returns])
        self._enter(node.body, self._parameters(node.args))

    # the names are those that ast.NodeVisitor calls
    visit_FunctionDef = visit_AsyncFunctionDef = _function  # noqa: N815

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self.visit(node.args)
        self._enter([node.body], self._parameters(node.args))

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_all([*node.decorator_list, *node.bases, *node.keywords])
        self._enter(node.body, _Scope(is_class=True))

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
    ) -> None:
        self.visit(node.generators[0].iter)  # evaluated outside the comprehension's own scope
        bound = BoundNames()
        for generator in node.generators:
            bound.visit(generator.target)
        self._scopes.append(_Scope(names=bound.names))
        self.generic_visit(node)
        self._scopes.pop()

    # the names are those that ast.NodeVisitor calls
    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension  # noqa: N815

    @staticmethod
    def _parameters(args: ast.arguments) -> _Scope:
        every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
        return _Scope(names={item.arg for item in every if item is not None})

    def _visit_all(self, nodes: Iterable[ast.AST | None]) -> None:
        for node in nodes:
            if node is not None:
                self.visit(node)

    def _enter(self, body: Iterable[ast.AST], scope: _Scope) -> None:
        nodes = list(body)
        bound = BoundNames()
        for node in nodes:
            bound.visit(node)
        for name, imports in bound.imports.items():
            once = len(set(imports)) == 1 and name not in bound.names | scope.names
            if not once or scope.is_class:
                raise SourceError(
                    f"{self._module}: {name!r} has no fingerprint: it is imported and bound "
                    "in another way too, or imported in a class body",
                    advice="Import it once, at module level.",
                )
        scope.names |= bound.names
        scope.imports = bound.imports
        self._scopes.append(scope)
        self._visit_all(nodes)
        self._scopes.pop()

    def _read(self, names: tuple[str, ...], line: int) -> None:
        name, attributes = names[0], names[1:]
        for depth, scope in enumerate(reversed(self._scopes)):
            if scope.is_class and depth:
                continue  # a class body's names are not seen by what it encloses
            if name in scope.imports:
                imported = scope.imports[name][0]
                self.reads.append(Read(name, attributes, line, imported, maybe_local=False))
                return
            if name in scope.names:
                if scope.is_class:
                    self.reads.append(Read(name, attributes, line, None, maybe_local=True))
                return
        self.reads.append(Read(name, attributes, line, None, maybe_local=False))
