"""Whether an answer is the expected one: structure by structure (lists, tuples, intervals, relations)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from .expressions import equal_expressions, proportional
from .values import Tree, Undecided, same, symbols_of, value, walk

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
