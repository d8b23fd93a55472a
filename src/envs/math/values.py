"""The value of an expression tree, exactly where it is rational, else to a hundred digits; bounded in time and size.

Nothing here is evaluated as a program: a tree is data, and each of its operations is one of a few.

Answers as trees.

A tree is a JSON list: a kind and its parts.

======================================  ============================================================================
``["int", n]``, ``["rat", p, q]``       numbers
``["sym", name]``, ``["const", name]``  symbols; ``pi``, ``e``, ``i``, ``inf``
``["add", ...]``, ``mul``, ``pow``      arithmetic, not evaluated
``["fn", name, ...]``                   a known function; ``["apply", name, ...]`` an unknown one: f(x)
``["percent", tree]``                   50 %
``["tuple", ...]``                      in order, in round brackets
``["list", ...]``, ``["set", ...]``     several answers, in any order; a set in braces
``["matrix", ...]``                     of a tuple for each row
``["interval", a, b, left, right]``     whether each end belongs to it
``["union", ...]``                      of intervals and sets
``["rel", [operator, ...], ...]``       a chain of relations
``["text", words]``                     words
======================================  ============================================================================

Trees come from a process that parsed a model's text: they are untrusted data, and :func:`check_tree` checks them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from math import comb, factorial
from typing import Any

from mpmath import mp

Tree = list[Any]

MAX_NODES = 2000
"""Of a tree."""
RELATIONS = ("=", "!=", "<", ">", "<=", ">=", "in")
_LEAVES = {"int": 1, "rat": 2, "sym": 1, "const": 1, "text": 1}
_INNER = {"add", "mul", "pow", "fn", "apply", "percent", "tuple", "list", "set", "interval", "union", "rel", "matrix"}


def check_tree(tree: object) -> Tree | None:
    """``tree`` if it is a tree of at most :data:`MAX_NODES` nodes, else None."""
    nodes = 0
    pending = [tree]
    while pending:
        node = pending.pop()
        nodes += 1
        if nodes > MAX_NODES or not isinstance(node, list) or not node or not isinstance(node[0], str):
            return None
        kind, rest = node[0], node[1:]
        if kind in _LEAVES:
            if len(rest) != _LEAVES[kind] or not _is_leaf(kind, rest):
                return None
            continue
        if kind not in _INNER:
            return None
        if kind in ("fn", "apply"):
            if not rest or not isinstance(rest[0], str):
                return None
            rest = rest[1:]
        elif kind == "rel":
            if not _is_relation(rest):
                return None
            rest = rest[1:]
        elif kind == "interval":
            if len(rest) != 4 or not all(type(end) is bool for end in rest[2:]):
                return None
            rest = rest[:2]
        if (not rest and kind != "set") or (kind == "pow" and len(rest) != 2) or (kind == "percent" and len(rest) != 1):
            return None
        pending += rest
    assert isinstance(tree, list)
    return tree


def _is_leaf(kind: str, rest: list[Any]) -> bool:
    if kind in ("int", "rat"):
        return all(type(number) is int for number in rest) and (kind == "int" or rest[1] > 0)
    return isinstance(rest[0], str)


def _is_relation(rest: list[Any]) -> bool:
    operators = rest[0] if rest else None
    if not isinstance(operators, list) or not operators or len(rest) != len(operators) + 2:
        return False
    return all(name in RELATIONS for name in operators)


def walk(tree: Tree) -> Iterator[Tree]:
    """All nodes of a tree."""
    pending = [tree]
    while pending:
        node = pending.pop()
        yield node
        pending += [part for part in node[1:] if isinstance(part, list) and part and isinstance(part[0], str)]


def symbols_of(tree: Tree) -> set[str]:
    """The names of its symbols."""
    return {node[1] for node in walk(tree) if node[0] == "sym"}


Value = Any
"""A ``Fraction``, or a real or complex number of a hundred digits."""

DIGITS = 100
MAX_BITS = 20_000
"""Integers of more bits, and numbers beyond two to this power, are not computed."""
MAX_FACTORIAL = 1000
_CLOSE = Fraction(1, 10**80)
context = mp.clone()
context.dps = DIGITS


class Undecided(ValueError):
    """A value that is undefined, not finite, or too large to be computed."""


def value(tree: Tree, symbols: Mapping[str, Fraction]) -> Value:
    """The value of ``tree`` with these values of its symbols.  Raises :class:`Undecided`."""
    kind, *rest = tree
    if kind == "int":
        return _bounded(Fraction(rest[0]))
    if kind == "rat":
        return _bounded(Fraction(rest[0], rest[1]))
    if kind == "sym":
        return symbols[rest[0]]
    if kind == "const":
        return _constant(rest[0])
    if kind == "percent":
        return _bounded(_product(Fraction(1, 100), value(rest[0], symbols)))
    if kind == "fn":
        return _bounded(_function(rest[0], [value(inner, symbols) for inner in rest[1:]]))
    if kind not in _OPERATIONS:
        raise Undecided(f"{kind} has no value")
    result, *others = [value(part, symbols) for part in rest]
    for other in others:
        result = _bounded(_OPERATIONS[kind](result, other))
    return result


def same(first: Value, second: Value) -> bool:
    """Whether two values are equal: exactly if both are rational, else to eighty digits."""
    if isinstance(first, Fraction) and isinstance(second, Fraction):
        return first == second
    a, b = real(first), real(second)
    return bool(abs(a - b) <= context.mpf(10) ** -80 * max(1, abs(a), abs(b)))


def real(number: Value) -> Any:
    """A value in arithmetic of a hundred digits."""
    if isinstance(number, Fraction):
        return context.mpf(number.numerator) / number.denominator
    return number


def _bounded(number: Value) -> Value:
    """``number``, if it is finite and not too large; a complex number without an imaginary part as a real one."""
    if isinstance(number, Fraction):
        if max(number.numerator.bit_length(), number.denominator.bit_length()) > MAX_BITS:
            raise Undecided("too large a number")
        return number
    if not context.isfinite(number):
        raise Undecided("not a finite number")
    if number.imag == 0:
        number = number.real
    size = abs(number)
    if size and abs(context.mag(size)) > MAX_BITS:
        raise Undecided("too large a number")
    return number


def _constant(name: str) -> Value:
    constants = {"pi": +context.pi, "e": +context.e, "i": context.mpc(0, 1)}
    if name not in constants:
        raise Undecided(f"{name} is no number")
    return constants[name]


def _sum(first: Value, second: Value) -> Value:
    if isinstance(first, Fraction) and isinstance(second, Fraction):
        return first + second
    return real(first) + real(second)


def _product(first: Value, second: Value) -> Value:
    if isinstance(first, Fraction) and isinstance(second, Fraction):
        return first * second
    return real(first) * real(second)


def _power(base: Value, exponent: Value) -> Value:
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and exponent.denominator == 1:
        bits = max(base.numerator.bit_length(), base.denominator.bit_length())
        if abs(exponent.numerator) * bits > MAX_BITS and abs(base) != 1:
            raise Undecided("too large a power")
        if base == 0 and exponent < 0:
            raise Undecided("a division by zero")
        return Fraction(base ** int(exponent.numerator))
    if base == 0:
        if isinstance(exponent, Fraction) and exponent > 0:
            return Fraction(0)
        raise Undecided("a power of zero")
    below, above = real(base), real(exponent)
    if abs(above) * (abs(context.mag(abs(below))) + 1) > MAX_BITS:
        raise Undecided("too large a power")
    if isinstance(base, Fraction) and isinstance(exponent, Fraction) and (root := _root(base, exponent)) is not None:
        return root
    return context.power(below, above)


_OPERATIONS = {"add": _sum, "mul": _product, "pow": _power}


def _root(base: Fraction, exponent: Fraction) -> Fraction | None:
    """An exact power with a fraction as exponent, where there is one: 8^(2/3)."""
    degree = exponent.denominator
    if base < 0 or degree > 64:
        return None
    roots = []
    for part in (base.numerator, base.denominator):
        guess = int(context.nint(context.root(part, degree)))
        if guess**degree != part:
            return None
        roots.append(guess)
    return Fraction(roots[0], roots[1]) ** exponent.numerator


def _function(name: str, inner: list[Value]) -> Value:
    first = inner[0]
    if name in ("floor", "ceiling"):
        return _round(name, first)
    if name == "abs":
        return abs(first)
    if name in ("min", "max"):
        return _extreme(name, inner)
    if name in ("factorial", "binomial"):
        return _combinatorial(name, inner)
    if name == "log":
        return _logarithm(inner)
    if name == "exp":
        return _power(_constant("e"), first)
    if name in ("sin", "cos", "tan", "cot", "sec", "csc", "asin", "acos", "atan") and len(inner) == 1:
        if abs(real(first)) > 10**6:
            raise Undecided("too large an angle")
        try:
            return getattr(context, name)(real(first))
        except (ArithmeticError, ValueError) as error:
            raise Undecided(f"{name} at a pole") from error
    raise Undecided(f"{name} of {len(inner)} arguments")


def _round(name: str, number: Value) -> Value:
    if not isinstance(number, Fraction):
        if number.imag != 0:
            raise Undecided(f"{name} of a complex number")
        nearest = int(context.nint(number))
        if abs(number - nearest) < real(_CLOSE):  # an integer, to all digits
            return Fraction(nearest)
        number = Fraction(int(context.floor(number))) + Fraction(1, 2)
    return Fraction(number.__floor__() if name == "floor" else number.__ceil__())


def _extreme(name: str, inner: list[Value]) -> Value:
    if any(getattr(real(part), "imag", 0) for part in inner):
        raise Undecided(f"{name} of complex numbers")
    return min(inner, key=real) if name == "min" else max(inner, key=real)


def _combinatorial(name: str, inner: list[Value]) -> Value:
    if any(abs(real(part)) > MAX_FACTORIAL for part in inner):
        raise Undecided(f"too large a {name}")
    try:
        if name == "factorial" and len(inner) == 1:
            number = inner[0]
            if isinstance(number, Fraction) and number.denominator == 1 and number >= 0:
                return Fraction(factorial(number.numerator))
            return context.factorial(real(number))
        if name == "binomial" and len(inner) == 2:
            n, k = inner
            are_integers = all(isinstance(part, Fraction) and part.denominator == 1 for part in inner)
            if are_integers and n >= 0:
                return Fraction(comb(n.numerator, k.numerator) if k >= 0 else 0)
            return context.binomial(real(n), real(k))
    except ValueError as error:  # a pole of the gamma function
        raise Undecided(str(error)) from error
    raise Undecided(f"{name} of {len(inner)} arguments")


def _logarithm(inner: list[Value]) -> Value:
    logs = []
    for part in inner:
        if part == 0:
            raise Undecided("a logarithm of zero")
        logs.append(context.log(real(part)))
    if len(logs) == 1:
        return logs[0]
    if len(logs) != 2 or logs[1] == 0:
        raise Undecided("a logarithm to the base 1")
    return logs[0] / logs[1]
