"""The notation of tests and expressions at laptop scale: words separated by blanks.

A message of tests is ``VALUE VALUE VALUE is VALUE`` (the inputs in the order in which the program names its variables,
then the output), several separated by ``;``.  An expression is Python made of variables, numbers, operators and
brackets.
"""

from __future__ import annotations

from collections.abc import Sequence

from .micro_programs import LARGEST, LARGEST_OUTPUT, NAMES, OPERATORS, SMALLEST_OUTPUT, Row
from .problem import Check, CheckResult, Suite, contradictory

EXPRESSION_WORDS = 11
"""Words that an expression may have; a micro-program has 7."""

_NUMBERS = {str(number): number for number in range(SMALLEST_OUTPUT, LARGEST_OUTPUT + 1)}
_INPUTS = {str(number): number for number in range(1, LARGEST + 1)}
_LEXICON = frozenset({*NAMES, *OPERATORS, *"()", *_NUMBERS})


def format_row(row: Row) -> str:
    """The input of a test."""
    return " ".join(map(str, row))


def parse_row(text: str) -> Row:
    """The reverse of :func:`format_row`."""
    x, y, z = map(int, text.split())
    return x, y, z


def format_tests(suite: Suite, results: Sequence[CheckResult] = ()) -> str:
    """Tests as a message has them, each with the program's output where it was run; "none" where there are none."""
    tests = [f"{check.input} is {check.expected}" for check in suite]
    if results:
        tests = [f"{test} got {result.output}" for test, result in zip(tests, results, strict=True)]
    return " ; ".join(tests) or "none"


def read_tests(text: str, max_tests: int) -> Suite | None:
    """The tests of a message, each once; None for anything but 1 to ``max_tests`` tests that do not contradict."""
    words = text.split()
    if len(words) % 6 != 5 or any(word != ";" for word in words[5::6]):
        return None
    tests: dict[Check, None] = {}
    for start in range(0, len(words), 6):
        test = words[start : start + 5]
        if test[3] != "is" or test[4] not in _NUMBERS or not _INPUTS.keys() >= set(test[:3]):
            return None
        tests[Check(" ".join(test[:3]), test[4])] = None
    suite = tuple(tests)
    return None if len(suite) > max_tests or contradictory(suite) else suite


def read_expression(text: str) -> str | None:
    """The words of an expression; None where one is unknown, or there are none, or too many.  It may yet be no
    Python."""
    words = text.split()
    return " ".join(words) if 0 < len(words) <= EXPRESSION_WORDS and _LEXICON.issuperset(words) else None
