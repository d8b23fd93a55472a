"""A reader or judge that raises on a text of a model: an outcome, and a count."""

import logging

import pytest

from troupe.envs.couplet.world import Couplet
from troupe.envs.grid.plan_path import PlanPath
from troupe.envs.judging import METRIC, guarded, judging
from troupe.envs.math import answers
from troupe.envs.math.arithmetic import Arithmetic
from troupe.envs.math.questions import MathQuestions
from troupe.experience import Task
from troupe.sandbox import LocalSandbox

from .math.conftest import Fixed

QUESTION = Task("question", "test", {"question": "How many?", "answer": r"\frac{1}{2}", "several": False})


def test_what_a_judge_raises_is_the_outcome_and_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    with judging() as errors:
        assert guarded(-1, int, "7") == 7 and errors.count == 0
        assert guarded(-1, int, "seven") == -1 and errors.count == 1
    assert "int raised ValueError" in caplog.text and "counts as -1" in caplog.text


def test_nothing_is_caught_where_nothing_counts() -> None:
    with pytest.raises(ValueError, match="seven"):
        guarded(-1, int, "seven")


async def test_a_broken_reader_makes_the_message_malformed(
    programs: LocalSandbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*arguments: object, **named: object) -> None:
        raise LookupError("a mistake")

    caplog.set_level(logging.ERROR, "troupe.envs.judging")
    monkeypatch.setattr("troupe.envs.couplet.world.read_line", broken)
    monkeypatch.setattr("troupe.envs.grid.walks.parse_plan", broken)
    monkeypatch.setattr(Arithmetic, "_program", broken)
    for world, malformed in ((Couplet(), "empty_or_malformed"), (PlanPath(), "malformed")):
        world.reset(world.tasks("train", 1, 0)[0])
        agents = world.next_agents()
        result = await world.step(dict.fromkeys(agents, "U"))
        assert (result.info[malformed], result.info[METRIC], result.team) == (1, len(agents), 0)
    story = Arithmetic(sandbox=programs)
    story.reset(story.tasks("train", 1, 0)[0])
    result = await story.step({"tool": "1 + 1"})
    assert (result.info["malformed"], result.info[METRIC], result.local["tool"]) == (1, 1, 0)


async def test_a_broken_comparison_is_not_equal(reading: LocalSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> bool:
        raise TypeError("a mistake")

    monkeypatch.setattr(answers, "equal", broken)
    world = MathQuestions(sandbox=reading, train=[Fixed()], test=[Fixed()], stop="answer", horizon=1)
    world.reset(QUESTION)
    await world.step({"tool": ""})
    result = await world.step({"reasoner": r"\boxed{0.5}"})
    assert (result.team, result.success, result.info["right"], result.info[METRIC]) == (0, False, 0, 1)


@pytest.mark.parametrize("answer", [r"\lfloor i^2\rfloor = 1", r"1=\max(i^2,3)"])
async def test_a_complex_number_in_an_answer_ends_no_run(reading: LocalSandbox, answer: str) -> None:
    world = MathQuestions(sandbox=reading, train=[Fixed()], test=[Fixed()], stop="answer", horizon=1)
    world.reset(QUESTION)
    printed = await world.step({"tool": f"```python\nprint({answer!r})\n```"})
    boxed = await world.step({"reasoner": rf"\boxed{{{answer}}}"})
    assert (printed.team, boxed.team, printed.info[METRIC], boxed.info[METRIC]) == (0, 0, 0, 0)
