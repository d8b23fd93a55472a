"""Auxiliary functions that are of no use, to put in the place of one: where main passes its tests with such a stub, the
one that it replaces adds nothing."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from copy import copy
from typing import Final

from ...sandbox import PlainValue
from .functions import AUX, function_in, parse

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
