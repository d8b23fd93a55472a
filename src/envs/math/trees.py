"""Answers as trees.

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

from collections.abc import Iterator
from typing import Any

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
