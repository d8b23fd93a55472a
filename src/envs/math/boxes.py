r"""The answers that a text boxes: ``\boxed{...}``."""

from __future__ import annotations

import re

_BRACKET = re.compile(r"\\.|[{}]", re.DOTALL)
"""A bracket, or a command of one sign: a bracket after a backslash is none, after a line break it is one."""
_BOX = re.compile(
    r"\\(?:boxed|fbox)\s*(?=\{)"
    r"|\\boxed(?:\s*(?=[-+(\[]*\.?\d)|\s+(?=[-+]?[A-Za-z](?![A-Za-z])))([-+]?[A-Za-z]|[^\s$\\{}]+)"
)
"""Without a brace: of a number, or of one letter that begins no word."""


def boxed_answers(text: str) -> list[str]:
    r"""The contents of the outermost ``\boxed{...}``, ``\fbox{...}`` and ``\boxed 7``, in order; an unclosed one counts
    for nothing."""
    closing: dict[int, int] = {}  # of each opening bracket, in one pass: many may never be closed
    open_places: list[int] = []
    for bracket in _BRACKET.finditer(text):
        if bracket[0] == "{":
            open_places.append(bracket.start())
        elif bracket[0] == "}" and open_places:
            closing[open_places.pop()] = bracket.start()
    answers, end = [], 0
    for match in _BOX.finditer(text):
        if match.start() < end:
            continue
        if match[1] is not None:
            answers.append(match[1])
        elif match.end() in closing:
            end = closing[match.end()]
            answers.append(text[match.end() + 1 : end])
    return answers
