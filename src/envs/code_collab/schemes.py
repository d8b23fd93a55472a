"""The four schemes by which two functions cooperate (MAGRPO, arXiv 2508.04652), found in the main function's tree.

The publication reads them off samples; these definitions are ours.  A function may have several, or none:

- *fallback*: there is a way around aux: a handler of errors of its call that does not just raise, or another value
  where aux gave none (``r is None``, ``aux(x) or y``; ``if r``, ``if not r`` where r is used, too, not just asked for);
- *decorator*: what main returns is made from the one value of aux by more code, without a branch on it;
- *coordinator*: main splits the work and gives parts to aux: several calls, one in what a loop repeats, or
  ``map(aux, parts)``;
- *strategy filter*: aux's value selects a branch.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Final

from .usage import calls_in, holders, is_call, is_from_aux, rebinds, usage

_BRANCHING: Final = (ast.If, ast.IfExp, ast.While, ast.Assert)


@dataclass(frozen=True)
class Schemes:
    """Which schemes a program has."""

    fallback: bool = False
    decorator: bool = False
    coordinator: bool = False
    strategy_filter: bool = False


def schemes(main: ast.FunctionDef) -> Schemes:
    """The schemes of a main function; none where it does not use aux."""
    use = usage(main)
    if rebinds(main) or not (use.called or use.passed):
        return Schemes()
    names = holders(main)
    nodes = [*ast.walk(main)]
    conditions = [node.test for node in nodes if isinstance(node, _BRANCHING)]
    conditions += [condition for node in nodes if isinstance(node, ast.comprehension) for condition in node.ifs]
    conditions += [node.subject for node in nodes if isinstance(node, ast.Match)]
    asked = [condition for condition in conditions if is_from_aux(condition, names)]
    used = _used_names(nodes, asked)
    either = {node.test for node in nodes if isinstance(node, ast.If | ast.IfExp)}
    missing = [each for each in asked if _asks_for_absence(each, names, used if each in either else set())]
    filters = len(asked) > len(missing) or any(_filters_by_aux(node) for node in nodes)
    coordinator = (
        sum(map(is_call, nodes)) > 1
        or any(calls_in(part) for node in nodes for part in _repeated(node))
        or (use.passed and not filters)
    )
    return Schemes(
        fallback=bool(missing) or any(_goes_around(node, names) for node in nodes),
        decorator=not (asked or coordinator or use.wrapper or filters) and _returns_more(nodes, names),
        coordinator=coordinator,
        strategy_filter=filters,
    )


def _used_names(nodes: list[ast.AST], asked: list[ast.expr]) -> set[str]:
    """The variables that are read elsewhere than in ``asked``."""
    inside = {each for condition in asked for each in ast.walk(condition)}
    return {
        node.id
        for node in nodes
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node not in inside
    }


def _asks_for_absence(condition: ast.expr, names: set[str], used: set[str]) -> bool:
    """``r is None``, ``r is not None``, ``r == None``; of the ``used`` variables also ``r`` and ``not r``."""
    match condition:
        case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot() | ast.Eq() | ast.NotEq()], comparators=[other]):
            return isinstance(other, ast.Constant) and other.value is None and is_from_aux(left, names)
        case ast.Name(id=name) | ast.UnaryOp(op=ast.Not(), operand=ast.Name(id=name)):
            return name in used
    return False


def _repeated(node: ast.AST) -> list[ast.AST]:
    """The parts of a loop that are run in each round, which what it goes through is not."""
    match node:
        case ast.For(body=body) | ast.AsyncFor(body=body):
            return [*body]
        case ast.While(test=test, body=body):
            return [test, *body]
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            first, *rest = node.generators
            made = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            return [*made, *first.ifs, *rest]
    return []


def _goes_around(node: ast.AST, names: set[str]) -> bool:
    match node:
        case ast.Try(body=body, handlers=handlers):
            tried = any(calls_in(statement) for statement in body)
            return tried and any(not isinstance(handler.body[0], ast.Raise) for handler in handlers)
        case ast.BoolOp(op=ast.Or(), values=[first, *_]):
            return is_call(first) or (isinstance(first, ast.Name) and first.id in names)
    return False


def _filters_by_aux(node: ast.AST) -> bool:
    """``filter(aux, ...)``."""
    match node:
        case ast.Call(func=ast.Name(id="filter"), args=[ast.Name(id="aux"), *_]):
            return True
    return False


def _returns_more(nodes: list[ast.AST], names: set[str]) -> bool:
    """Whether what is returned is made from aux's value, which is not handed on as it is."""
    returned = [node.value for node in nodes if isinstance(node, ast.Return) and node.value]
    made = [*returned, *(node.value for node in nodes if isinstance(node, ast.Assign | ast.NamedExpr))]
    more = any(not (is_call(value) or isinstance(value, ast.Name)) and is_from_aux(value, names) for value in made)
    more = more or any(isinstance(node, ast.AugAssign) and is_from_aux(node.target, names) for node in nodes)
    return more and any(is_from_aux(value, names) for value in returned)
