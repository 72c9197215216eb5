"""One text for one piece of syntax, the same on Python 3.11, 3.12 and 3.13.

``ast.dump`` changes with the Python version. Here the fields of each node are
listed, everything that carries no meaning (positions, contexts, docstrings,
type comments) is left out, and syntax that is not listed is refused.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator

from rltune.errors import SourceError

_TABLE = """
FunctionDef name args body decorator_list returns
AsyncFunctionDef name args body decorator_list returns
ClassDef name bases keywords body decorator_list
Return value
Delete targets
Assign targets value
AugAssign target op value
AnnAssign target annotation value simple
For target iter body orelse
AsyncFor target iter body orelse
While test body orelse
If test body orelse
With items body
AsyncWith items body
Match subject cases
Raise exc cause
Try body handlers orelse finalbody
TryStar body handlers orelse finalbody
Assert test msg
Import names
ImportFrom module names level
Global names
Nonlocal names
Expr value
Pass
Break
Continue
BoolOp op values
NamedExpr target value
BinOp left op right
UnaryOp op operand
Lambda args body
IfExp test body orelse
Dict keys values
Set elts
ListComp elt generators
SetComp elt generators
DictComp key value generators
GeneratorExp elt generators
Await value
Yield value
YieldFrom value
Compare left ops comparators
Call func args keywords
FormattedValue value conversion format_spec
Attribute value attr
Subscript value slice
Starred value
Name id
List elts
Tuple elts
Slice lower upper step
comprehension target iter ifs is_async
ExceptHandler type name body
arguments posonlyargs args vararg kwonlyargs kw_defaults kwarg defaults
arg arg annotation
keyword arg value
alias name asname
withitem context_expr optional_vars
match_case pattern guard body
MatchValue value
MatchSequence patterns
MatchMapping keys patterns rest
MatchClass cls patterns kwd_attrs kwd_patterns
MatchStar name
MatchAs pattern name
MatchOr patterns
And
Or
Add
Sub
Mult
MatMult
Div
Mod
Pow
LShift
RShift
BitOr
BitXor
BitAnd
FloorDiv
Invert
Not
UAdd
USub
Eq
NotEq
Lt
LtE
Gt
GtE
Is
IsNot
In
NotIn
"""

_FIELDS = {row.split()[0]: tuple(row.split()[1:]) for row in _TABLE.strip().splitlines()}

# Python 3.11 and 3.12 read escapes in format specifications differently.
_PLAIN_FORMAT = re.compile(r"[A-Za-z0-9 <>=^+\-#,._%:/]*")


def to_form(node: ast.AST, module: str) -> str:
    """The text that stands for ``node``: equal for equal meaning, whatever the Python.

    Args:
        node: a statement or expression.
        module: where it stands, for the message.

    Raises:
        SourceError: the syntax has no form that is stable across Python versions.
    """
    if isinstance(node, (ast.Constant, ast.MatchSingleton)):
        return f"({type(node).__name__} {_constant(node.value)})"
    if isinstance(node, ast.JoinedStr):
        return f"(JoinedStr {_joined(node, module)})"
    kind = type(node).__name__
    if kind not in _FIELDS or getattr(node, "type_params", None):
        raise SourceError(
            f"{module}:{getattr(node, 'lineno', 0)}: {kind} has no fingerprint: its syntax "
            "is not the same on every supported Python",
            advice="Write it in the syntax of Python 3.11.",
        )
    parts = [kind]
    for field in _FIELDS[kind]:
        value = getattr(node, field, None)
        if value is not None and value != []:
            parts.append(f"{field}={_value(value, node, module)}")
    return f"({' '.join(parts)})"


def _value(value: object, owner: ast.AST, module: str) -> str:
    if isinstance(value, list):
        return f"[{' '.join(_value(item, owner, module) for item in _without_text(value))}]"
    if isinstance(value, ast.FormattedValue):
        return to_form(value, module)
    if isinstance(value, ast.JoinedStr) and isinstance(owner, ast.FormattedValue):
        return _format_spec(value, module)
    if isinstance(value, ast.AST):
        return to_form(value, module)
    if isinstance(value, str):
        return json.dumps(value)
    return "-" if value is None else str(value)


def _without_text(items: list[object]) -> Iterator[object]:
    """Items of a list field without docstrings and other text that stands alone."""
    for item in items:
        alone = isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant)
        if not (alone and isinstance(item.value.value, str)):  # type: ignore[attr-defined]
            yield item


def _constant(value: object) -> str:
    if isinstance(value, bool) or value is None or value is ...:
        return repr(value)
    if isinstance(value, int):
        return hex(value)  # repr refuses very long integers
    if isinstance(value, float):
        return f"float {value.hex()}"
    if isinstance(value, complex):
        return f"complex {value.real.hex()} {value.imag.hex()}"
    if isinstance(value, bytes):
        return f"bytes {value.hex()}"
    return f"str {json.dumps(value)}"


def _joined(node: ast.JoinedStr, module: str) -> str:
    """Parts of an f-string; neighbouring texts are one, empty ones none."""
    parts: list[str] = []
    text = ""
    for item in node.values:
        if isinstance(item, ast.Constant):
            text += str(item.value)
            continue
        parts += [_constant(text)] if text else []
        text = ""
        parts.append(to_form(item, module))
    parts += [_constant(text)] if text else []
    return f"[{' '.join(parts)}]"


def _format_spec(node: ast.JoinedStr, module: str) -> str:
    for item in node.values:
        if isinstance(item, ast.Constant) and not _PLAIN_FORMAT.fullmatch(str(item.value)):
            raise SourceError(
                f"{module}:{node.lineno}: format specification {item.value!r} has no fingerprint: "
                "Python 3.11 and 3.12 read it differently",
                advice="Use only plain characters in format specifications.",
            )
    return _joined(node, module)
