"""How main uses aux: calls, wrappers, values that are ignored; and the schemes of cooperation."""

import ast
import textwrap
import time
from dataclasses import asdict

import pytest

from troupe.envs.code_collab.usage import Schemes, Usage, holders, schemes, usage


def main(body: str, head: str = "def main(x):") -> ast.FunctionDef:
    node = ast.parse(f"{head}\n{textwrap.indent(textwrap.dedent(body).strip(), '    ')}").body[0]
    assert isinstance(node, ast.FunctionDef)
    return node


def flags(value: Usage | Schemes) -> set[str]:
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


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        # fallback
        ("try:\n    return aux(x)\nexcept Exception:\n    return sorted(x)", {"fallback"}),
        ("try:\n    y = aux(x)\nexcept ValueError:\n    raise\nreturn y + 1", {"decorator"}),
        ("y = aux(x)\nif y is None:\n    y = sorted(x)\nreturn y", {"fallback"}),
        ("y = aux(x)\nif not y:\n    return sorted(x)\nreturn y", {"fallback"}),
        ("y = aux(x) or sorted(x)\nreturn y + 1", {"fallback", "decorator"}),
        ("y = aux(x)\nreturn y if y is not None else 0", {"fallback"}),
        ("r = aux(x)\nif r:\n    return r\nreturn x * 2", {"fallback"}),
        ("r = aux(x)\nreturn r if r else x * 2", {"fallback"}),
        # decorator
        ("y = [v * 2 for v in aux(x)]\nreturn y", {"decorator"}),  # one call, before the first round
        ("t = 0\nfor v in aux(x):\n    t += v\nreturn t", {"decorator"}),
        ("y = aux(x)\nreturn y + 1", {"decorator"}),
        ("y = aux(x)\nz = y * 2\nreturn str(z)", {"decorator"}),
        ("y = aux(x)\nx.sort()\nreturn x", set()),
        # coordinator
        ("a = aux(x[:2])\nb = aux(x[2:])\nreturn a + b", {"coordinator"}),
        ("total = 0\nfor i in x:\n    total += aux(i)\nreturn total", {"coordinator"}),
        ("parts = [aux(i) for i in x]\nreturn sum(parts)", {"coordinator"}),
        ("parts = map(aux, x)\nreturn sum(parts)", {"coordinator"}),
        ("t = 0\nwhile aux(t) < x:\n    t += 1\nreturn t", {"coordinator", "strategy_filter"}),
        ("y = [v for i in x for v in aux(i)]\nreturn y", {"coordinator"}),
        ("y = {i: aux(i) for i in x}\nreturn y", {"coordinator"}),
        # strategy filter
        ("ok = aux(x)\nif ok:\n    return 1\nreturn 0", {"strategy_filter"}),
        ("ok = aux(x)\nif not ok:\n    return 1\nreturn 0", {"strategy_filter"}),
        ("r = aux(x)\nwhile r:\n    x -= r.pop()\nreturn x", {"strategy_filter"}),
        ("if aux(x):\n    return 1\nreturn 0", {"strategy_filter"}),
        ("kind = aux(x)\nif kind == 'up':\n    return x + 1\nreturn x - 1", {"strategy_filter"}),
        ("kind = aux(x)\nlow = kind < 3\nreturn 1 if low else 2", {"strategy_filter"}),
        ("match aux(x):\n    case 1:\n        return 1\nreturn 0", {"strategy_filter"}),
        ("y = filter(aux, x)\nreturn list(y)", {"strategy_filter"}),
        ("return [i for i in x if aux(i)]", {"coordinator", "strategy_filter"}),
        # none
        ("return aux(x)", set()),
        ("y = aux(x)\nreturn y", set()),
        ("return x + 1", set()),
        ("aux(x)\nreturn x", set()),
        ("def aux(y):\n    return y\nif aux(x):\n    return 1\nreturn 2", set()),
    ],
)
def test_schemes(body: str, expected: set[str]) -> None:
    assert flags(schemes(main(body))) == expected


def test_values_are_followed_through_variables() -> None:
    body = "a = aux(x)\nb = a + 1\nfor c in b:\n    d = c\ne: int = d\nf = x\ng = (h := e)\nreturn g"
    assert holders(main(body)) == {"a", "b", "c", "d", "e", "g", "h"}


@pytest.mark.parametrize("line", ["v{0} = aux({0})", "v{0} = v{1}", "if aux({0}): pass", "for v{0} in aux({0}): pass"])
def test_the_analysis_takes_no_more_than_linear_time(line: str) -> None:
    """20,000 characters at the most; quadratic time would be minutes."""
    body = "\n".join([*(line.format(n, n + 1) for n in range(1500)), "v1500 = aux(x)", "return v0"])
    function, start = main(body), time.process_time()
    usage(function)
    schemes(function)
    assert time.process_time() - start < 5
