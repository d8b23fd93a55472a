"""Tasks of reasoning-gym (https://github.com/open-thought/reasoning-gym), its generators and its scorers, in the
workflow of mathematics: a tool agent writes a program, a reasoner answers; or one agent alone.

An answer is right where the generator's own scorer gives it 1; less counts as wrong.  Scorers read what a model wrote,
some of them as Python's or sympy's expressions, so that they run in the sandbox, one process an answer, and make the
task again there from its seed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from random import Random
from typing import Any, Final

from ..errors import AbsentError, check_whole, nearest
from ..experience import Message, Task
from ..sandbox import Call, Job, Verdict
from .base import Skill
from .datasets.splits import ItemSource
from .datasets.table import DataError
from .math.questions import MathQuestions
from .math.sources import Question
from .math.world import SOLO, TOOL

IMPORTS: Final = ("reasoning_gym",)
SCORER: Final = """
import json
from reasoning_gym import create_dataset

def score(generator, settings, seed, answer):
    tasks = create_dataset(generator, size=1, seed=seed, **json.loads(settings))
    return float(tasks.score_answer(answer, tasks[0]))
"""
MOST: Final = 1 << 30
"""The seeds of a split, at most."""
SPLIT_SEEDS: Final = {"train": 0, "validation": MOST, "test": 2 * MOST}
"""The first seed of each split's tasks."""
EXAMPLE_SEED: Final = 3 * MOST
"""The first seed of worked examples."""


@dataclass(frozen=True)
class Puzzle(Question):
    """A task of ``generator`` with ``settings`` (JSON), made from ``seed``."""

    generator: str = ""
    settings: str = "{}"
    seed: int = 0

    @property
    def task_data(self) -> Mapping[str, Any]:
        return {**super().task_data, "puzzle": (self.generator, self.settings, self.seed)}

    def contradicts(self, other: Question) -> bool:
        return False  # a question may have several right answers


class Generator(ItemSource[Question]):
    """``count`` tasks of the generator ``name``, made with ``settings`` from the seeds that begin with the ``split``'s,
    so that no two splits have a task of one seed.  Equal tasks of other seeds are in one split only, as of any data.

    Raises :class:`.datasets.table.DataError` naming the generator, :class:`~troupe.errors.AbsentError` without the
    package.
    """

    def __init__(self, name: str, split: str, count: int, settings: Mapping[str, Any] | None = None) -> None:
        if str(split) not in SPLIT_SEEDS:
            raise ValueError(f"split={split} is unknown{nearest(str(split), list(SPLIT_SEEDS))}")
        check_whole("count", count, 1)
        if count > MOST:
            raise ValueError(f"count={count}: a split has {MOST} seeds")
        if not isinstance(settings, Mapping | None):
            raise ValueError(f"settings must hold keys of the generator {name}, got {settings!r}")
        self.name, self.count, self.first, self.settings = str(name), count, SPLIT_SEEDS[split], dict(settings or {})

    def items(self, counts: Counter[str]) -> Iterator[Question]:
        try:
            from reasoning_gym import create_dataset
            from reasoning_gym.factory import DATASETS
        except ImportError as error:
            raise AbsentError("env=reasoning_gym needs pip install 'troupe-rl[math,reasoning-gym]'") from error
        if self.name not in DATASETS:
            raise DataError(f"reasoning-gym has no generator '{self.name}'{nearest(self.name, sorted(DATASETS))}")
        settings = json.dumps(self.settings)
        for seed in range(self.first, self.first + self.count):
            try:
                task = create_dataset(self.name, size=1, seed=seed, **self.settings)[0]
            except (AssertionError, TypeError, ValueError) as error:
                raise DataError(f"reasoning-gym's {self.name} refuses {settings}: {error}") from error
            question, answer = task["question"].strip(), task["answer"]
            if not isinstance(answer, str) or not answer.strip():
                counts["without_answer"] += 1  # what its scorer wants stands elsewhere
                continue
            yield Puzzle(question, answer.strip(), generator=self.name, settings=settings, seed=seed)


