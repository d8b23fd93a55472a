"""Code collaboration as panels: the task, both functions, and the points by level."""

from __future__ import annotations

from collections.abc import Mapping

from ..panels import Panel, tone_of
from .feedback import Report
from .reward import POINTS

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
