"""What coder and tester are told at the papers' scale, as chat messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...experience import Message
from .answers import INPUT, OUTPUT
from .problem import Check, Problem, Ran

ROLES: Final = {
    "coder": "You are the programmer of a team of two. Your team-mate, the tester, writes tests for your program.",
    "tester": "You are the tester of a team of two. Your team-mate, the coder, writes a program for the problem. Your "
    "tests show where it is wrong, so they must be right themselves.",
    "solo": "You are a programmer.",
}

_PROGRAM: Final = "Think briefly, then give the whole program in one fenced block:\n\n```python\n# your program\n```"


def told(
    agent: str, problem: Problem, shown: Sequence[tuple[Check, Ran | None]], program: str | None, most: int
) -> list[Message]:
    """The messages for ``agent``; ``shown`` are tests with what the program did on them, where it was run."""
    parts = ["# Problem", problem.statement.strip()]
    if problem.starter and problem.starter.strip() not in problem.statement:
        parts += ["Begin with:", _fenced(problem.starter.rstrip(), "python")]
    if program is not None:
        parts += ["# The program so far" if agent == "tester" else "# Your program so far", _fenced(program, "python")]
    if shown:
        parts += ["# Tests so far", *(_test(check, ran) for check, ran in shown)]
    parts += ["# Your task", _tests_wanted(problem, most) if agent == "tester" else _program_wanted(problem, program)]
    return [{"role": "system", "content": ROLES[agent]}, {"role": "user", "content": "\n\n".join(parts)}]


def _program_wanted(problem: Problem, program: str | None) -> str:
    if problem.function is None:
        what = "Write a Python program that reads standard input and prints the answer to standard output."
    else:
        what = f"Write Python code that defines `{problem.function.replace('Solution.', 'class Solution with ')}`."
    again = "" if program is None else " A test may be wrong: where you are sure of your program, give it again."
    return f"{what}{again}\n\n{_PROGRAM}"


def _tests_wanted(problem: Problem, most: int) -> str:
    kind = (
        "the input as the program reads it, and exactly what it must print"
        if problem.function is None
        else f"the arguments of `{problem.function}` as a JSON list, and its value as JSON"
    )
    number = "one test" if most == 1 else f"1 to {most} tests"
    return (
        f"Write {number} that a wrong program would fail: {kind}. They take the place of your former ones. Work the "
        f"output out step by step before you state it. Write each test so:\n\n{INPUT}\n```\ninput\n```\n{OUTPUT}\n"
        "```\noutput\n```"
    )


def _test(check: Check, ran: Ran | None) -> str:
    lines = ["Input:", _fenced(check.given), "Expected output:", _fenced(check.expected)]
    if ran is not None:
        lines += ["The program gives the same."] if ran.passed else ["The program gives:", _fenced(ran.got)]
    return "\n".join(lines)


def _fenced(text: str, label: str = "") -> str:
    """``text`` in a fence that it cannot close."""
    longest = max((len(run) for run in _ticks(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{label}\n{text.rstrip(chr(10))}\n{fence}"


def _ticks(text: str) -> list[str]:
    """The runs of backquotes in ``text``."""
    return "".join(sign if sign == "`" else " " for sign in text).split()
