"""Code collaboration at laptop scale: functions of one variable and three steps, words separated by blanks.

A task names three steps ("+= 3 *= 4 -= 2"), and main must compute them.  What aux computes is for the two to
agree on: the first step, the first two, or the last.  Their messages are Python on one line, such as

    aux:   def aux ( x ) : x += 3 ; x *= 4 ; return x
    main:  def main ( x ) : x = aux ( x ) ; x -= 2 ; return x

Each knows the task and can write every part of it; where they do not agree, the program is wrong.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from random import Random
from typing import Any, Final

from ...experience import Message, Split, Task
from ...sandbox import Call, Job, JsonValue, Limits, Sandbox, Verdict, equal_values
from ..base import Skill
from ..code.problem import CheckResult
from ..execution import Executor
from ..splits import content_digest, split_of
from ..task_sampling import sample_tasks
from ..turns import chat
from .feedback import Report, UsageRule
from .world import SOLO, CollabWorld, TurnReward

MARK: Final = "|"
"""Between the functions of one agent alone."""
STEPS = 3
INPUTS: Final = (11, 14, 19, 26, 37)
"""Of the tests: too large for a wrong step to give the right value."""
OPERATORS: Final = ("+=", "-=", "*=")
CONSTANTS: Final = tuple(map(str, range(2, 10)))
MAX_WORDS = 64
LIMITS = Limits(cpu_s=1.0, idle_s=1.0)
MODES: Final = ("plain", "passed", "level_passed", "expert")

Step = tuple[str, str]
"""An operator and a constant."""

APPLY: Final = f"""
def apply(texts):
    return [values(text) for text in texts]

def values(text):
    names, found = {{}}, []
    exec(compile(text, "program", "exec"), names)
    for x in {INPUTS}:
        try:
            value = names["main"](x)
            found.append(value if type(value) is int else None)
        except Exception:
            found.append(None)
    return found
"""
"""Computes the values of programs, in a process of their own; the expected values are not there."""

_PROGRAM_WORDS: Final = ("def", "aux", "main", "(", ")", "x", ":", "=", ";", "return", *OPERATORS, *CONSTANTS)
_LEXICON: Final = frozenset(_PROGRAM_WORDS)


class MicroCollab(CollabWorld):
    """Three steps of one variable.  The settings are those of :class:`.world.CollabWorld`."""

    entry = "main"

    def __init__(
        self,
        sandbox: Sandbox,
        *,
        turn_reward: TurnReward = "gain",
        usage: UsageRule = "dataflow",
        useful_aux: bool = True,
        feedback_tests: int = 0,
        **common: Any,
    ) -> None:
        own: dict[str, Any] = {"useful_aux": useful_aux, "feedback_tests": feedback_tests}
        super().__init__(Executor(sandbox, LIMITS), turn_reward=turn_reward, usage=usage, **own, **common)
        if self.feedback not in MODES:
            raise ValueError(
                f"env.feedback={self.feedback} is for published problems; functions of three steps, the variant at "
                f"laptop scale, have {', '.join(MODES)}"
            )
        self._steps: tuple[Step, ...] = ()

    # ---- tasks ----------------------------------------------------------------------------------------------------

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        return sample_tasks(self.name, split, count, seed, _draw, max_rejections=2000)

    def reset(self, task: Task) -> None:
        self._begin()
        self._steps = task.data["steps"]

    # ---- prompts --------------------------------------------------------------------------------------------------

    def _prompt(self, agent: str) -> list[Message]:
        words = ["task", *(word for step in self._steps for word in step), *self._own(agent)]
        partners = self._partners(agent)
        if partners is not None:
            words += ["main" if agent == "aux" else "aux", partners or "malformed"]
        return chat(f"{agent} {self.name}", " ".join(words))

    def _own(self, agent: str) -> list[str]:
        """What ``agent`` wrote in the turn before, and the feedback on it."""
        report = self._report
        if report is None:  # nothing was judged yet
            draft = self._shown.get(agent)
            return ["mine", "none" if draft is None else draft or "malformed"]
        sources = {"aux": [report.aux], "main": [report.main]}.get(agent, [report.aux, report.main])
        words = ["mine", f" {MARK} ".join(source or "malformed" for source in sources)]
        passed = sum(result.passed for _, result in report.shown(self.feedback_tests))
        tests = "none" if not passed else "all" if passed == len(report.shown(self.feedback_tests)) else "some"
        if self.feedback == "passed":
            words += ["passed", "all" if tests == "all" else "none"]
        elif self.feedback == "level_passed":
            words += ["syntax", "all" if report.score.syntax else "none", "passed", tests]
            words += ["used", "all" if report.usage.called and not report.usage.unread else "none"]
        elif self.feedback == "expert":
            edits = {"aux": self._edits[:1], "main": self._edits[1:]}.get(agent, self._edits)
            words += [word for edit in edits for word in (MARK, edit)]
        return words

    async def _propose(self, report: Report) -> tuple[str, str]:
        """Both functions of a right program."""
        return _reviewed(report.aux, self._steps) if self.feedback == "expert" else ("", "")

    def _parts(self, actions: Mapping[str, str]) -> tuple[str, str]:
        if SOLO not in actions:
            return _readable(actions["aux"]), _readable(actions["main"])
        parts = actions[SOLO].split(MARK)
        return (_readable(parts[0]), _readable(parts[1])) if len(parts) == 2 else ("", "")

    # ---- programs -------------------------------------------------------------------------------------------------

    async def _run(self, programs: Sequence[str]) -> Sequence[tuple[CheckResult, ...]]:
        result = await self.execution.result(Job(APPLY, entry=Call("apply", [[*programs]])))
        tables = result.value if result.verdict is Verdict.OK else None
        if not isinstance(tables, list) or len(tables) != len(programs):
            tables = [None] * len(programs)
        return [self._compare(table) for table in tables]

    def _compare(self, values: JsonValue) -> tuple[CheckResult, ...]:
        """``values`` is anything that the programs' process wrote."""
        if not isinstance(values, list) or len(values) != len(INPUTS):
            values = [None] * len(INPUTS)
        goal = [compute(self._steps, x) for x in INPUTS]
        return tuple(
            CheckResult(value is not None, equal_values(value, expected), str(value)[:20])
            for value, expected in zip(values, goal, strict=True)
        )

    def _statement(self) -> str:
        return " ; ".join(f"x {operator} {constant}" for operator, constant in self._steps)

    def _tests(self) -> tuple[str, ...]:
        return tuple(f"main({x}) is {compute(self._steps, x)}" for x in INPUTS)

    def _arguments(self, test: int) -> list[JsonValue] | None:
        return [INPUTS[test]]

    def _problem_key(self) -> Hashable:
        return self._steps

    # ---- demonstrations -------------------------------------------------------------------------------------------

    def demonstration(self, agent: str, rng: Random, *, skill: Skill = "expert") -> str:
        """Experts leave the first two steps to aux.  Novices share the steps in any way, and each decides alone: what
        aux does most often, the first step, is not what main most often expects, the first two; main may also do all of
        them itself, or none.  Flawed ones take any steps.
        """
        if agent == SOLO:
            return f" {MARK} ".join(self.demonstration(each, rng, skill=skill) for each in ("aux", "main"))
        if skill == "expert":
            choice = 0
        elif skill == "flawed":
            wrong = [(rng.choice(OPERATORS), rng.choice(CONSTANTS)) for _ in range(rng.randint(1, 2))]
            return _function(agent, wrong)
        else:
            weights = (0.27, 0.47, 0.16, 0.1) if agent == "aux" else (0.38, 0.32, 0.15, 0.05, 0.1)
            (choice,) = rng.choices(range(len(weights)), weights)
        steps = self._steps
        if agent == "aux":
            return _function("aux", (steps[:2], steps[:1], steps[2:], steps)[choice])
        before, after, calls = (
            ((), steps[2:], True),
            ((), steps[1:], True),
            (steps[:2], (), True),
            (steps, (), False),
            ((), (), True),
        )[choice]
        return _function("main", before, after, calls=calls)


