"""Whether an answer is the expected one: structure by structure (lists, tuples, intervals, relations).

Expressions are compared by their values, at several points where they have symbols."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import pairwise
from random import Random
from typing import Any

from .values import Tree, Undecided, Value, real, same, symbols_of, value, walk

_CONTAINERS = {"tuple", "list", "set", "union"}
_VALUED = {"int", "rat", "const", "add", "mul", "pow", "fn"}
_FLIPPED = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}


def equal(answer: Tree, expected: Tree) -> bool:
    """Whether ``answer`` equals ``expected``, perhaps in another notation.

    Where ``expected`` is a plain number, ``answer`` must be one: a sum that is not evaluated is no answer.  An answer
    that calls two different numbers equal is none.
    """
    try:
        return not _contradicts_itself(answer) and _equal(_plain(answer), _plain(expected))
    except (Undecided, RecursionError):
        return False


def _contradicts_itself(tree: Tree) -> bool:
    """Whether it has the form x = 1 = 2."""
    for node in walk(tree):
        if node[0] == "rel" and set(node[1]) == {"="}:
            numbers = [side for side in node[2:] if side[0] in _VALUED and not symbols_of(side)]
            if not all(same(value(side, {}), value(numbers[0], {})) for side in numbers[1:]):
                return True
    return False


def _plain(tree: Tree) -> Tree:
    """``tree`` without the name of its value: x = 5 is 5, x in A is A (7 in A stays); a set of one is its member."""
    kind, *rest = tree
    if kind == "rel" and rest[0] == ["in"] and symbols_of(rest[1]):
        return _plain(rest[2])
    if kind in ("list", "set", "union") and len(rest) == 1:
        return _plain(rest[0])
    return _solve(tree)


def _solve(tree: Tree) -> Tree:
    """A relation of one symbol to numbers as an interval; x = a = b as x = b."""
    if tree[0] != "rel":
        return tree
    operators, *sides = tree[1:]
    if set(operators) == {"="}:
        return ["rel", ["="], sides[0], sides[-1]]
    infinity: Tree = ["const", "inf"]
    below: Tree = ["mul", ["int", -1], infinity]
    if len(sides) == 2 and sides[0][0] != "sym" and sides[1][0] == "sym" and operators[0] in _FLIPPED:
        sides, operators = sides[::-1], [_FLIPPED[operators[0]]]
    if len(sides) == 2 and sides[0][0] == "sym" and not symbols_of(sides[1]):
        if operators[0] in (">", ">="):
            return ["interval", sides[1], infinity, operators[0] == ">=", False]
        if operators[0] in ("<", "<="):
            return ["interval", below, sides[1], False, operators[0] == "<="]
    if len(sides) == 3 and sides[1][0] == "sym" and not symbols_of(sides[0]) and not symbols_of(sides[2]):
        if set(operators) <= {"<", "<="}:
            return ["interval", sides[0], sides[2], operators[0] == "<=", operators[1] == "<="]
        if set(operators) <= {">", ">="}:
            return ["interval", sides[2], sides[0], operators[1] == ">=", operators[0] == ">="]
    return tree


def _equal(answer: Tree, expected: Tree) -> bool:
    if answer == expected:
        return True
    if "rel" in (answer[0], expected[0]):
        return _equal_relations(answer, expected)
    if "matrix" in (answer[0], expected[0]):
        return answer[0] == expected[0] and _equal_in_order(answer[1:], expected[1:])
    if expected[0] == "interval" or answer[0] == "interval":
        return _equal_intervals(answer, expected)
    if expected[0] == "tuple":
        return answer[0] == "tuple" and _equal_in_order(answer[1:], expected[1:])
    if expected[0] in _CONTAINERS:
        return answer[0] in ("list", "set", "union") and _equal_in_any_order(answer[1:], expected[1:])
    if answer[0] in _CONTAINERS:
        return False
    if expected[0] == "text" and answer[0] == "int":
        return expected[1].startswith(f"{answer[1]}_")  # the base is a unit
    if answer[0] == "text" and expected[0] == "int":
        return answer[1] == f"{expected[1]}_10"
    if "text" in (answer[0], expected[0]):
        return _as_word(answer) == _as_word(expected) != ""
    return equal_expressions(answer, expected)


def _as_word(tree: Tree) -> str:
    """Words, or a symbol that may be a word of one letter: an answer A."""
    return tree[1].strip().lower() if tree[0] in ("text", "sym") else ""


def _equal_in_order(answer: list[Tree], expected: list[Tree]) -> bool:
    return len(answer) == len(expected) and all(
        _equal(_plain(a), _plain(b)) for a, b in zip(answer, expected, strict=True)
    )


def _equal_in_any_order(answer: list[Tree], expected: list[Tree]) -> bool:
    rest = [_plain(tree) for tree in answer]
    for tree in expected:
        match = next((other for other in rest if _equal_if_decidable(other, _plain(tree))), None)
        if match is None:
            return False
        rest.remove(match)
    return not rest


def _equal_if_decidable(answer: Tree, expected: Tree) -> bool:
    """Whether the two are equal; False where that is undecided."""
    try:
        return _equal(answer, expected)
    except Undecided:
        return False


def _equal_intervals(answer: Tree, expected: Tree) -> bool:
    """An interval without its ends looks like a pair."""
    both = [_as_interval(tree) for tree in (answer, expected)]
    if both[0] is None or both[1] is None or both[0][2:] != both[1][2:]:
        return False
    return all(_equal(a, b) for a, b in zip(both[0][:2], both[1][:2], strict=True))


def _as_interval(tree: Tree) -> list[Any] | None:
    if tree[0] == "tuple" and len(tree) == 3:
        return [tree[1], tree[2], False, False]
    return tree[1:] if tree[0] == "interval" else None


def _equal_relations(answer: Tree, expected: Tree) -> bool:
    """x = a is a; two equations are equal where one is a multiple of the other; other relations, side by side."""
    is_name_equation = [tree[0] == "rel" and tree[1] == ["="] and _is_name(tree[2]) for tree in (answer, expected)]
    if all(is_name_equation):
        return _equal_name_equations(answer, expected)
    if answer[:2] == ["rel", ["="]] and expected[0] != "rel" and _is_label(answer[2]):
        return _equal(_plain(answer[3]), expected)
    if is_name_equation[1] and answer[0] != "rel":
        return _equal(answer, _plain(expected[3]))
    if answer[0] != "rel" or expected[0] != "rel":
        return False
    if answer[1] == expected[1] == ["="]:
        return proportional(_difference(answer), _difference(expected))
    return answer[1] == expected[1] and _equal_in_order(answer[2:], expected[2:])


def _is_label(tree: Tree) -> bool:
    """Whether a side of an answer only names the other: a name, AB or area, f(2), or (x, y), whose order is known."""
    if tree[0] == "tuple":
        return all(part[0] == "sym" for part in tree[1:]) and all(a < b for a, b in pairwise(tree[1:]))
    return tree[0] == "apply" or (tree[0] == "text" and tree[1].isalpha()) or _is_name(tree)


def _is_name(tree: Tree) -> bool:
    """Whether a side of an equation only names the other: x, f(x), or a product of symbols such as an angle's name."""
    if tree[0] == "mul":
        return all(_is_name(part) or part in (["const", "e"], ["const", "i"]) for part in tree[1:])
    return tree[0] == "sym" or (tree[0] == "apply" and all(part[0] == "sym" for part in tree[2:]))


