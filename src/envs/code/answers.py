"""Reads the messages of large models: a program in a fenced block, tests as data.  Nothing here is run."""

from __future__ import annotations

import json
from typing import Final

from ...sandbox import NO_VALUE
from ..fences import fenced_blocks, last_program
from .problem import Check, Suite, contradictory
from .running import json_value

MAX_PROGRAM_CHARS: Final = 1 << 16
MAX_TEST_CHARS: Final = 10_000
"""Of the input, and of the output, of a test."""

INPUT, OUTPUT = "**Test Input:**", "**Test Output:**"


def read_program(text: str) -> str | None:
    """The program of a message (:func:`..fences.last_program`); None where it is absent, empty or too long."""
    program = last_program(text)
    if program is None or not program.strip() or len(program) > MAX_PROGRAM_CHARS:
        return None
    return program if "\0" not in program else None


def read_tests(text: str, max_tests: int, *, calls: bool) -> Suite | None:
    """The tests of a message: each a fenced block after ``**Test Input:**`` and one after ``**Test Output:**``.

    With ``calls`` the first holds the JSON of a list of arguments, the second that of a value.  None where there are
    none, or more than ``max_tests``, or one cannot be read, or they contradict each other.  Tests of standard input
    that differ in blanks alone are one.
    """
    tests: dict[Check, Check] = {}
    for part in text.split(INPUT)[1:]:
        before, mark, after = part.partition(OUTPUT)
        inputs, outputs = fenced_blocks(before), fenced_blocks(after)
        if not mark or not inputs or not outputs:
            return None
        check = _check(inputs[0][1], outputs[0][1], calls)
        if check is None:
            return None
        tests.setdefault(check if calls else check.normalized, check)
    return tuple(tests.values()) if 0 < len(tests) <= max_tests and not contradictory(tuple(tests)) else None


def _check(text: str, expected: str, calls: bool) -> Check | None:
    if len(text) > MAX_TEST_CHARS or len(expected) > MAX_TEST_CHARS or "\0" in text:
        return None
    if not calls:
        return Check(text, expected)
    arguments, value = json_value(text), json_value(expected)
    if not isinstance(arguments, list) or value is NO_VALUE:
        return None
    return Check(json.dumps(arguments), json.dumps(value))
