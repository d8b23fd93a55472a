"""Reads Python assertions as tests: calls and expected values.  Nothing of them is run."""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from .comparison import EQUAL, WRAPPERS, Rule, written
from .problem import Check, Suite, parse_python

_OPERATORS: Final = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: lambda a, b: a**b,
}
_MAX_POWER_OPERAND: Final = 64
"""Of a power's base and exponent: larger ones may take long."""
_MAX_TOLERANCE: Final = 1.0
_MAX_CHARS: Final = 100_000
"""Of one input or value."""


class UnsupportedAssertion(ValueError):
    """An assertion that is no comparison of one call with one value."""


@dataclass(frozen=True)
class ParsedAssertions:
    """The tests, and the number of unsupported assertions."""

    suite: Suite
    refused: int


def parse_assertions(source: str, names: Mapping[str, str]) -> ParsedAssertions:
    """The assertions about the functions ``names`` (as the tests call them -> as the program does) in ``source``.

    Supported are ``f(...) == value``, ``f(...) is None`` (``True``, ``False``), ``f(...)``, ``not f(...)``,
    ``abs(f(...) - value) < t``, ``math.isclose(f(...), value, rel_tol=t)`` and ``set(f(...)) == value`` (``tuple``,
    ``list``, ``frozenset``, ``sorted``), with values of literals and arithmetic.  Assertions of constants say nothing
    and are left out; all others, and those in loops, count as refused.  Raises ``SyntaxError``.
    """
    tests: dict[Check, None] = {}
    tree = parse_python(source)
    in_loops = {
        node
        for loop in ast.walk(tree)
        if isinstance(loop, ast.For | ast.AsyncFor | ast.While)
        for node in ast.walk(loop)
    }
    assertions = [node for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    refused = sum(node in in_loops for node in assertions)
    for node in assertions:
        if node in in_loops or isinstance(node.test, ast.Constant):
            continue
        try:
            tests[_read(node.test, names)] = None
        except (ValueError, TypeError, RecursionError):  # unsupported; `...`, integers of over 4,300 digits, deep ones
            refused += 1
    return ParsedAssertions(tuple(tests), refused)


def _read(test: ast.expr, names: Mapping[str, str]) -> Check:
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=call):
            return _check(call, False, names, Rule("truth"))
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="math"), attr="isclose") | ast.Name(id="isclose"),
            args=[call, value],
            keywords=named,
        ):
            return _check(call, _value(value), names, _isclose(named))
        case ast.Call():
            return _check(test, True, names, Rule("truth"))
        case ast.Compare(
            left=ast.Call(func=ast.Name(id="abs"), args=[ast.BinOp(left=call, op=ast.Sub(), right=value)]),
            ops=[ast.Lt() | ast.LtE() as operator],
            comparators=[tolerance],
        ):
            limit = _tolerance(_value(tolerance))
            limit = math.nextafter(limit, math.inf) if isinstance(operator, ast.LtE) else limit
            return _check(call, _value(value), names, Rule("within", absolute=limit))
        case ast.Compare(
            left=ast.Call(func=ast.Name(id=wrapper), args=[call], keywords=[]), ops=[ast.Eq()], comparators=[value]
        ) if wrapper in WRAPPERS and wrapper not in names:
            return _check(call, _value(value), names, Rule("equal", wrapper))
        case ast.Compare(left=call, ops=[ast.Eq()], comparators=[value]):
            return _check(call, _value(value), names, EQUAL)
        case ast.Compare(left=call, ops=[ast.Is()], comparators=[ast.Constant(value=None | True | False as value)]):
            return _check(call, value, names, Rule("identical"))
    raise UnsupportedAssertion


def _isclose(named: list[ast.keyword]) -> Rule:
    tolerances = {keyword.arg: _tolerance(_value(keyword.value)) for keyword in named}
    if not tolerances.keys() <= {"rel_tol", "abs_tol"}:
        raise UnsupportedAssertion
    return Rule("isclose", relative=tolerances.get("rel_tol", 1e-9), absolute=tolerances.get("abs_tol", 0.0))


def _check(call: ast.expr, expected: Any, names: Mapping[str, str], rule: Rule) -> Check:
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id not in names:
        raise UnsupportedAssertion
    arguments = [_value(argument) for argument in call.args]
    named = {keyword.arg: _value(keyword.value) for keyword in call.keywords}
    if None in named:  # **named
        raise UnsupportedAssertion
    texts = written((arguments, named) if named else arguments), written(expected)
    if max(map(len, texts)) > _MAX_CHARS:
        raise UnsupportedAssertion
    return Check(*texts, rule)


def _value(node: ast.expr) -> Any:
    """A literal, arithmetic of literals, or a collection made of another."""
    match node:
        case ast.List(elts=items):
            return [_value(item) for item in items]
        case ast.Tuple(elts=items):
            return tuple(_value(item) for item in items)
        case ast.Call(func=ast.Name(id=wrapper), args=[value], keywords=[]) if wrapper in WRAPPERS:
            return _made(wrapper, _value(value))
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, ast.Mult) and not all(isinstance(side, int | float) for side in (left, right)):
            raise UnsupportedAssertion  # a text or list times a number may be of any size
        if isinstance(node.op, ast.Pow) and not all(
            isinstance(side, int) and 0 <= side <= _MAX_POWER_OPERAND for side in (left, right)
        ):
            raise UnsupportedAssertion
        try:
            return _OPERATORS[type(node.op)](left, right)
        except (TypeError, ArithmeticError) as error:
            raise UnsupportedAssertion from error
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, RecursionError) as error:
        raise UnsupportedAssertion from error


def _made(wrapper: str, value: Any) -> Any:
    try:
        return WRAPPERS[wrapper](value)
    except TypeError as error:
        raise UnsupportedAssertion from error


def _tolerance(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MAX_TOLERANCE:
        raise UnsupportedAssertion
    return float(value)
