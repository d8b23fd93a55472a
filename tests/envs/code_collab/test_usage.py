"""How main uses aux: calls, wrappers, values that are ignored."""

import ast
import textwrap
import time
from dataclasses import asdict

import pytest

from troupe.envs.code_collab.usage import Usage, usage


def main(body: str, head: str = "def main(x):") -> ast.FunctionDef:
    node = ast.parse(f"{head}\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}").body[0]
    assert isinstance(node, ast.FunctionDef)
    return node


def flags(value: Usage) -> set[str]:
    return {name for name, flag in asdict(value).items() if flag}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("return x", {"wrapper"} - {"wrapper"}),
        ("return aux(x)", {"called", "wrapper"}),
        ("return aux(x) + 1", {"called", "wrapper"}),  # as published: one line that returns something of aux
        ('"""Text."""\nreturn aux(x)', {"called", "wrapper"}),
        ("y = aux(x)\nreturn y", {"called", "wrapper"}),
        ("y = aux(x) + 1\nreturn y", {"called", "wrapper"}),
        ("y = 1 + aux(x)\nreturn y", {"called"}),
        ("y = aux(x)\nreturn y + 1", {"called"}),
        ("y = aux(x)\ny += 1\nreturn y", {"called"}),
        ("aux(x)\nreturn x", {"called", "ignored"}),
        ("if x:\n    aux(x)\nreturn x", {"called", "ignored"}),
        ("y = aux(x)\nreturn x", {"called", "unread"}),
        ("x = aux(x)\nreturn 5", {"called", "unread"}),
        ("y = aux(y)\nfor i in x:\n    pass\nreturn i", {"called", "unread"}),
        ("y = 0\nfor i in x:\n    z = y\n    y = aux(i)\nreturn z", {"called"}),  # read in the next round
        ("for i in x:\n    y = aux(i)\nreturn 0", {"called", "unread"}),
        ("y, z = aux(x)\nreturn 0", {"called"}),
        ("return sum(map(aux, x))", {"passed", "wrapper"}),
        ("return [aux(i) for i in x]", {"called", "wrapper"}),
        ("f = aux\nreturn f(x)", {"passed"}),
        ("def aux(y):\n    return y\nreturn aux(x) + x", set()),
        ("aux = abs\nreturn aux(x) + x", set()),
        ("for aux in x:\n    pass\nreturn aux(x)", set()),
        ("from math import floor as aux\nreturn aux(x) + x", set()),
        ("# aux(x)\nreturn 'aux(x)'", set()),
        ("return self.aux(x)", set()),
    ],
)
def test_usage(body: str, expected: set[str]) -> None:
    assert flags(usage(main(body))) == expected


def test_a_parameter_of_that_name_is_not_the_partner() -> None:
    assert usage(main("return aux(x) + 1", "def main(x, aux=len):")) == Usage()


def test_an_empty_body_is_a_wrapper() -> None:
    assert usage(main('"""aux(x)"""')).wrapper


@pytest.mark.parametrize("line", ["v{0} = aux({0})", "v{0} = v{1}", "if aux({0}): pass", "for v{0} in aux({0}): pass"])
def test_the_analysis_takes_no_more_than_linear_time(line: str) -> None:
    """20,000 characters at the most; quadratic time would be minutes."""
    body = "\n".join([*(line.format(n, n + 1) for n in range(1500)), "v1500 = aux(x)", "return v0"])
    function, start = main(body), time.process_time()
    usage(function)
    assert time.process_time() - start < 5
