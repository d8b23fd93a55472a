"""Programs against tests: run in the sandbox, each test in a process of its own, and judged here.

What is expected never enters the process of a program.  A test script (``check(candidate)`` that no list of calls and
values can express) is asked in three processes, one after the other: the script meets the reference solution, to learn
which calls it makes; the program answers these calls; the script meets the answers, as data.  The calls are the same
each time, since the sandbox seeds ``random``; a script that calls otherwise fails the program.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from ...sandbox import NO_VALUE, Call, Job, Result, Verdict, equal_values, parse_value
from ..execution import Execution
from .problem import Check, Problem, Ran, Suite, words_of

SHOWN: Final = 300
"""Characters of what a program gave that prompts show."""

_RECORD: Final = """
def _recorded():
    import json
    calls = []
    def candidate(*args):
        calls.append(json.loads(json.dumps(args)))
        if calls[-1] != list(args):
            raise TypeError("a call that JSON cannot carry")
        return {function}(*args)
    check(candidate)
    return calls
"""

_REPLAY: Final = """
def _replayed(calls, answers):
    log = list(zip(calls, answers))
    def candidate(*args):
        expected, answer = log.pop(0)
        if list(args) != expected:
            raise LookupError("another call than before")
        return answer
    check(candidate)
    return not log
"""


class ScriptError(ValueError):
    """A problem's test script does not run with its reference solution."""


class Runner:
    """Runs the programs of problems."""

    def __init__(self, execution: Execution) -> None:
        self.execution = execution

    async def builds(self, program: str) -> bool:
        """Whether ``program`` is Python."""
        source = "def builds(text):\n    compile(text, 'program', 'exec')\n    return True"
        return (await self.execution.result(Job(source, entry=Call("builds", [program])))).value is True

    async def runs(self, problem: Problem, program: str, suite: Suite) -> tuple[Ran, ...]:
        """What ``program`` did on each test of ``suite``."""
        jobs = [_job(problem, program, check.given) for check in suite]
        results = await asyncio.gather(*map(self.execution.result, jobs))
        return tuple(_judged(problem, result, check) for result, check in zip(results, suite, strict=True))

    async def hidden(self, problem: Problem, program: str) -> tuple[Ran, ...]:
        """What ``program`` did on the hidden tests; a test script is the last."""
        found = await self.runs(problem, program, problem.hidden)
        return found if problem.script is None else (*found, await self._script(problem, program, problem.script))

    async def _script(self, problem: Problem, program: str, script: str) -> Ran:
        recording = f"{problem.setup}\n{problem.reference}\n{script}\n{_RECORD.format(function=problem.function)}"
        recorded = await self.execution.result(Job(recording, entry=Call("_recorded")))
        calls = recorded.value
        if recorded.verdict is not Verdict.OK or not isinstance(calls, list) or not calls:
            raise ScriptError(f"{problem.name}: its test script does not run: {_shown(recorded, 'it calls nothing')}")
        results = await asyncio.gather(
            *(self.execution.result(_job(problem, program, json.dumps(args))) for args in calls)
        )
        if any(result.value is NO_VALUE or result.verdict is not Verdict.OK for result in results):
            return Ran(any(result.verdict is Verdict.OK for result in results), False, "")
        answers: list[Any] = [result.value for result in results]
        replaying = f"{problem.setup}\n{problem.reference}\n{script}\n{_REPLAY}"
        replayed = await self.execution.result(Job(replaying, entry=Call("_replayed", [calls, answers])))
        return Ran(True, replayed.verdict is Verdict.OK and replayed.value is True, "")


def _job(problem: Problem, program: str, given: str) -> Job:
    source = f"{problem.setup}\n{program}" if problem.setup else program
    if problem.function is None:
        return Job(source, stdin=given)
    return Job(source, entry=Call(problem.function, json.loads(given)))


def _judged(problem: Problem, result: Result, check: Check) -> Ran:
    ran = result.verdict is Verdict.OK
    if problem.function is None:
        return Ran(ran, ran and same_text(result.text, check.expected), _shown(result, result.text))
    ran = ran and result.value is not NO_VALUE
    passed = ran and same_value(result.value, json.loads(check.expected), problem.tolerance)
    return Ran(ran, passed, _shown(result, json.dumps(result.value) if ran else ""))


def _shown(result: Result, gave: str) -> str:
    """What the prompts say of a run: what it gave, or how it ended and the last line of its errors."""
    if result.verdict is Verdict.OK:
        return gave[:SHOWN] if gave else "nothing"
    last = next((line for line in reversed(result.errors.splitlines()) if line.strip()), "")
    return f"{result.verdict}: {last}"[:SHOWN]


def same_text(found: str, expected: str) -> bool:
    """Equal but for blanks within lines, at their ends, and empty lines."""
    return words_of(found) == words_of(expected)


def same_value(found: Any, expected: Any, tolerance: float) -> bool:
    """Equal by exact types, but that a whole float may stand for an integer and an integer for a float."""
    if type(expected) is int and type(found) is float:
        return found == expected
    if isinstance(expected, list) and isinstance(found, list):
        pairs = zip(found, expected, strict=False)
        return len(found) == len(expected) and all(same_value(a, b, tolerance) for a, b in pairs)
    return equal_values(found, expected, tolerance=tolerance)


def data_of(text: str) -> Any:
    """JSON of a message, as data; :data:`~troupe.sandbox.NO_VALUE` where it is none."""
    return parse_value(text.encode("utf-8", "replace"))
