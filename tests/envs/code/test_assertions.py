"""Assertions read as tests."""

import pytest

from troupe.envs.code.assertions import parse_assertions
from troupe.envs.code.problem import Check


@pytest.mark.parametrize(
    ("assertion", "check"),
    [
        ("candidate(1, 'a') == [1, (2, 3)]", Check('[1, "a"]', "[1, [2, 3]]")),
        ("candidate([3 * 19, 'ab' + 'c']) == 3 * -2.5", Check('[[57, "abc"]]', "-7.5")),
        ("candidate([1, 2**3]) == 0**0", Check("[[1, 8]]", "1")),
        ("candidate(2) is True", Check("[2]", "true")),
        ("candidate(2)", Check("[2]", "true")),
        ("not f(2)", Check("[2]", "false")),
        ("candidate({'a': None}) == {}, 'message'", Check('[{"a": null}]', "{}")),
        ("abs(candidate(1.5) - 0.5) < 1e-6", Check("[1.5]", "0.5")),
        ("tuple(candidate([1])) == tuple([2])", Check("[[1]]", "[2]")),
        ("candidate(1) == g(2)", None),
        ("candidate(x) == 2", None),
        ("candidate(1) > 2", None),
        ("candidate(1) == candidate(2)", None),
        ("candidate(n=1) == 2", None),
        ("candidate({1: 2}) == 2", None),  # JSON would make the key a text
        ("candidate({1, 2}) == 2", None),
        ("candidate(1) == 1 < 2", None),
        ("candidate('a' * 10 ** 12) == 2", None),
        ("candidate('a' * 1000000000000) == 2", None),
        ("candidate(1 / 0) == 2", None),
        ("abs(candidate(1) - 2) < 'x'", None),
        ("abs(candidate(1) - 2) < -1", None),
        ("abs(candidate(1) - 2) < 1e999", None),
        ("abs(candidate(1) - 2) < 9**64", None),
        ("candidate(" + "(1 + " * 90 + "1" + ")" * 90 + ") == 2", Check("[91]", "2")),
        ("candidate(9**9**9) == 2", None),
        ("candidate(2.0**2) == 4", None),
        ("candidate(float('nan')) == 2", None),
        ("other(1) == 2", None),
    ],
)
def test_assertions(assertion: str, check: Check | None) -> None:
    parsed = parse_assertions(f"def check(candidate):\n    assert {assertion}\n", {"candidate": "f", "f": "f"})
    assert (parsed.suite, parsed.refused) == (((), 1) if check is None else ((check,), 0))
    assert parsed.uncarried == ("{1" in assertion)
    assert parsed.tolerance == (1e-6 if "1e-6" in assertion else 0)


def test_a_long_value_is_refused_but_can_be_carried() -> None:
    parsed = parse_assertions(
        f"def check(candidate):\n    assert candidate('{'a' * 100_001}') == 2\n", {"candidate": "f"}
    )
    assert (parsed.suite, parsed.refused, parsed.uncarried) == ((), 1, 0)


def test_assertions_in_loops_are_refused_and_constants_left_out() -> None:
    source = "def check(candidate):\n    assert True\n    for i in range(3):\n        assert candidate(i) == i\n"
    parsed = parse_assertions(source, {"candidate": "f"})
    assert (parsed.suite, parsed.refused) == ((), 1)
