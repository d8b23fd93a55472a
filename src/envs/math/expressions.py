"""Whether two expressions are equal: by their values, at several points where they have symbols."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from random import Random

from .values import Tree, Undecided, Value, real, same, symbols_of, value, walk

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
