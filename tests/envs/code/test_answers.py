"""Messages of large models: programs and tests, read as data."""

import pytest

from troupe.envs.code.problem import Check
from troupe.envs.code.running import read_program, read_tests

from .conftest import message, program


@pytest.mark.parametrize(
    ("text", "expected"),
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
def test_programs(text: str, expected: str | None) -> None:
    assert read_program(text) == expected


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
    tests = read_tests(text, 2, calls=False)
    assert (None if tests is None else [*tests]) == suite


@pytest.mark.parametrize(
    ("arguments", "value", "check"),
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
def test_tests_of_functions(arguments: str, value: str, check: Check | None) -> None:
    tests = read_tests(message((arguments, value)), 1, calls=True)
    assert tests == (None if check is None else (check,))
