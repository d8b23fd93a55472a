"""What the agents are told about the program of the turn before: MAGRPO's external modes, in words of our own.

- ``plain``: nothing but their own functions;
- ``passed``: whether every level was passed;
- ``level_passed``: how each level went;
- ``level_feedback``: also the error of the syntax, the tests that failed, and how main uses aux;
- ``expert``: as plain, with the edits that another model proposes (:mod:`.expert`), or, of three steps, a script.

The tests in the feedback are the first ``feedback_tests``, as published 1; 0: all; below 0: the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from ..code.problem import CheckResult
from .functions import AUX, has_return
from .reward import CodeScore
from .schemes import Schemes
from .usage import Usage

Feedback = Literal["plain", "passed", "level_passed", "level_feedback", "expert"]

UNUSED: Final = Usage()
NO_SCHEME: Final = Schemes()
_OK: Final = {True: "correct", False: "not correct"}


@dataclass(frozen=True)
class Report:
    """The judgement of a program.

    ``aux`` and ``main`` are the functions' sources, empty where there are none; ``syntax_error`` is None where the
    program is Python, or was not parsed for want of a main function; ``results`` are those of its tests, as far as it
    got, and ``tests`` their calls and values in words.  ``useful`` in [0, 1]: see :class:`.world.CollabWorld`.
    """

    aux: str
    main: str
    entry: str
    score: CodeScore
    syntax_error: str | None = None
    tests: tuple[str, ...] = ()
    results: tuple[CheckResult, ...] = ()
    usage: Usage = UNUSED
    schemes: Schemes = NO_SCHEME
    useful: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether every test passed."""
        return bool(self.results) and all(result.passed for result in self.results)

    def shown(self, count: int) -> list[tuple[str, CheckResult]]:
        """The tests of the feedback."""
        pairs = [*zip(self.tests, self.results, strict=True)]
        return pairs[:count] if count > 0 else pairs[count:]


def feedback_lines(mode: Feedback, report: Report, writes: tuple[bool, bool], tests: int) -> list[str]:
    """The lines for an agent that writes (aux, main), of ``tests`` tests."""
    if mode in ("plain", "expert"):
        return []
    shown = report.shown(tests)
    passed = sum(result.passed for _, result in shown)
    if mode == "passed":
        every = bool(shown) and passed == len(shown)
        return [f"Signal: {'all levels passed' if every else 'not all levels passed'}"]
    syntax = _OK[report.score.syntax > 0]
    if mode == "level_feedback" and report.syntax_error:
        syntax += f", {report.syntax_error}"
    lines = [
        *([_implementation(AUX, report.aux, AUX)] if writes[0] or mode == "level_feedback" else []),
        *([_implementation("main", report.main, report.entry)] if writes[1] or mode == "level_feedback" else []),
        f"- Syntax: {syntax}",
        f"- Tests: {passed} of {len(shown)} passed" if shown else "- Tests: not run",
    ]
    if mode == "level_feedback":
        lines += [f"  Failed: {test}, but it gave {result.output}" for test, result in shown if not result.passed]
    if writes[1]:
        lines.append(f"- Use of aux: {_use(report)}")
        if mode == "level_feedback" and report.main and report.usage.wrapper:
            lines.append("- Main is hardly more than a call of aux")
    return ["Signals:", *lines]


def _implementation(name: str, source: str, function: str) -> str:
    state = "found" if has_return(source, function) else "no return" if source else "missing"
    return f"- Function {name}: {state}"


def _use(report: Report) -> str:
    if not report.main:
        return "unknown, main is missing"
    if report.syntax_error:
        return "unknown, the program is no Python"
    if not (report.usage.called or report.usage.passed):
        return "main does not call it"
    return "called, but its value is not used" if report.usage.ignored or report.usage.unread else "called and used"
