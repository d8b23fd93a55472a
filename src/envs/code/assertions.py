"""Reads Python assertions as tests: calls and expected values.  Nothing of them is run."""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

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


class UncarriedValue(UnsupportedAssertion):
    """One with a value that JSON cannot carry faithfully (sets, keys that are no text)."""


@dataclass(frozen=True)
class ParsedAssertions:
    """The tests, the number of unsupported assertions, and the tolerance that the others ask for.

    ``uncarried`` of the unsupported ones have a value that JSON cannot carry.
    """

    suite: Suite
    refused: int
    uncarried: int
    tolerance: float


def parse_assertions(source: str, names: Mapping[str, str]) -> ParsedAssertions:
    """The assertions about the functions ``names`` (as the tests call them -> as the program does) in ``source``.

    Supported are ``f(...) == value``, ``f(...) is value``, ``f(...)``, ``not f(...)``, ``abs(f(...) - value) < t`` and
    ``tuple(f(...)) == tuple(value)``, with values of literals and arithmetic.  Assertions of constants say nothing and
    are left out; all others, and those in loops, count as refused.  Raises ``SyntaxError``.
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
    refused, uncarried, tolerance = sum(node in in_loops for node in assertions), 0, 0.0
    for node in assertions:
        if node in in_loops or isinstance(node.test, ast.Constant):
            continue
        try:
            check, allowance = _read(node.test, names)
        except (UnsupportedAssertion, RecursionError) as error:
            refused += 1
            uncarried += isinstance(error, UncarriedValue)
            continue
        tests[check] = None
        tolerance = max(tolerance, allowance)
    return ParsedAssertions(tuple(tests), refused, uncarried, tolerance)


def _read(test: ast.expr, names: Mapping[str, str]) -> tuple[Check, float]:
    match test:
        case ast.Call():
            return _check(test, True, names), 0.0
        case ast.UnaryOp(op=ast.Not(), operand=call):
            return _check(call, False, names), 0.0
        case ast.Compare(
            left=ast.Call(func=ast.Name(id="abs"), args=[ast.BinOp(left=call, op=ast.Sub(), right=value)]),
            ops=[ast.Lt() | ast.LtE()],
            comparators=[tolerance],
        ):
            return _check(call, _value(value), names), _tolerance(_value(tolerance))
        case ast.Compare(
            left=ast.Call(func=ast.Name(id="tuple" | "list"), args=[call]),
            ops=[ast.Eq()],
            comparators=[ast.Call(func=ast.Name(id="tuple" | "list"), args=[value])],
        ):
            return _check(call, _value(value), names), 0.0
        case ast.Compare(left=call, ops=[ast.Eq() | ast.Is()], comparators=[value]):
            return _check(call, _value(value), names), 0.0
    raise UnsupportedAssertion


def _check(call: ast.expr, expected: Any, names: Mapping[str, str]) -> Check:
    if not isinstance(call, ast.Call) or call.keywords or not isinstance(call.func, ast.Name):
        raise UnsupportedAssertion
    if call.func.id not in names:
        raise UnsupportedAssertion
    return Check(_json([_value(argument) for argument in call.args]), _json(expected))


def _value(node: ast.expr) -> Any:
    """A literal, or arithmetic of literals."""
    if isinstance(node, ast.List | ast.Tuple):
        return [_value(item) for item in node.elts]
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


def _tolerance(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MAX_TOLERANCE:
        raise UnsupportedAssertion
    return float(value)


def _json(value: Any) -> str:
    """``value`` as JSON.  Raises :class:`UncarriedValue`."""
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise UncarriedValue from error
    if not _faithful(value):
        raise UncarriedValue
    if len(text) > _MAX_CHARS:
        raise UnsupportedAssertion
    return text


def _faithful(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _faithful(inner) for key, inner in value.items())
    return not isinstance(value, list | tuple) or all(map(_faithful, value))
