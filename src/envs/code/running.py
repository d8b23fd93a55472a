"""Programs against tests: run in the sandbox, each test in a process of its own, and judged here.

Expected outputs never enter the process of a program.  A test script (``check(candidate)`` that no list of calls and
values can express) runs in three processes, one after the other: the script with the reference solution, to record its
calls; the program, which answers these calls; the script with the answers, as data.  The calls are the same each time,
since the sandbox seeds ``random``; a script that makes other calls fails the program.  A script that the reference
solution fails when it is played as a program is broken: one that expects exceptions, changed arguments, or objects that
are no plain values.

Reads the messages of large models: a program in a fenced block, tests as data.  Nothing here is run.
"""

from __future__ import annotations

import ast
import asyncio
import json
import logging
from collections.abc import Sequence
from itertools import takewhile
from typing import Any, Final

from ...sandbox import NO_VALUE, Call, Job, Result, Verdict, parse_value
from ..execution import Executor
from ..fences import fenced_blocks, last_program
from ..judging import guarded
from .comparison import same_numbers, shown
from .problem import Check, CheckResult, Problem, Suite, contradictory, normalize, parse_python

log = logging.getLogger(__name__)

SHOWN_CHARS: Final = 300
"""Characters of a program's output that prompts show."""


_RECORD: Final = """
def _record():
    import copy
    calls, ended = [], []
    def candidate(*args, **kwargs):
        calls.append(copy.deepcopy((list(args), kwargs)))
        answer = {function}(*args, **kwargs)
        ended.append(answer)
        return answer
    check(candidate)
    if len(ended) < len(calls):
        raise TypeError("a call that raises")
    return calls
"""

_REPLAY: Final = """
def _replay(calls, answers):
    log, wrong = list(zip(calls, answers)), []
    def candidate(*args, **kwargs):
        wrong.append(args)
        expected, answer = log.pop(0)
        if (list(args), kwargs) != expected:
            raise LookupError("another call than before")
        wrong.pop()
        return answer
    check(candidate)
    return not log and not wrong
"""


class BrokenTestScript(ValueError):
    """A problem's test script does not run, or its reference solution fails it where answers travel as data."""


class Runner:
    """Runs the programs of problems.

    With ``max_timeouts`` the tests of a program run one after the other, and those after so many timeouts count as
    failed without a run: a program that never ends does not cost the time of all tests.
    """

    def __init__(self, execution: Executor, max_timeouts: int | None = None) -> None:
        self.execution, self.max_timeouts = execution, max_timeouts
        self._scripts: dict[str, list[Any] | BrokenTestScript] = {}  # by problem: the calls of its script

    async def compiles(self, program: str) -> bool:
        """Whether ``program`` is Python."""
        source = "def compiles(text):\n    compile(text, 'program', 'exec')\n    return True"
        return (await self.execution.result(Job(source, entry=Call("compiles", [program])))).value is True

    async def run(self, problem: Problem, program: str, suite: Suite) -> tuple[CheckResult, ...]:
        """The result of ``program`` on each test of ``suite``."""

        async def run_check(check: Check) -> tuple[Verdict, CheckResult]:
            # Judged at once: what all tests together return may be more than memory holds.
            result = await self.execution.result(_job_of(problem, program, check))
            return result.verdict, guarded(CheckResult(False, False, ""), _judge, problem, result, check)

        if self.max_timeouts is None:
            return tuple([result for _, result in await asyncio.gather(*map(run_check, suite))])
        results: list[CheckResult] = []
        timeouts = 0
        for check in suite:
            verdict, result = await run_check(check)
            results.append(result)
            timeouts += verdict is Verdict.TIMEOUT
            if timeouts >= self.max_timeouts:
                break
        return (*results, *[CheckResult(False, False, "not run, after timeouts")] * (len(suite) - len(results)))

    async def run_hidden(self, problem: Problem, program: str) -> tuple[CheckResult, ...]:
        """The result of ``program`` on each hidden test; a test script is the last, and is left out where it is broken
        and there are others.  Raises :class:`BrokenTestScript` where it is the only one.
        """
        results = await self.run(problem, program, problem.hidden)
        if problem.script is None:
            return results
        try:
            calls = await self._calls(problem)
        except BrokenTestScript:
            if not results:
                raise
            return results
        return (*results, await self._script(problem, program, calls))

    def leaves_out_script(self, problem: Problem) -> bool:
        """Whether :meth:`run_hidden` found the problem's script broken."""
        return isinstance(self._scripts.get(problem.name), BrokenTestScript)

    async def _results(self, jobs: Sequence[Job]) -> list[Result]:
        """The results of ``jobs``; with ``max_timeouts`` up to so many timeouts."""
        if self.max_timeouts is None:
            return await asyncio.gather(*map(self.execution.result, jobs))
        results: list[Result] = []
        for job in jobs:
            results.append(await self.execution.result(job))
            if sum(result.verdict is Verdict.TIMEOUT for result in results) >= self.max_timeouts:
                break
        return results

    async def _calls(self, problem: Problem) -> list[Any]:
        """The arguments of each call of a problem's script.  Raises :class:`BrokenTestScript`; decided once."""
        known = self._scripts.get(problem.name)
        if known is None:
            try:
                known = await self._recorded(problem)
            except BrokenTestScript as error:
                known = error
                if problem.hidden:
                    log.warning("%s. Its other tests decide", error)
            self._scripts[problem.name] = known
        if isinstance(known, BrokenTestScript):
            raise known
        return known

    async def _recorded(self, problem: Problem) -> list[Any]:
        recording = _source(problem) + _RECORD.format(function=problem.function)
        record = await self.execution.result(Job(recording, entry=Call("_record")))
        if record.verdict is not Verdict.OK or not isinstance(record.value, list) or not record.value:
            reason = _describe(record, "it calls nothing")
            raise BrokenTestScript(f"{problem.name}: its test script does not run: {reason}")
        own = await self._script(problem, str(problem.reference), record.value)
        if not own.passed:
            raise BrokenTestScript(f"{problem.name}: its reference solution fails its test script")
        return record.value

    async def _script(self, problem: Problem, program: str, calls: list[Any]) -> CheckResult:
        """The result of ``program`` on the script, which makes these ``calls``."""
        results = await self._results([_job(problem, program, *call) for call in calls])
        if any(result.value is NO_VALUE or result.verdict is not Verdict.OK for result in results):
            return CheckResult(any(result.verdict is Verdict.OK for result in results), False, "")
        answers: list[Any] = [result.value for result in results]
        replay = await self.execution.result(Job(_source(problem) + _REPLAY, entry=Call("_replay", [calls, answers])))
        return CheckResult(True, replay.verdict is Verdict.OK and replay.value is True, "")


