"""Expressions of numbers and stored results, as the files of claims hold them.

An expression is a part of Python's: numbers, texts, names, arithmetic, comparisons, ``and``,
``or``, ``not``, lists, subscripts and calls of given functions. Nothing else is evaluated.
"""

import ast
import operator
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any

from tauflow.errors import SpecificationError
from tauflow.runs.report.metric_format import DASH

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.Not: operator.not_,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_EXACT = (ast.Eq, ast.NotEq)
_FIELD = re.compile(r"\{([^{}:]+)(?::([^{}]*))?\}")


def evaluate(
    text: str, functions: Mapping[str, Callable[..., Any]], names: Mapping[str, Any]
) -> Any:
    """Return the value of an expression.

    Args:
        text: the expression.
        functions: that it may call, by name.
        names: values that it may use.

    Raises:
        SpecificationError: it is no such expression, or uses an unknown name.
    """
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError as error:
        raise SpecificationError(f"{text!r} is no expression: {error.msg}.") from None
    return _Evaluator(text, functions, names).visit(tree.body)


def fill_in(
    text: str,
    functions: Mapping[str, Callable[..., Any]],
    names: Mapping[str, Any],
    missing: Collection[str] = (),
) -> str:
    """Return a text with every ``{expression:format}`` in it evaluated and formatted.

    Booleans are "yes" or "no"; expressions of a name that is missing are dashes.
    """

    def show(match: re.Match[str]) -> str:
        if uses_any(match[1], missing):
            return DASH
        value = evaluate(match[1], functions, names)
        return ("no", "yes")[value] if isinstance(value, bool) else format(value, match[2] or "")

    return _FIELD.sub(show, text)


def is_all_missing(text: str, missing: Collection[str]) -> bool:
    """Whether no ``{expression:format}`` of a text can be filled in."""
    return all(uses_any(match[1], missing) for match in _FIELD.finditer(text))


def uses_any(text: str, names: Collection[str]) -> bool:
    """Whether an expression uses one of some names."""
    nodes = ast.walk(ast.parse(text, mode="eval"))
    return any(isinstance(node, ast.Name) and node.id in names for node in nodes)


def list_calls(text: str) -> list[str]:
    """Return the calls of functions in an expression, as expressions, each after what it is in."""
    nodes = ast.walk(ast.parse(text, mode="eval"))
    return [ast.unparse(node) for node in nodes if isinstance(node, ast.Call)]


def move_bounds(text: str, share: float = 0.2) -> list[str]:
    """Return a rule with each of its bounds moved down, and up, by a share of it.

    A bound is a number in a comparison by size, alone or as a factor or summand; arguments of
    functions and subscripts do not count. One from a half to 1 is taken for a share, such as an
    accuracy, and moves by that part of its distance to 1.

    Args:
        text: the rule.
        share: by how much.
    """
    tree = ast.parse(text, mode="eval")
    bounds = [
        bound
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare) and not any(isinstance(op, _EXACT) for op in node.ops)
        for side in (node.left, *node.comparators)
        for bound in _find_numbers(side)
    ]
    moved = []
    for bound in bounds:
        value: Any = bound.value
        for sign in (-1, 1):
            scale = 1 - value if 0.5 <= value < 1 else value
            bound.value = value + sign * share * scale
            moved.append(ast.unparse(tree))
        bound.value = value
    return moved


def _find_numbers(node: ast.expr) -> list[ast.Constant]:
    """Return the numbers of a side of a comparison but 0, which cannot be moved by a part."""
    if isinstance(node, ast.BinOp):
        return [*_find_numbers(node.left), *_find_numbers(node.right)]
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and node.value:
        return [node]
    return []


class _Evaluator:
    """Evaluates the nodes of one expression."""

    def __init__(
        self, text: str, functions: Mapping[str, Callable[..., Any]], names: Mapping[str, Any]
    ) -> None:
        self.text, self.functions, self.names = text, functions, names

    def visit(self, node: ast.expr) -> Any:
        """Return the value of a node."""
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                return self._look_up(name, self.names)
            case ast.List(elts=items):
                return [self.visit(item) for item in items]
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                return _BINARY[type(op)](self.visit(left), self.visit(right))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
                return _UNARY[type(op)](self.visit(operand))
            case ast.BoolOp(op=op, values=values):
                every = isinstance(op, ast.And)
                return (all if every else any)(bool(self.visit(value)) for value in values)
            case ast.Compare(left=left, ops=ops, comparators=others):
                values = [self.visit(left), *map(self.visit, others)]
                return all(
                    _COMPARISONS[type(op)](a, b)
                    for op, a, b in zip(ops, values, values[1:], strict=False)
                )
            case ast.Subscript(value=value, slice=index):
                return self.visit(value)[self.visit(index)]
            case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords):
                options = {word.arg: self.visit(word.value) for word in keywords if word.arg}
                return self._look_up(name, self.functions)(*map(self.visit, args), **options)
        raise SpecificationError(
            f"{self.text!r}: {ast.unparse(node)!r} is not an expression that claims may use."
        )

    def _look_up(self, name: str, known: Mapping[str, Any]) -> Any:
        if name not in known:
            raise SpecificationError(
                f"{self.text!r}: there is no {name!r}. Known: {', '.join(sorted(known))}."
            )
        return known[name]
