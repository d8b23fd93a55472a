"""Finds the function of an agent in its message.  Nothing here is run.

A message that is Python, or a fenced block of it that is, is read by its syntax tree.  Of any other text, the lines of
the function are cut out: from its ``def`` to a line that is indented no deeper, the first up to which they are Python;
where there is none, the first.  All else of a message is left out: thoughts, fences, imports, tests, calls.

Auxiliary functions that are of no use, to put in the place of one: where main passes its tests with such a stub, the
one that it replaces adds nothing.
"""

from __future__ import annotations

import ast
import re
import textwrap
import warnings
from collections.abc import Iterator
from copy import copy
from itertools import islice
from typing import Final

from ...sandbox import PlainValue
from ..fences import fenced_blocks

AUX: Final = "aux"
"""The name of the auxiliary function."""

MAX_CHARS: Final = 20_000
"""Of a message without thoughts; a longer one has no function."""

MAX_ENDS: Final = 50
"""Lines at which a function may end that are tried."""


def parse(source: str) -> ast.Module | str:
    """The syntax tree of ``source``, or why there is none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of invalid escapes in strings
        try:
            return ast.parse(source)
        except SyntaxError as error:
            return f"line {error.lineno}, column {error.offset}: {error.msg}"
        except (ValueError, RecursionError, MemoryError) as error:  # half characters; deep nesting
            return f"{type(error).__name__}: it cannot be parsed"


def read_function(text: str, name: str) -> str:
    """The source of the first function ``name`` in a message, without decorators; empty where there is none."""
    if len(text) > MAX_CHARS:
        return ""
    text = text.encode("utf-8", "replace").decode("utf-8")  # half characters can stand in texts, not in files
    code = "\n".join(line for line in text.split("\n") if not line.lstrip().startswith("```"))
    source = _segment(code, name)
    if source is not None:
        return source
    # A fence at the end closes a block that was cut off; else it opens one, which is none.
    blocks = (_segment(block, name) for _, block in fenced_blocks(f"{text}\n```"))
    return next(filter(None, blocks), "") or _cut(code, name)


def _segment(code: str, name: str) -> str | None:
    """The function's source in Python ``code``, empty where it is not there; None: it is no Python."""
    tree = parse(code)
    if isinstance(tree, str):
        return None
    node = function_in(tree, name)
    return (ast.get_source_segment(code, node) or "") if node else ""


def function_in(tree: ast.Module, name: str) -> ast.FunctionDef | None:
    """The first function ``name`` of a module."""
    return next((node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name), None)


def has_return(source: str, name: str) -> bool:
    """Whether the function returns a value: by its tree, or by the word ``return`` where it is no Python."""
    tree = parse(source)
    if isinstance(tree, str):
        return re.search(r"\breturn\s+\S", source) is not None
    node = function_in(tree, name)
    return node is not None and any(isinstance(each, ast.Return) and each.value for each in own_nodes(node))


def own_nodes(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """The nodes of a function's body that belong to no function or class within it."""
    pending: list[ast.AST] = [*function.body]
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            pending += ast.iter_child_nodes(node)


def _cut(code: str, name: str) -> str:
    lines = code.split("\n")
    head = re.compile(rf"\s*def\s+{re.escape(name)}\s*\(")
    start = next((place for place, line in enumerate(lines) if head.match(line)), None)
    if start is None:
        return ""
    cuts = (textwrap.dedent("\n".join(lines[start:end])).strip() for end in _ends(lines, start))
    tried = [*islice(cuts, MAX_ENDS)]
    return next(filter(None, (_segment(cut, name) for cut in tried)), tried[0])


def _ends(lines: list[str], start: int) -> Iterator[int]:
    """The lines at which a function that starts at ``start`` may end: code that is indented no deeper."""
    indent = len(lines[start]) - len(lines[start].lstrip())
    for place, line in enumerate(lines[start + 1 :], start + 1):
        inner = line.strip()
        if inner and not inner.startswith("#") and len(line) - len(line.lstrip()) <= indent:
            yield place
    yield len(lines)


NOTHING: Final = f"def {AUX}(*args, **kwargs):\n    return None"

MAX_PARAMETERS: Final = 4
"""Of an auxiliary function that are tried one by one."""

_FIRST_CALL: Final = f"""
def _as_in_first_call(real, arguments):
    import copy
    first = []
    def copied(value):
        try:
            return copy.deepcopy(value)
        except Exception:
            return value
    def recorder(*args, **kwargs):
        if not first:
            first.append(copied((args, kwargs)))
        return real(*args, **kwargs)
    def stub(*_, **__):
        if not first:
            return None
        args, kwargs = copied(first[0])
        globals()["{AUX}"] = real
        try:
            return real(*args, **kwargs)
        finally:
            globals()["{AUX}"] = stub
    globals()["{AUX}"] = recorder
    try:
        {{entry}}(*arguments)
    except BaseException:
        pass
    globals()["{AUX}"] = stub

_as_in_first_call({AUX}, {{arguments!r}})
"""


def parameter_stubs(aux: str) -> Iterator[str]:
    """Functions with the parameters of ``aux``, each of which returns one of its arguments as it is."""
    tree = parse(aux)
    node = None if isinstance(tree, str) else function_in(tree, AUX)
    if node is None:
        return
    given = node.args
    named = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)][:MAX_PARAMETERS]
    returned = [*named]
    returned += [f"{given.vararg.arg}[0] if {given.vararg.arg} else None"] if given.vararg else []
    returned += [f"next(iter({given.kwarg.arg}.values()), None)"] if given.kwarg else []
    for value in returned:
        stub = copy(node)
        stub.body = [ast.Return(ast.parse(value, mode="eval").body)]
        yield ast.unparse(ast.fix_missing_locations(stub))


def as_in_first_call(program: str, entry: str, arguments: list[PlainValue]) -> str:
    """``program`` with an aux that answers every call as the first one that ``entry`` makes when it is called with
    ``arguments``: a constant of any type, made anew each time."""
    return program + "\n" + _FIRST_CALL.format(entry=entry, arguments=arguments)
