"""The notation of tests and expressions at laptop scale."""

import pytest

from troupe.envs.code.micro_programs import format_tests, read_expression, read_tests
from troupe.envs.code.problem import Check, CheckResult


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("2 5 3 is 7", 1),
        (" 2 5\n3 is 7 ; 1 1 1 is 0 ", 2),
        ("2 5 3 is 7 ; 2 5 3 is 7", 1),  # once
        ("2 5 3 is -24", 1),
        ("2 5 3 is 7 ; 2 5 3 is 8", None),  # contradictory
        ("2 5 3 is 7 ; 1 1 1 is 0 ; 1 1 2 is 1", None),  # more than two
        ("2 5 3 is 7 ;", None),
        ("2 5 3 is 7 1 1 1 is 0", None),
        ("2 5 3 is 126", None),
        ("2 5 6 is 7", None),
        ("2 5 0 is 7", None),
        ("2 5 3 is x", None),
        ("2 5 is 7", None),
        ("02 5 3 is 7", None),
        ("( b * c ) - a", None),
        ("", None),
    ],
)
def test_messages_of_tests(text: str, count: int | None) -> None:
    tests = read_tests(text, 2)
    assert (None if tests is None else len(tests)) == count


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("( b * c ) - a", "( b * c ) - a"),
        ("b *  c\n- a", "b * c - a"),
        ("7", "7"),
        ("b * *", "b * *"),  # no Python, but that is for the sandbox to say
        ("b ** c", None),
        ("b * x", None),
        ("b if c else a", None),
        ("a + a + a + a + a + a + a", None),  # 13 words
        ("", None),
    ],
)
def test_messages_of_expressions(text: str, expected: str | None) -> None:
    assert read_expression(text) == expected


def test_tests_are_written_with_the_outputs_of_the_program() -> None:
    suite = (Check("2 5 3", "7"), Check("1 1 1", "0"))
    assert format_tests(suite) == "2 5 3 is 7 ; 1 1 1 is 0"
    assert (
        format_tests(suite, (CheckResult(True, False, "13"), CheckResult(False, False, "none")))
        == "2 5 3 is 7 got 13 ; 1 1 1 is 0 got none"
    )
    assert format_tests(()) == "none"
