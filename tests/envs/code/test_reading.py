"""What is read in messages and in test scripts, all of it as data."""

import pytest

from troupe.envs.code.answers import read_program, read_tests
from troupe.envs.code.assertions import take_apart
from troupe.envs.code.problem import Check
from troupe.envs.code.running import same_text, same_value
from troupe.envs.fences import fences

from .conftest import message, program


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (program("x = 1"), "x = 1"),
        ("```\nx = 1\n```", "x = 1"),
        ("```py\nx = 1\n```\nor better\n```python\nx = 2\n```", "x = 2"),
        ("```python\nx = 1\n```\nIt prints\n```text\n1\n```", "x = 1"),
        ("```python\nx = 1", None),  # never closed
        ("x = 1", None),
        ("```python\n \n```", None),
        ("```python\nx = '\0'\n```", None),
        ("```python\n" + "#" * 70_000 + "\n```", None),
    ],
)
def test_programs(text: str, read: str | None) -> None:
    assert read_program(text) == read


def test_a_fence_within_a_line_closes_nothing() -> None:
    assert fences("```python\nx = '```'\n```\n") == [("python", "x = '```'")]


@pytest.mark.parametrize(
    ("text", "suite"),
    [
        (message(("1 2", "3")), [Check("1 2", "3")]),
        (message(("1\n2", "3"), ("", "0")), [Check("1\n2", "3"), Check("", "0")]),
        ("Output first: **Test Output:**\n```\n1\n```", None),
        ("**Test Input:**\n```\n1\n```\n**Test Output:**\n1", None),
        ("**Test Input:** 1 **Test Output:** 1", None),
        (message(("9" * 20_000, "1")), None),
        ("", None),
    ],
)
def test_tests(text: str, suite: list[Check] | None) -> None:
    found = read_tests(text, 2, calls=False)
    assert (None if found is None else [*found]) == suite


@pytest.mark.parametrize(
    ("given", "expected", "read"),
    [
        ("[1, [2]]", "[3]", Check("[1, [2]]", "[3]")),
        ('["a"]', "null", Check('["a"]', "null")),
        ("1", "1", None),  # no list of arguments
        ("[1, 2", "1", None),
        ("[None]", "1", None),
        ("[__import__('os')]", "1", None),
        ("[NaN]", "1", None),
        ("[1e999]", "1", None),
        ("[" * 5000 + "]" * 5000, "1", None),
    ],
)
def test_tests_of_functions(given: str, expected: str, read: Check | None) -> None:
    found = read_tests(message((given, expected)), 1, calls=True)
    assert found == (None if read is None else (read,))


@pytest.mark.parametrize(
    ("assertion", "check"),
    [
        ("candidate(1, 'a') == [1, (2, 3)]", Check('[1, "a"]', "[1, [2, 3]]")),
        ("candidate([3 * 19, 'ab' + 'c']) == 3 * -2.5", Check('[[57, "abc"]]', "-7.5")),
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
        ("candidate(float('nan')) == 2", None),
        ("other(1) == 2", None),
    ],
)
def test_assertions(assertion: str, check: Check | None) -> None:
    found = take_apart(f"def check(candidate):\n    assert {assertion}\n", {"candidate": "f", "f": "f"})
    assert (found.suite, found.refused) == (((), 1) if check is None else ((check,), 0))
    assert found.tolerance == (1e-6 if "1e-6" in assertion else 0)


def test_assertions_in_loops_are_refused_and_constants_left_out() -> None:
    source = "def check(candidate):\n    assert True\n    for i in range(3):\n        assert candidate(i) == i\n"
    found = take_apart(source, {"candidate": "f"})
    assert (found.suite, found.refused) == ((), 1)


def test_equal_texts() -> None:
    assert same_text("1  2 \n\n3", "1 2\n3\n")
    assert not same_text("1 2 3", "1 2\n3") and not same_text("1.0", "1") and not same_text("", "0")


@pytest.mark.parametrize(
    ("found", "expected", "same"),
    [
        (1, 1.0, True),
        (1.0, 1, True),
        ([1.0, [2]], [1, [2.0]], True),
        (True, 1, False),
        (1, True, False),
        (1.5, 1, False),
        ("1", 1, False),
        (None, False, False),
        ([1], [1, 2], False),
        (0.3000001, 0.3, True),
        (0.31, 0.3, False),
    ],
)
def test_equal_values(found: object, expected: object, same: bool) -> None:
    assert same_value(found, expected, 1e-6) == same
