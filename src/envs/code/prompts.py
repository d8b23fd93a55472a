"""The prompts of coder and tester at the papers' scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ...experience import Message
from ..fences import in_fence
from ..turns import chat
from .problem import Check, CheckResult, Problem
from .running import INPUT, OUTPUT

ROLES: Final = {
    "coder": "You are the programmer of a team of two. Your team-mate, the tester, writes tests for your program.",
    "tester": "You are the tester of a team of two. Your team-mate, the coder, writes a program for the problem. Your "
    "tests show where it is wrong, so they must be right themselves.",
    "solo": "You are a programmer.",
}

_PROGRAM: Final = "Think briefly, then give the whole program in one fenced block:\n\n```python\n# your program\n```"


def prompt(
    agent: str,
    problem: Problem,
    tests: Sequence[tuple[Check, CheckResult | None]],
    program: str | None,
    max_tests: int,
    *,
    called: bool = False,
) -> list[Message]:
    """The prompt of ``agent``; ``tests`` come with the program's result on each, where it was run.
    ``called``: a program is the argument of a call."""
    parts = ["# Problem", problem.statement.strip()]
    if problem.starter and problem.starter.strip() not in problem.statement:
        parts += ["Begin with:", in_fence(problem.starter.rstrip(), "python")]
    if program is not None:
        parts += [
            "# The program so far" if agent == "tester" else "# Your program so far",
            in_fence(program.rstrip("\n"), "python"),
        ]
    if tests:
        parts += ["# Tests so far", *(_test(check, result) for check, result in tests)]
    request = _tests_request(problem, max_tests) if agent == "tester" else _program_request(problem, program, called)
    return chat(ROLES[agent], "\n\n".join([*parts, "# Your task", request]))


def _program_request(problem: Problem, program: str | None, called: bool) -> str:
    if problem.function is None:
        request = "Write a Python program that reads standard input and prints the answer to standard output."
    else:
        request = f"Write Python code that defines `{problem.function.replace('Solution.', 'class Solution with ')}`."
    again = "" if program is None else " A test may be wrong: where you are sure of your program, give it again."
    return f"{request}{again}\n\n{'Give the whole program.' if called else _PROGRAM}"


def _tests_request(problem: Problem, max_tests: int) -> str:
    kind = (
        "the input as the program reads it, and exactly what it must print"
        if problem.function is None
        else f"the arguments of `{problem.function}` as a JSON list, and its value as JSON"
    )
    number = "one test" if max_tests == 1 else f"1 to {max_tests} tests"
    return (
        f"Write {number} that a wrong program would fail: {kind}. They take the place of your former ones. Work the "
        f"output out step by step before you state it. Write each test so:\n\n{INPUT}\n```\ninput\n```\n{OUTPUT}\n"
        "```\noutput\n```"
    )


def _test(check: Check, result: CheckResult | None) -> str:
    lines = ["Input:", in_fence(check.input.rstrip("\n")), "Expected output:", in_fence(check.expected.rstrip("\n"))]
    if result is not None:
        lines += (
            ["The program gives the same."]
            if result.passed
            else ["The program gives:", in_fence(result.output.rstrip("\n"))]
        )
    return "\n".join(lines)
