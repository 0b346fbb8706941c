"""Finds the small errors that could be made in a module: changed operators and constants, removed statements."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any, NamedTuple

_EACH_OTHER = (
    "Lt LtE, Gt GtE, Eq NotEq, Is IsNot, In NotIn, And Or, Add Sub, Mult Div, BitOr BitAnd, "
    "LShift RShift, USub UAdd"
)
_PAIRS = [pair.split() for pair in _EACH_OTHER.split(", ")]
_BECOMES = {a: b for pair in _PAIRS for a, b in (pair, reversed(pair))}
_BECOMES |= {"FloorDiv": "Mult", "Mod": "Mult", "Pow": "Mult"}
_NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
_TO_PEOPLE = {"annotation", "returns", "decorator_list"}
_EFFECTS = (ast.AugAssign, ast.Delete, ast.Raise, ast.Continue, ast.Break)


class Change(NamedTuple):
    """`target.field = value` makes the error; `node` is its position."""

    node: ast.AST
    what: str
    target: ast.AST
    field: str
    value: Any


@dataclass(frozen=True, slots=True)
class Mutant:
    """One error in one module. Its name does not change when lines move. Without `lines`, it acts on import."""

    name: str
    module: str
    number: int
    lines: range | None


def mutants(module: str, source: str) -> Iterator[Mutant]:
    """Return all mutants of a module, in the order of its text."""
    text, seen = source.splitlines(), Counter[str]()
    for number, (change, within, lines) in enumerate(_sites(ast.parse(source), (module,))):
        line = text[change.node.lineno - 1].strip()  # type: ignore[attr-defined]
        name = f"{'.'.join(within)}: {change.what} in `{line}`"
        seen[name] += 1
        yield Mutant(f"{name} #{seen[name]}" if seen[name] > 1 else name, module, number, lines)


def compiled(mutant: Mutant, source: str, path: str) -> CodeType:
    """Return the module with this error."""
    tree = ast.parse(source)
    change = next(c for n, (c, _, _) in enumerate(_sites(tree, ())) if n == mutant.number)
    setattr(change.target, change.field, change.value)
    return compile(ast.fix_missing_locations(tree), path, "exec")


_Site = tuple[Change, tuple[str, ...], range | None]


def _sites(node: ast.AST, within: tuple[str, ...], lines: range | None = None) -> Iterator[_Site]:
    match node:
        case ast.JoinedStr() | ast.Assert() | ast.keyword(arg="strict"):
            return
        case ast.If(test=ast.Name("TYPE_CHECKING")):
            return
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            within = (*within, name)
    lines = _lines(node, lines)
    yield from ((change, within, lines) for change in _changes(node))
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and field not in _TO_PEOPLE:
                yield from _sites(child, within, lines)


def _lines(node: Any, around: range | None) -> range | None:
    """Return the lines that a test must execute to notice the error: the head of the innermost statement."""
    if isinstance(node, ast.FunctionDef):
        return range(node.body[0].lineno, (node.end_lineno or 0) + 1)
    if around is None or not isinstance(node, ast.stmt):
        return around
    inner = getattr(node, "body", None) or [case.body[0] for case in getattr(node, "cases", ())]
    last = inner[0].lineno - 1 if inner else node.end_lineno or 0
    return range(node.lineno, max(node.lineno, last) + 1)


def _changes(node: ast.AST) -> Iterator[Change]:
    """Yield the changes of this node, or of a statement in its body."""
    match node:
        case ast.Compare(ops=ops):
            for i, op in enumerate(ops):
                what, new = _other(op)
                yield Change(node, what, node, "ops", [*ops[:i], new, *ops[i + 1 :]])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield Change(node, "not is lost", node, "operand", _negated(operand))
        case ast.BoolOp(op=op) | ast.BinOp(op=op) | ast.AugAssign(op=op) | ast.UnaryOp(op=op):
            what, new = _other(op)
            yield Change(node, what, node, "op", new)
        case ast.Constant(value=bool(value)):
            yield Change(node, f"{value} becomes {not value}", node, "value", not value)
        case ast.Constant(value=int(value) | float(value)):
            yield Change(node, f"{value} becomes {value + 1}", node, "value", value + 1)
        case ast.Call(func=ast.Name(id=name) as func) if name in _NAMES:
            yield Change(node, f"{name} becomes {_NAMES[name]}", func, "id", _NAMES[name])
        case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
            yield Change(node, "returns None", node, "value", ast.Constant(None))
    test = getattr(node, "test", None)
    if isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.NamedExpr):
        yield Change(test, "condition is negated", node, "test", _negated(test))
    for field in ("body", "orelse", "finalbody"):
        body: Any = getattr(node, field, None)
        for i, lost in enumerate(body if isinstance(body, list) else ()):
            if _has_effect(lost):
                yield Change(lost, "lost", node, field, [*body[:i], ast.Pass(), *body[i + 1 :]])


def _other(op: ast.AST) -> tuple[str, ast.AST]:
    name = type(op).__name__
    return f"{name} becomes {_BECOMES[name]}", getattr(ast, _BECOMES[name])()


def _negated(test: ast.expr) -> ast.expr:
    return ast.UnaryOp(ast.Not(), test)


def _has_effect(statement: ast.stmt) -> bool:
    match statement:
        case ast.Assign(targets=targets):
            return any(isinstance(t, ast.Attribute | ast.Subscript) for t in targets)
        case ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom()) | ast.Return(value=None):
            return True
    return isinstance(statement, _EFFECTS)
