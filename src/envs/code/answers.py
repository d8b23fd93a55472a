"""What is read in the messages of large models: a program in a fence, tests as data.  Nothing here is run."""

from __future__ import annotations

import json
from typing import Final

from ...sandbox import NO_VALUE
from ..fences import fences, last_program
from .problem import Check, Suite, contradictory
from .running import data_of

LONGEST_PROGRAM: Final = 1 << 16
LONGEST_TEST: Final = 10_000
"""Characters of a program, and of one side of a test."""

INPUT, OUTPUT = "**Test Input:**", "**Test Output:**"


def read_program(text: str) -> str | None:
    """The last fenced Python (or unlabelled) block; None where there is none, or it is empty or too long."""
    program = last_program(text)
    if program is None or not program.strip() or len(program) > LONGEST_PROGRAM:
        return None
    return program if "\0" not in program else None


def read_tests(text: str, most: int, *, calls: bool) -> Suite | None:
    """The tests of a message: each a fenced block after ``**Test Input:**`` and one after ``**Test Output:**``.

    With ``calls`` the first holds the JSON of a list of arguments, the second that of a value.  None where there are
    none, or more than ``most``, or one cannot be read, or they contradict each other.  Tests of standard input that
    differ in blanks alone are one.
    """
    found: dict[Check, Check] = {}
    for part in text.split(INPUT)[1:]:
        before, mark, after = part.partition(OUTPUT)
        given, expected = fences(before), fences(after)
        if not mark or not given or not expected:
            return None
        check = _check(given[0][1], expected[0][1], calls)
        if check is None:
            return None
        found.setdefault(check if calls else check.plain, check)
    return tuple(found.values()) if 0 < len(found) <= most and not contradictory(tuple(found)) else None


def _check(given: str, expected: str, calls: bool) -> Check | None:
    if len(given) > LONGEST_TEST or len(expected) > LONGEST_TEST or "\0" in given:
        return None
    if not calls:
        return Check(given, expected)
    arguments, value = data_of(given), data_of(expected)
    if not isinstance(arguments, list) or value is NO_VALUE:
        return None
    return Check(json.dumps(arguments), json.dumps(value))