def compute(steps: Sequence[Step], x: int) -> int:
    """The value of the steps on ``x``."""
    for operator, constant in steps:
        number = int(constant)
        x = x + number if operator == "+=" else x - number if operator == "-=" else x * number
    return x


def vocabulary() -> list[str]:
    """Every word of observations and messages."""
    words = "code_collab solo task mine none malformed passed all some syntax used".split()
    return [*words, MARK, *_PROGRAM_WORDS]


def _draw(rng: Random) -> Task | None:
    """Its id is a digest of its words; its split is decided by the function that it computes."""
    steps = tuple((rng.choice(OPERATORS), rng.choice(CONSTANTS)) for _ in range(STEPS))
    tables = [[compute(steps[:count], x) for x in INPUTS] for count in range(STEPS + 1)]
    if any(tables.count(table) > 1 for table in tables):
        return None  # a step undoes others
    digest = content_digest(repr(tables[-1]))
    name = content_digest(" ".join(word for step in steps for word in step))
    return Task(f"{MicroCollab.name}-{name}", split_of(digest), {"steps": steps})


def _reviewed(aux: str, steps: Sequence[Step]) -> tuple[str, str]:
    """The functions of a right program of these steps: an aux that is written as the first step, the first two or the
    last stays, any other becomes the first two; main does the rest."""
    parts = (((), steps[:2], steps[2:]), ((), steps[:1], steps[1:]), (steps[:2], steps[2:], ()))
    before, part, after = next((each for each in parts if _function("aux", each[1]) == aux), parts[0])
    return _function("aux", part), _function("main", before, after, calls=True)


def _readable(text: str) -> str:
    """A message of the lexicon's words alone, else nothing."""
    words = text.split()
    return " ".join(words) if len(words) <= MAX_WORDS and set(words) <= _LEXICON else ""


def _function(name: str, before: Sequence[Step], after: Sequence[Step] = (), *, calls: bool = False) -> str:
    lines = [f"x {operator} {constant}" for operator, constant in before]
    lines += ["x = aux ( x )"] if calls else []
    lines += [f"x {operator} {constant}" for operator, constant in after]
    return f"def {name} ( x ) : {' ; '.join([*lines, 'return x'])}"