def _equal_name_equations(answer: Tree, expected: Tree) -> bool:
    """f(x) = 2 x is f(n) = 2 n; x = 5 is not y = 5."""
    if answer[2][0] == expected[2][0] == "apply" and answer[2][1] == expected[2][1]:
        names = dict(zip((part[1] for part in answer[2][2:]), (part[1] for part in expected[2][2:]), strict=False))
        return len(answer[2]) == len(expected[2]) and _equal(_rename(answer[3], names), _plain(expected[3]))
    if answer[2] == expected[2]:
        return _equal(_plain(answer[3]), _plain(expected[3]))
    return bool(symbols_of(expected[3])) and proportional(_difference(answer), _difference(expected))


def _rename(tree: Tree, names: Mapping[str, str]) -> Tree:
    if tree[0] == "sym":
        return ["sym", names.get(tree[1], tree[1])]
    return [_rename(part, names) if isinstance(part, list) and part and tree[0] != "rel" else part for part in tree]


def _difference(tree: Tree) -> Tree:
    return ["add", tree[2], ["mul", ["int", -1], tree[3]]]


POINTS = 5
"""The number of points at which two expressions with symbols are compared."""
ROUNDING_POINTS = 200
"""The same where there are floors or ceilings, which differ at few points."""
_KINDS = {
    **dict.fromkeys(("sin", "cos", "tan", "cot", "sec", "csc"), "trigonometric"),
    **dict.fromkeys(("asin", "acos", "atan"), "arc"),
    **dict.fromkeys(("floor", "ceiling"), "rounding"),
    **dict.fromkeys(("factorial", "binomial"), "combinatorial"),
    **dict.fromkeys(("min", "max"), "extreme"),
}
"""Functions that may stand for each other."""


