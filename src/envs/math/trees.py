"""Answers as trees: what a tree may be, and whether an answer is the expected one.

A tree is a JSON list: a kind and what belongs to it.

======================================  ============================================================================
``["int", n]``, ``["rat", p, q]``       numbers
``["sym", name]``, ``["const", name]``  symbols; ``pi``, ``e``, ``i``, ``inf``
``["add", ...]``, ``mul``, ``pow``      arithmetic, as it was written
``["fn", name, ...]``                   a known function; ``["apply", name, ...]`` an unknown one: f(x)
``["percent", tree]``                   50 %
``["tuple", ...]``                      in order, in round brackets
``["list", ...]``, ``["set", ...]``     several answers, in any order; a set in braces
``["interval", a, b, left, right]``     whether each end belongs to it
``["union", ...]``                      of intervals and sets
``["rel", [operator, ...], ...]``       a chain of relations
``["text", words]``                     words
======================================  ============================================================================

Trees come out of a process that read a model's text, so they are data to be checked (:func:`checked`), and never more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from random import Random
from typing import Any

from .numbers import Tree, Undecided, Value, real, same, value

NODES = 2000
"""Nodes of a tree, at most."""
_LEAVES = {"int": 1, "rat": 2, "sym": 1, "const": 1, "text": 1}
_INNER = {"add", "mul", "pow", "fn", "apply", "percent", "tuple", "list", "set", "interval", "union", "rel"}
_CONTAINERS = {"tuple", "list", "set", "union"}
_VALUED = {"int", "rat", "const", "add", "mul", "pow", "fn"}
_FLIPPED = {"=": "=", "!=": "!=", "<": ">", ">": "<", "<=": ">=", ">=": "<="}
_KINDS = {
    **dict.fromkeys(("sin", "cos", "tan", "cot", "sec", "csc"), "trigonometric"),
    **dict.fromkeys(("asin", "acos", "atan"), "arc"),
    **dict.fromkeys(("floor", "ceiling"), "rounding"),
    **dict.fromkeys(("factorial", "binomial"), "combinatorial"),
    **dict.fromkeys(("min", "max"), "extreme"),
}
"""Functions that may stand for each other."""
POINTS = 5
"""Where two expressions in symbols are compared."""


def checked(tree: object) -> Tree | None:
    """``tree`` if it is one, else None."""
    nodes = 0
    pending = [tree]
    while pending:
        node = pending.pop()
        nodes += 1
        if nodes > NODES or not isinstance(node, list) or not node or not isinstance(node[0], str):
            return None
        kind, rest = node[0], node[1:]
        if kind in _LEAVES:
            if len(rest) != _LEAVES[kind] or not _is_leaf(kind, rest):
                return None
            continue
        if kind not in _INNER:
            return None
        if kind in ("fn", "apply") and rest and isinstance(rest[0], str):
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
    return all(name in (*_FLIPPED, "in") for name in operators)


# ---- whether an answer is the expected one ------------------------------------------------------------------------


def equal(found: Tree, expected: Tree) -> bool:
    """Whether ``found`` is what ``expected`` says, in another notation perhaps.

    Where a plain number is expected, one must be given: a sum that is left to the reader is no answer.  Who calls two
    different numbers equal has given none.
    """
    try:
        return not _contradicts_itself(found) and _equal(_plain(found), _plain(expected))
    except (Undecided, RecursionError):
        return False


def _contradicts_itself(tree: Tree) -> bool:
    """Whether it says x = 1 = 2."""
    for node in _walk(tree):
        if node[0] == "rel" and set(node[1]) == {"="}:
            numbers = [side for side in node[2:] if side[0] in _VALUED and not _symbols(side)]
            if not all(same(value(side, {}), value(numbers[0], {})) for side in numbers[1:]):
                return True
    return False


def _plain(tree: Tree) -> Tree:
    """``tree`` without what only names it: x = 5 is 5, x in A is A (7 in A is itself); a set of one is its member."""
    kind, *rest = tree
    if kind == "rel" and rest[0] == ["in"] and _symbols(rest[1]):
        return _plain(rest[2])
    if kind in ("list", "set", "union") and len(rest) == 1:
        return _plain(rest[0])
    return _solved(tree)


def _solved(tree: Tree) -> Tree:
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
    if len(sides) == 2 and sides[0][0] == "sym" and not _symbols(sides[1]):
        if operators[0] in (">", ">="):
            return ["interval", sides[1], infinity, operators[0] == ">=", False]
        if operators[0] in ("<", "<="):
            return ["interval", below, sides[1], False, operators[0] == "<="]
    if len(sides) == 3 and sides[1][0] == "sym" and not _symbols(sides[0]) and not _symbols(sides[2]):
        if set(operators) <= {"<", "<="}:
            return ["interval", sides[0], sides[2], operators[0] == "<=", operators[1] == "<="]
        if set(operators) <= {">", ">="}:
            return ["interval", sides[2], sides[0], operators[1] == ">=", operators[0] == ">="]
    return tree


def _equal(found: Tree, expected: Tree) -> bool:
    if found == expected:
        return True
    if "rel" in (found[0], expected[0]):
        return _equal_relations(found, expected)
    if expected[0] == "interval" or found[0] == "interval":
        return _equal_intervals(found, expected)
    if expected[0] == "tuple":
        return found[0] == "tuple" and _equal_in_order(found[1:], expected[1:])
    if expected[0] in _CONTAINERS:
        return found[0] in ("list", "set", "union") and _equal_in_any_order(found[1:], expected[1:])
    if found[0] in _CONTAINERS:
        return False
    if expected[0] == "text" and found[0] == "int":
        return expected[1].startswith(f"{found[1]}_")  # the base is a unit
    if found[0] == "text" and expected[0] == "int":
        return found[1] == f"{expected[1]}_10"
    if "text" in (found[0], expected[0]):
        return found == expected or _as_word(found) == _as_word(expected) != ""
    return _equal_expressions(found, expected)


def _as_word(tree: Tree) -> str:
    """Words, or a symbol that may be a word of one letter: an answer A."""
    return tree[1].strip().lower() if tree[0] in ("text", "sym") else ""


def _equal_in_order(found: list[Tree], expected: list[Tree]) -> bool:
    return len(found) == len(expected) and all(
        _equal(_plain(a), _plain(b)) for a, b in zip(found, expected, strict=True)
    )


def _equal_in_any_order(found: list[Tree], expected: list[Tree]) -> bool:
    rest = [_plain(tree) for tree in found]
    for tree in expected:
        match = next((other for other in rest if _decided(other, _plain(tree))), None)
        if match is None:
            return False
        rest.remove(match)
    return not rest


def _decided(found: Tree, expected: Tree) -> bool:
    """Whether the two are equal, as far as it can be told."""
    try:
        return _equal(found, expected)
    except Undecided:
        return False


def _equal_intervals(found: Tree, expected: Tree) -> bool:
    """An interval without its ends looks like a pair."""
    both = [_as_interval(tree) for tree in (found, expected)]
    if both[0] is None or both[1] is None or both[0][2:] != both[1][2:]:
        return False
    return all(_equal(a, b) for a, b in zip(both[0][:2], both[1][:2], strict=True))


def _as_interval(tree: Tree) -> list[Any] | None:
    if tree[0] == "tuple" and len(tree) == 3:
        return [tree[1], tree[2], False, False]
    return tree[1:] if tree[0] == "interval" else None


def _equal_relations(found: Tree, expected: Tree) -> bool:
    """x = a is a; two equations are equal where one is a multiple of the other; other relations, side by side."""
    named = [tree[0] == "rel" and tree[1] == ["="] and _is_name(tree[2]) for tree in (found, expected)]
    if all(named):
        return _equal_named(found, expected)
    if named[0] and expected[0] != "rel":
        return _equal(_plain(found[3]), expected)
    if named[1] and found[0] != "rel":
        return _equal(found, _plain(expected[3]))
    if found[0] != "rel" or expected[0] != "rel":
        return False
    if found[1] == expected[1] == ["="]:
        return _proportional(_difference(found), _difference(expected))
    return found[1] == expected[1] and _equal_in_order(found[2:], expected[2:])


def _is_name(tree: Tree) -> bool:
    """Whether a side of an equation only names the other: x, f(x), or a product of symbols such as an angle's name."""
    if tree[0] == "mul":
        return all(_is_name(part) or part[0] == "const" for part in tree[1:])
    return tree[0] == "sym" or (tree[0] == "apply" and all(part[0] == "sym" for part in tree[2:]))


