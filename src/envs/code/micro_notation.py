"""How tests and expressions are written at laptop scale: words apart by blanks.

A message of tests is ``VALUE VALUE VALUE is VALUE`` (the inputs in the order in which the program names its variables,
then the output), several apart by ``;``.  An expression is Python made of variables, numbers, operators and brackets.
"""

from __future__ import annotations

from collections.abc import Sequence

from .micro_programs import LARGEST, LARGEST_OUTPUT, NAMES, OPERATORS, SMALLEST_OUTPUT, Row
from .problem import Check, Ran, Suite, contradictory

EXPRESSION_WORDS = 11
"""Words that an expression may have; a micro-program has 7."""

_NUMBERS = {str(number): number for number in range(SMALLEST_OUTPUT, LARGEST_OUTPUT + 1)}
_INPUTS = {str(number): number for number in range(1, LARGEST + 1)}
_LEXICON = frozenset({*NAMES, *OPERATORS, *"()", *_NUMBERS})


def written_row(row: Row) -> str:
    return " ".join(map(str, row))


def row_of(given: str) -> Row:
    x, y, z = map(int, given.split())
    return x, y, z


def written(suite: Suite, runs: Sequence[Ran] = ()) -> str:
    """Tests as a message has them, each with what the program gave where it was run; "none" where there are none."""
    said = [f"{check.given} is {check.expected}" for check in suite]
    if runs:
        said = [f"{test} got {ran.got}" for test, ran in zip(said, runs, strict=True)]
    return " ; ".join(said) or "none"


def read_tests(text: str, most: int) -> Suite | None:
    """The tests of a message, each once; None where it is anything but 1 to ``most`` tests, or contradicts itself."""
    words = text.split()
    found: dict[Check, None] = {}
    while True:
        test, words = words[:5], words[5:]
        if len(test) < 5 or test[3] != "is" or test[4] not in _NUMBERS or not _INPUTS.keys() >= set(test[:3]):
            return None
        found[Check(" ".join(test[:3]), test[4])] = None
        if not words:
            break
        if words.pop(0) != ";":
            return None
    suite = tuple(found)
    return None if len(suite) > most or contradictory(suite) else suite


def read_expression(text: str) -> str | None:
    """The words of an expression; None where one is unknown, or there are none, or too many.  It may yet be no
    Python."""
    words = text.split()
    return " ".join(words) if 0 < len(words) <= EXPRESSION_WORDS and _LEXICON.issuperset(words) else None
