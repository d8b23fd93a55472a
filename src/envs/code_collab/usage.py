"""How a main function uses ``aux``, by its syntax tree.

The four schemes by which two functions cooperate (MAGRPO, arXiv 2508.04652), found in the main function's tree.

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
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .functions import AUX

_LOOPS: Final = (ast.For, ast.AsyncFor, ast.While)


@dataclass(frozen=True)
class Usage:
    """``called``: main calls its partner's function, not one of its own with that name.

    ``passed``: it gives the function to another one, as in ``map(aux, xs)``.  ``wrapper``: it does nothing else, see
    :func:`is_wrapper`.  ``ignored``: a call is a statement of its own.  ``unread``: a call's value goes to a name that
    nothing reads later.
    """

    called: bool = False
    passed: bool = False
    wrapper: bool = False
    ignored: bool = False
    unread: bool = False


def usage(main: ast.FunctionDef) -> Usage:
    """The use that ``main`` makes of aux."""
    if rebinds(main):
        return Usage()
    calls = [node for node in ast.walk(main) if is_call(node)]
    functions = {call.func for call in calls if isinstance(call, ast.Call)}
    names = [node for node in ast.walk(main) if isinstance(node, ast.Name) and node.id == AUX]
    return Usage(
        called=bool(calls),
        passed=any(name not in functions for name in names),
        wrapper=is_wrapper(main),
        ignored=any(isinstance(node, ast.Expr) and is_call(node.value) for node in ast.walk(main)),
        unread=_leaves_unread(main),
    )


def is_call(node: ast.AST) -> bool:
    """Whether ``node`` is ``aux(...)``."""
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == AUX


def calls_in(node: ast.AST) -> bool:
    """Whether ``aux(...)`` is in ``node``."""
    return any(map(is_call, ast.walk(node)))


def rebinds(main: ast.FunctionDef) -> bool:
    """Whether the name ``aux`` means something else in ``main``: a parameter, a variable, a function of its own."""
    for node in ast.walk(main):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                bound = name
            case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
                bound = name or ""
            case ast.arg(arg=name) | ast.MatchMapping(rest=name):
                bound = name or ""
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                bound = name
            case ast.alias(name=name, asname=asname):
                bound = asname or name
            case _:
                continue
        if bound == AUX:
            return True
    return False


def is_wrapper(main: ast.FunctionDef) -> bool:
    """The publication's thin wrappers: no statement; ``return ...aux...`` alone; ``x = aux(...)...`` and ``return x``.

    A docstring is no statement.
    """
    match statements(main):
        case []:
            return True
        case [ast.Return(value=value)]:
            return value is not None and any(isinstance(node, ast.Name) and node.id == AUX for node in ast.walk(value))
        case [ast.Assign(targets=[ast.Name(id=name)], value=value), ast.Return(value=ast.Name(id=returned))]:
            return name == returned and any(is_call(node) and _start(node) == _start(value) for node in ast.walk(value))
    return False


def statements(main: ast.FunctionDef) -> list[ast.stmt]:
    """The statements of a function's body, without its docstring."""
    return main.body[1:] if ast.get_docstring(main, clean=False) is not None else main.body


def holders(main: ast.FunctionDef) -> set[str]:
    """The variables to which values that were made from aux's are assigned."""
    users: dict[str, list[set[str]]] = {}  # a variable -> the targets of what is made from it
    pending: set[str] = set()
    for targets, value in _assignments(main):
        names = {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}
        for each in ast.walk(value):
            if isinstance(each, ast.Name):
                users.setdefault(each.id, []).append(names)
        pending |= names if calls_in(value) else set()
    found: set[str] = set()
    while pending:
        name = pending.pop()
        found.add(name)
        pending |= set().union(*users.pop(name, [])) - found
    return found


def is_from_aux(node: ast.AST, names: set[str]) -> bool:
    """Whether an expression has a call of aux, or one of ``names``, in it."""
    return any(is_call(each) or (isinstance(each, ast.Name) and each.id in names) for each in ast.walk(node))


def _assignments(main: ast.FunctionDef) -> Iterator[tuple[list[ast.expr], ast.expr]]:
    """(Targets, value) of everything in ``main`` that assigns."""
    for node in ast.walk(main):
        match node:
            case ast.Assign(targets=targets, value=value):
                yield targets, value
            case ast.AugAssign(target=target, value=value) | ast.NamedExpr(target=target, value=value):
                yield [target], value
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                yield [target], value
            case ast.For(target=target, iter=value) | ast.comprehension(target=target, iter=value):
                yield [target], value


def _leaves_unread(main: ast.FunctionDef) -> bool:
    """Whether ``aux(...)`` is assigned to names that are not read after it, or, in a loop, before it."""
    last: dict[str, tuple[int, int]] = {}
    reads: Counter[str] = Counter()
    for each in ast.walk(main):
        if isinstance(each, ast.AugAssign) and isinstance(each.target, ast.Name):
            each = ast.copy_location(ast.Name(each.target.id, ast.Load()), each.target)  # x += 1 also reads x
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load):
            reads[each.id] += 1
            last[each.id] = max(last.get(each.id, (0, 0)), _start(each))
    looped = {each for loop in ast.walk(main) if isinstance(loop, _LOOPS) for each in ast.walk(loop)}
    for node in ast.walk(main):
        if not isinstance(node, ast.Assign) or not is_call(node.value):
            continue
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
        own = Counter(each.id for each in ast.walk(node.value) if isinstance(each, ast.Name))
        end = (node.end_lineno or 0, node.end_col_offset or 0)
        if len(names) == len(node.targets) and not any(
            last.get(name, (0, 0)) >= end or (node in looped and reads[name] > own[name]) for name in names
        ):
            return True
    return False


def _start(node: ast.AST) -> tuple[int, int]:
    return getattr(node, "lineno", 0), getattr(node, "col_offset", 0)


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