def _equal_named(found: Tree, expected: Tree) -> bool:
    """f(x) = 2 x is f(n) = 2 n; x = 5 is not y = 5."""
    if found[2][0] == expected[2][0] == "apply" and found[2][1] == expected[2][1]:
        names = dict(zip((part[1] for part in found[2][2:]), (part[1] for part in expected[2][2:]), strict=False))
        return len(found[2]) == len(expected[2]) and _equal(_renamed(found[3], names), _plain(expected[3]))
    if found[2] == expected[2]:
        return _equal(_plain(found[3]), _plain(expected[3]))
    return bool(_symbols(expected[3])) and _proportional(_difference(found), _difference(expected))


def _renamed(tree: Tree, names: Mapping[str, str]) -> Tree:
    if tree[0] == "sym":
        return ["sym", names.get(tree[1], tree[1])]
    return [_renamed(part, names) if isinstance(part, list) and part and tree[0] != "rel" else part for part in tree]


def _difference(tree: Tree) -> Tree:
    return ["add", tree[2], ["mul", ["int", -1], tree[3]]]


# ---- expressions --------------------------------------------------------------------------------------------------


def _equal_expressions(found: Tree, expected: Tree) -> bool:
    if not _is_answer(found, expected):
        return False
    if found[0] == "percent" and expected[0] == "percent":
        return _equal_expressions(found[1], expected[1])
    if "percent" in (found[0], expected[0]):
        # The sign is a unit where the question asks for percent, a factor where it does not.
        bare = [tree[1] if tree[0] == "percent" else tree for tree in (found, expected)]
        return _equal_values(bare[0], bare[1]) or _equal_values(found, expected)
    return _equal_values(found, expected)


