"""What the agents are told about the program of the turn before: MAGRPO's external modes, in words of our own.

- ``plain``: nothing but their own functions;
- ``passed``: whether every level was passed;
- ``level_passed``: how each level went;
- ``level_feedback``: also the error of the syntax, the tests that failed, and how main uses aux;
- ``expert``: as plain, with the edits that another model proposes (:mod:`.expert`), or, of three steps, a script.

The tests in the feedback are the first ``feedback_tests``, as published 1; 0: all; below 0: the last.

The reward of MAGRPO's code collaboration (arXiv 2508.04652; constants of its code): 4 points at most.

Four levels; the first that fails ends the judgement:

1. structure: 0.4 for an ``aux`` and 0.6 for a main function that return a value; without the main function, no more;
2. syntax: 0.5 if the program of both is Python;
3. tests: 1 times the share of tests that pass;
4. cooperation, if a test passes and there is an ``aux``: 0.5 if main calls it, 1 more if main is no thin wrapper of it,
   0.5 less if the value of a call is ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from ..code.problem import CheckResult
from ..drawing import Panel, tone_of
from .functions import AUX, has_return
from .usage import Schemes, Usage

POINTS = 4.0
"""The highest score."""

UsageRule = Literal["statement", "dataflow"]
"""When the value of a call counts as ignored.  ``statement``, as published: the call is a statement of its own.
``dataflow``: also where the value goes to a variable that nothing reads; here ``map(aux, xs)`` is a call, too."""


@dataclass(frozen=True)
class CodeScore:
    """The points of a program by level."""

    structure: float = 0.0
    syntax: float = 0.0
    tests: float = 0.0
    cooperation: float = 0.0

    @property
    def points(self) -> float:
        """In [0, 4]."""
        return self.structure + self.syntax + self.tests + self.cooperation


def structure_points(aux: str, main: str, entry: str) -> float:
    """Level 1; ``aux`` and ``main`` are the sources of the functions, empty where there is none."""
    return 0.4 * has_return(aux, AUX) + 0.6 * has_return(main, entry)


def cooperation_points(use: Usage, rule: UsageRule) -> float:
    """Level 4 of a program that passes a test; in [0, 1.5]."""
    if not (use.called or (rule == "dataflow" and use.passed)):
        return 0.0
    ignored = use.ignored or (rule == "dataflow" and use.unread)
    return 0.5 + (not use.wrapper) - 0.5 * ignored


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


UNREADABLE = "none could be read"
MOST_FAILURES = 3
"""Tests that failed, of which a drawing tells the values."""


def draft_panels(functions: Mapping[str, str]) -> list[Panel]:
    """Functions that are not judged."""
    return [Panel(f"{agent}, not judged", source or UNREADABLE) for agent, source in functions.items()]


def report_panels(report: Report) -> list[Panel]:
    """The functions of a judged program, and the judgement."""
    score, passed = report.score, sum(result.passed for result in report.results)
    lines = [
        f"structure {score.structure:g} of 1",
        f"syntax {score.syntax:g} of 0.5" + (f": {report.syntax_error}" if report.syntax_error else ""),
        f"tests {passed} of {len(report.results)} passed" if report.results else "tests not run",
        f"cooperation {score.cooperation:.3g} of 1.5",
    ]
    failures = [(test, result) for test, result in report.shown(0) if not result.passed]
    lines += [f"failed: {test}, but it gave {result.output}" for test, result in failures[:MOST_FAILURES]]
    verdict = Panel(f"{score.points:.3g} of {POINTS:g} points", "\n".join(lines), tone_of(score.points / POINTS))
    return [Panel("aux", report.aux or UNREADABLE), Panel("main", report.main or UNREADABLE), verdict]