class ReasoningGym(MathQuestions):
    """``train``, ``validation`` and ``test`` are :class:`Generator`; all else is that of :class:`.math.questions.
    MathQuestions`.  ``sandbox`` must have :data:`IMPORTS` among its imports, beside those that read answers.

    ``examples``: so many other tasks of the same generator, with their answers, come before each task as a
    conversation; for one agent alone, as a pair's tool agent would need a program for each.
    """

    name = "reasoning_gym"

    def __init__(self, *, examples: int = 0, **settings: Any) -> None:
        super().__init__(**settings)
        check_whole("env.examples", examples, 0)
        if examples and self.agents != (SOLO,):
            raise ValueError("env.examples: worked examples have answers and no programs; give env.team=solo")
        self.examples = examples
        self._puzzle: tuple[str, str, int] = ("", "{}", 0)

    def reset(self, task: Task) -> None:
        super().reset(task)
        self._puzzle = task.data["puzzle"]

    async def open(self) -> Mapping[str, bool | int | str]:
        counts = await super().open()
        made = {item.generator: item for item in self.splits.items["test"].values() if isinstance(item, Puzzle)}
        for puzzle in made.values():
            if not await self._is_scored(puzzle.task_data["puzzle"], puzzle.answer):
                raise ValueError(
                    f"env.test: reasoning-gym's {puzzle.generator} does not give 1 to its own answer "
                    f"{puzzle.answer[:60]!r}; see env.sandbox.imports"
                )
        return counts

    def _prompt(self, agent: str) -> list[Message]:
        system, user = super()._prompt(agent)
        messages = [system]
        for question, answer in self._worked():
            asked = user["content"].replace(self._question, question, 1)
            messages += [{"role": "user", "content": asked}, {"role": "assistant", "content": f"\\boxed{{{answer}}}"}]
        return [*messages, user]

    def _worked(self) -> list[tuple[str, str]]:
        """The worked examples: other tasks than this one."""
        generator, settings, _ = self._puzzle
        others = (each for each in _examples(generator, settings, self.examples + 1) if each[0] != self._question)
        return list(islice(others, self.examples))

    def demonstration(self, agent: str, rng: Random, *, skill: Skill = "expert") -> str:
        """Right; a novice's answer is that of another task, and a flawed one is one too large or lacks its first
        character.
        """
        answer = self._gold
        if skill == "novice":
            answer = rng.choice(_examples(*self._puzzle[:2], 50))[1]
        elif skill == "flawed":
            answer = str(int(answer) + 1) if answer.isdecimal() else answer[1:]
        return f"```python\nprint({answer!r})\n```" if agent == TOOL else f"\\boxed{{{answer}}}"

    async def equal(self, answer: str, expected: str) -> bool:
        if answer.split() == expected.split():
            return True
        return expected == self._gold and await self._is_scored(self._puzzle, answer)

    async def prints_it(self, output: str) -> bool:
        return await self.equal(output, self._gold)

    async def _is_scored(self, puzzle: tuple[str, str, int], answer: str) -> bool:
        """Whether the scorer gives 1 to ``answer``; where it fails on it, that is the answer's fault.

        Raises :class:`~troupe.envs.base.WorldFailure` where the sandbox failed.
        """
        result = await self.answers.execution.result(Job(SCORER, entry=Call("score", [*puzzle, answer])))
        return result.verdict is Verdict.OK and result.value == 1.0


@cache
def _examples(generator: str, settings: str, count: int) -> list[tuple[str, str]]:
    """``count`` different questions with answers, where the generator has so many."""
    from reasoning_gym import create_dataset

    tasks = create_dataset(generator, size=10 * count, seed=EXAMPLE_SEED, **json.loads(settings))
    texts = {task["question"].strip(): task["answer"] for task in tasks if isinstance(task["answer"], str)}
    return list(islice(texts.items(), count))