def _source(problem: Problem) -> str:
    """The script with all that it needs."""
    return f"{problem.setup}\n{problem.reference}\n{problem.script}\n"


def _job_of(problem: Problem, program: str, check: Check) -> Job:
    """``program`` on a test."""
    if problem.function is None:
        return Job(_with_setup(problem.setup, program), stdin=check.input)
    return _job(problem, program, *check.rule.arguments(check.input))


def _job(problem: Problem, program: str, args: list[Any], kwargs: dict[str, Any]) -> Job:
    """A call of the problem's function in ``program``."""
    return Job(_with_setup(problem.setup, program), entry=Call(str(problem.function), args, kwargs))


def _with_setup(setup: str, program: str) -> str:
    """``setup`` before ``program``, but after its imports from ``__future__``, which Python wants first."""
    head = _future_lines(program) if setup and "__future__" in program else 0
    lines = program.split("\n")
    return "\n".join([*lines[:head], *([setup] if setup else []), *lines[head:]])


def _future_lines(program: str) -> int:
    """The number of lines to the end of the imports from ``__future__``; 0 where there are none, or it is no Python."""
    try:
        nodes = parse_python(program).body
    except SyntaxError:
        return 0
    docstring = nodes[:1] if nodes and isinstance(nodes[0], ast.Expr) else []
    first = takewhile(
        lambda node: isinstance(node, ast.ImportFrom) and node.module == "__future__", nodes[len(docstring) :]
    )
    return max((node.end_lineno or 0 for node in first), default=0)


def _judge(problem: Problem, result: Result, check: Check) -> CheckResult:
    ended = result.verdict is Verdict.OK
    if problem.function is None:
        passed = ended and same_text(result.text, check.expected, problem.tolerance)
        return CheckResult(ended, passed, _describe(result, result.text))
    ended = ended and result.value is not NO_VALUE
    expected = check.rule.value(check.expected)
    passed = ended and check.rule.accepts(result.value, expected, problem.tolerance)
    return CheckResult(ended, passed, _describe(result, shown(result.value, check.rule) if ended else ""))


def _describe(result: Result, output: str) -> str:
    """A run in the prompts: its output, or how it ended and the last line of its errors."""
    if result.verdict is Verdict.OK:
        return output[:SHOWN_CHARS] if output else "nothing"
    last = next((line for line in reversed(result.errors.splitlines()) if line.strip()), "")
    return f"{result.verdict}: {last}"[:SHOWN_CHARS]


def same_text(output: str, expected: str, tolerance: float) -> bool:
    """Equal but for blanks within lines, at their ends, and empty lines, and for how numbers are written.

    LiveCodeBench compares lines, and where they differ their numbers, by value (testing_util.py).  Its judge wants all
    digits of a fraction; here ``tolerance`` decides, as in the contests that its problems are from.
    """
    lines, others = normalize(output).split("\n"), normalize(expected).split("\n")
    return len(lines) == len(others) and all(
        line == other or _same_words(line.split(), other.split(), tolerance)
        for line, other in zip(lines, others, strict=True)
    )


def _same_words(words: list[str], others: list[str], tolerance: float) -> bool:
    return len(words) == len(others) and all(
        word == other or same_numbers(word, other, tolerance) for word, other in zip(words, others, strict=True)
    )


def json_value(text: str) -> Any:
    """JSON of a message, as data; :data:`~troupe.sandbox.NO_VALUE` where it is none."""
    return parse_value(text.encode("utf-8", "replace"))


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