def equal_expressions(answer: Tree, expected: Tree) -> bool:
    """Whether ``answer`` has the value of ``expected``, and is evaluated as far."""
    if not _is_evaluated(answer, expected):
        return False
    if answer[0] == "percent" and expected[0] == "percent":
        return equal_expressions(answer[1], expected[1])
    if "percent" in (answer[0], expected[0]):
        # The sign is a unit where the question asks for percent, a factor where it does not.
        bare = [tree[1] if tree[0] == "percent" else tree for tree in (answer, expected)]
        return _equal_values(bare[0], bare[1]) or _equal_values(answer, expected)
    return _equal_values(answer, expected)


def _is_evaluated(answer: Tree, expected: Tree) -> bool:
    """Whether ``answer`` is evaluated as far as ``expected``."""
    if is_numeral(expected):
        return is_numeral(answer)
    if answer == expected:
        return True
    if not symbols_of(expected) and not _functions(answer) <= _functions(expected):
        return False  # such as the sine of the question
    return sum(1 for _ in walk(answer)) <= 4 * sum(1 for _ in walk(expected)) + 8


def _functions(tree: Tree) -> set[str]:
    """The kinds of functions that are not evaluated in a tree."""
    names = (str(node[1]) for node in walk(tree) if node[0] == "fn")
    return {_KINDS.get(name, name) for name in names} - {"exp"}


def is_numeral(tree: Tree) -> bool:
    """A number as usually written: an integer, a fraction, with a sign or percent, a power, times a power of ten."""
    kind, *rest = tree
    if kind in ("int", "rat"):
        return True
    if kind == "percent":
        return is_numeral(rest[0])
    if kind == "pow":
        return rest[0][0] == "int" and rest[1][0] == "int"
    if kind == "mul" and len(rest) == 2:
        if rest[0] == ["int", -1]:
            return is_numeral(rest[1])
        reciprocal = rest[1][0] == "pow" and rest[1][2] == ["int", -1] and rest[1][1][0] == "int"
        ten = rest[1][0] == "pow" and rest[1][1] == ["int", 10] and rest[1][2][0] == "int"
        return rest[0][0] in ("int", "rat") and (ten or reciprocal)
    return False


def _equal_values(answer: Tree, expected: Tree) -> bool:
    """Equal in value; with symbols, at several points that depend on the two trees."""
    names = symbols_of(expected)
    if symbols_of(answer) != names:
        return False
    if not names:
        return same(value(answer, {}), value(expected, {}))
    if answer == expected:
        return True
    return all(same(a, b) for a, b in _at_points(answer, expected, names))


def proportional(answer: Tree, expected: Tree) -> bool:
    """Whether one is a constant multiple, not 0, of the other."""
    names = symbols_of(expected)
    if symbols_of(answer) != names:
        return False
    pairs = [(real(a), real(b)) for a, b in _at_points(answer, expected, names)]
    ratios = [a / b for a, b in pairs if b != 0]
    return len(ratios) == len(pairs) and ratios[0] != 0 and all(same(ratio, ratios[0]) for ratio in ratios)


def _at_points(answer: Tree, expected: Tree, names: set[str]) -> Iterator[tuple[Value, Value]]:
    """The two values at :data:`POINTS` (or :data:`ROUNDING_POINTS`) points where the expected one is defined.

    Symbols are positive where there are roots, logarithms or factorials, as they are in answers; else of either sign.
    """
    rng = Random(f"{answer}/{expected}")
    positive = any(
        (node[0] == "pow" and node[2][0] != "int") or (node[0] == "fn" and node[1] in ("log", "factorial", "binomial"))
        for node in (*walk(answer), *walk(expected))
    )
    rounds = any(node[0] == "fn" and node[1] in ("floor", "ceiling") for node in (*walk(answer), *walk(expected)))
    points, defined = ROUNDING_POINTS if rounds else POINTS, 0
    for _ in range(4 * points):
        symbols = {}
        for name in sorted(names):
            number = Fraction(rng.randint(8, 96), 7)
            symbols[name] = number if positive or rng.random() < 0.5 else -number
        try:
            expected_value = value(expected, symbols)
        except Undecided:
            continue
        defined += 1
        yield value(answer, symbols), expected_value
        if defined == points:
            return
    raise Undecided("undefined everywhere")
