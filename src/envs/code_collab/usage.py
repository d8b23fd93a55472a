"""How a main function uses ``aux``, by its syntax tree."""

from __future__ import annotations

import ast
from collections import Counter
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