def _is_answer(found: Tree, expected: Tree) -> bool:
    """Whether ``found`` is worked out as far as ``expected`` is."""
    if is_numeral(expected):
        return is_numeral(found)
    if found == expected:
        return True
    if not _symbols(expected) and not _functions(found) <= _functions(expected):
        return False  # such as the sine that was asked for
    return sum(1 for _ in _walk(found)) <= 4 * sum(1 for _ in _walk(expected)) + 8


def _functions(tree: Tree) -> set[str]:
    """The kinds of functions that a tree leaves to the reader."""
    names = (str(node[1]) for node in _walk(tree) if node[0] == "fn")
    return {_KINDS.get(name, name) for name in names} - {"exp"}


def is_numeral(tree: Tree) -> bool:
    """A number as one writes it down: an integer, a fraction, with a sign or percent, a power, times a power of ten."""
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


def _equal_values(found: Tree, expected: Tree) -> bool:
    """Equal without symbols, or at several points drawn from the two trees themselves."""
    names = _symbols(expected)
    if _symbols(found) != names:
        return found == expected or (not names and not _symbols(found) and same(value(found, {}), value(expected, {})))
    if not names:
        return same(value(found, {}), value(expected, {}))
    if found == expected:
        return True
    return all(same(a, b) for a, b in _at_points(found, expected, names))


def _proportional(found: Tree, expected: Tree) -> bool:
    """Whether one is a constant multiple, not 0, of the other."""
    names = _symbols(expected)
    if _symbols(found) != names:
        return False
    pairs = [(real(a), real(b)) for a, b in _at_points(found, expected, names)]
    ratios = [a / b for a, b in pairs if b != 0]
    return len(ratios) == len(pairs) and ratios[0] != 0 and all(same(ratio, ratios[0]) for ratio in ratios)


def _at_points(found: Tree, expected: Tree, names: set[str]) -> Iterator[tuple[Value, Value]]:
    """The two values at :data:`POINTS` points where the expected one is defined.

    Symbols are positive where there are roots, logarithms or factorials, as they are in answers; else of either sign.
    """
    rng = Random(f"{found}/{expected}")
    positive = any(
        (node[0] == "pow" and node[2][0] != "int") or (node[0] == "fn" and node[1] in ("log", "factorial", "binomial"))
        for node in (*_walk(found), *_walk(expected))
    )
    defined = 0
    for _ in range(4 * POINTS):
        symbols = {}
        for name in sorted(names):
            number = Fraction(rng.randint(8, 96), 7)
            symbols[name] = number if positive or rng.random() < 0.5 else -number
        try:
            wanted = value(expected, symbols)
        except Undecided:
            continue
        defined += 1
        yield value(found, symbols), wanted
        if defined == POINTS:
            return
    raise Undecided("defined nowhere")


def _walk(tree: Tree) -> Iterator[Tree]:
    """All nodes that are trees."""
    pending = [tree]
    while pending:
        node = pending.pop()
        yield node
        pending += [part for part in node[1:] if isinstance(part, list) and part and isinstance(part[0], str)]


def _symbols(tree: Tree) -> set[str]:
    return {node[1] for node in _walk(tree) if node[0] == "sym"}
