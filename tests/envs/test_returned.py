"""What a world returns is checked where it enters, and the message names the world, its method and the value."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count as numbers
from typing import Any

import numpy as np
import pytest
import torch

from troupe.envs.base import StepResult
from troupe.envs.mixed import Mixed
from troupe.envs.returned import RESERVED, TaskSource, WorldValueError, check_start, checked_prompt, checked_step
from troupe.evaluation.episodes import EpisodeResult
from troupe.experience import Candidate, Completion, Episode, JointAction, Message, Node, Outcome, Split, Task
from troupe.rollout.playing import Answer, Prompt, Step
from troupe.runs.metrics import rollout_metrics

from .test_testing import Duet

TASK = Task("duet-7", "train", {"number": 7})
NAN, INF = float("nan"), float("inf")


class Bad(Duet):
    """A duet that returns something else."""

    def __init__(self, **returns: Any) -> None:
        super().__init__()
        self.returns = returns
        self.reset(TASK)

    def judge(self, fits: Mapping[str, bool]) -> Any:
        result = super().judge(fits)
        if "step" in self.returns:
            return self.returns["step"]
        return replace(result, **{key: value for key, value in self.returns.items() if hasattr(result, key)})

    def next_agents(self) -> Any:
        return self.returns.get("next_agents", super().next_agents())

    def observe(self, agent: str) -> Any:
        return self.returns.get("observe", super().observe(agent))

    def tasks(self, split: Split, count: int, seed: int) -> Any:
        return self.returns["tasks"](split, count) if "tasks" in self.returns else super().tasks(split, count, seed)


def both(reward: Any) -> dict[str, Any]:
    return {"high": 0.0, "low": reward}


async def step(**returns: Any) -> StepResult:
    return await checked_step(Bad(**returns), {"high": "1", "low": "2"})


@pytest.mark.parametrize(
    ("returns", "message"),
    [
        ({"step": None}, "it must return a StepResult, got None"),
        ({"step": (both(0.0), 0.0, True, False)}, "it must return a StepResult"),
        ({"team": NAN}, "the team reward must be a finite number, got nan"),
        ({"team": None}, "the team reward must be a finite number, got None"),
        ({"team": "1.0"}, "the team reward must be a finite number, got '1.0'"),
        ({"team": {"high": 1.0}}, "the team reward must be a finite number, got {'high': 1.0}"),
        ({"team": torch.zeros(2)}, r"the team reward must be a finite number, got tensor\(\[0., 0.\]\)"),
        ({"team": torch.tensor(NAN)}, r"the team reward must be a finite number, got tensor\(nan\)"),
        ({"team": 10**400}, "the team reward must be a finite number, got 1000"),
        ({"team": 1j}, "the team reward must be a finite number, got 1j"),
        ({"team": np.complex64(1 + 5j)}, "the team reward must be a finite number, got np.complex64"),
        ({"local": both(-INF)}, "the local reward of low must be a finite number, got -inf"),
        ({"local": both(None)}, "the local reward of low must be a finite number, got None"),
        ({"local": {"high": 1.0}}, "local must hold the rewards of the agents that acted, got {'high': 1.0}"),
        ({"local": {**both(0.0), "tenor": 1.0}}, "local must hold the rewards of the agents that acted, .*'tenor'"),
        ({"local": [0.0, 0.0]}, r"local must hold a reward by agent, got \[0.0, 0.0\]"),
        ({"done": None}, "done must be True or False, got None"),
        ({"done": np.zeros(2, bool)}, "done must be True or False, got array"),
        ({"done": 0}, "done must be True or False, got 0"),
        ({"done": True}, r"done is True, but next_agents gives \('high', 'low'\)"),
        ({"success": None}, "success must be True or False, got None"),
        ({"success": 0.5}, "success must be True or False, got 0.5"),
        ({"info": {"reward": 5.0}}, "info: reward is a number of Troupe's; give yours another name"),
        ({"info": {"said": 5.0}}, "info: said is a number of Troupe's"),
        ({"info": {"steps": NAN}}, "info: steps must be a finite number, got nan"),
        ({"info": {"steps": {1, 2}}}, "info: steps must be a finite number, got {1, 2}"),
        ({"info": {"steps": np.zeros(2)}}, "info: steps must be a finite number, got array"),
        ({"info": {("a", 1): 1.0}}, "info must hold numbers by name, got {"),
        ({"info": None}, "info must hold numbers by name, got None"),
        ({"next_agents": "high"}, "next_agents must be a tuple of different agents of high, low, got 'high'"),
        ({"next_agents": ("tenor",)}, r"next_agents must be .*, got \('tenor',\)"),
        ({"next_agents": None}, "next_agents must be .*, got None"),
        ({"next_agents": (["high"],)}, r"next_agents must be .*, got \(\['high'\],\)"),
    ],
)
async def test_what_a_step_must_not_return(returns: dict[str, Any], message: str) -> None:
    with pytest.raises(WorldValueError, match=f"^Bad.step, agents high and low, turn 0: {message}"):
        await step(**returns)


class Endless(Bad):
    """Its turns go on by ``pace``."""

    pace: Any = 1

    def judge(self, fits: Mapping[str, bool]) -> StepResult:
        self.turn += self.pace
        return StepResult(dict(fits), 0.0, False, False)


async def test_turns_are_whole_and_end_at_the_horizon() -> None:
    world, texts = Endless(), {"high": "1", "low": "2"}
    await checked_step(world, texts)
    await checked_step(world, texts)
    with pytest.raises(WorldValueError, match=r"turn 2: the episode goes on at its horizon 3, in turn 3$"):
        await checked_step(world, texts)
    world = Endless()
    world.pace = 0.5
    with pytest.raises(WorldValueError, match=r"turn 0: one step takes turn 0 to 0.5$"):
        await checked_step(world, texts)


async def test_an_error_of_the_worlds_own_code_stays_what_it_is() -> None:
    class Mistaken(Bad):
        def next_agents(self) -> Any:
            return {[]} if self.turn else super().next_agents()  # type: ignore[unhashable]

    with pytest.raises(TypeError, match="unhashable"):
        await checked_step(Mistaken(), {"high": "1", "low": "2"})


async def test_numbers_of_any_type_become_floats() -> None:
    """So that files hold JSON, and averages are what they seem."""
    result = await step(
        team=np.float32(0.5),
        local={"high": torch.tensor(1), "low": True},
        success=np.bool_(True),
        info={"steps": np.int64(3), "share": torch.tensor(0.25)},
    )
    assert result == StepResult({"high": 1.0, "low": 1.0}, 0.5, False, True, {"steps": 3.0, "share": 0.25})
    every = [result.team, *result.local.values(), *result.info.values()]
    assert {type(number) for number in every} == {float} and result.success is True
    assert json.loads(json.dumps(result.info, allow_nan=False)) == result.info


@pytest.mark.parametrize(
    "prompt",
    [None, "say it", [], [None], ["say it"], [{"role": "user"}], [{"role": "user", "content": None}], {"role": "user"}],
)
def test_what_is_no_prompt(prompt: Any) -> None:
    with pytest.raises(WorldValueError, match=r"^Bad.observe, agent low, turn 0: it must return chat messages"):
        checked_prompt(Bad(observe=prompt), "low")


def test_prompts_are_in_whole_characters() -> None:
    """Half of a surrogate pair is in no vocabulary and in no file; two halves are one character."""
    prompt = [{"role": "user", "content": "a\ud83d b\ud83d\ude00 \udc00é", "name": "x"}]
    assert checked_prompt(Bad(observe=prompt), "low") == [{**prompt[0], "content": "a\ufffd b😀 \ufffdé"}]
    whole: list[Message] = [{"role": "user", "content": "plain"}]
    assert checked_prompt(Bad(observe=whole), "low") is whole


@pytest.mark.parametrize("acting", [(), ("tenor",), None])
def test_somebody_of_the_team_acts_first(acting: Any) -> None:
    check_start(Bad())
    with pytest.raises(WorldValueError, match=r"^Bad.reset: "):
        check_start(Bad(next_agents=acting))


def tasks_of(split: Split, count: int, first: int = 0) -> list[Task]:
    return [Task(f"{split}-{i}", split, {"number": i, "split": split}) for i in range(first, first + count)]


def endless(split: Split, count: int) -> Iterator[Task]:
    return (Task(f"{split}-{i}", split, {"number": i}) for i in numbers())


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        (lambda split, count: None, "it must return a list of tasks, got None"),
        (lambda split, count: [], "it must return 3 tasks, got 0"),
        (lambda split, count: tasks_of(split, 2), "it must return 3 tasks, got 2"),
        (endless, "it must return 3 tasks, got 'more'"),
        (lambda split, count: ["a", "b", "c"], "it must return tasks, got 'a'"),
        (lambda split, count: tasks_of("test", count), "task test-0 must be of split train, got 'test'"),
        (lambda split, count: tasks_of(split, 1) * count, "two tasks have the task_id 'train-0'"),
        (lambda split, count: [Task("\ud83d", split, {})] * count, r"a task_id must be a text, got '\\ud83d'"),
        (lambda split, count: [Task(3, split, {})] * count, "a task_id must be a text, got 3"),  # type: ignore[arg-type]
        (lambda split, count: [Task("a", split, None)] * count, "the data of task a must be a mapping, got None"),  # type: ignore[arg-type]
    ],
)
def test_what_tasks_must_not_return(tasks: Callable[[Split, int], Any], message: str) -> None:
    with pytest.raises(WorldValueError, match=rf"^Bad.tasks\('train', 3, 0\): {message}"):
        TaskSource(Bad(tasks=tasks)).tasks("train", 3, 0)


def test_a_generator_of_the_right_length_is_a_list() -> None:
    world = Bad(tasks=lambda split, count: iter(tasks_of(split, count)))
    assert TaskSource(world).tasks("test", 2, 0) == tasks_of("test", 2)


def test_no_task_is_in_two_splits_by_its_id_or_by_its_data() -> None:
    same = TaskSource(Bad(tasks=lambda split, count: [Task("a", split, {"split": split})]))
    assert same.tasks("train", 1, 0) == same.tasks("train", 1, 0)
    with pytest.raises(WorldValueError, match=r"^Bad.tasks\('test', 1, 0\): task a is in two splits, train and test;"):
        same.tasks("test", 1, 0)
    renamed = TaskSource(Bad(tasks=lambda split, count: [Task(f"{split}-a", split, {"number": 7})]))
    renamed.tasks("validation", 1, 0)
    with pytest.raises(
        WorldValueError, match="task train-a with the data of validation-a is in two splits, validation"
    ):
        renamed.tasks("train", 1, 0)
    unwritable = Bad(tasks=lambda split, count: [Task(f"{split}-a", split, {"rule": lambda: 0})])
    source = TaskSource(unwritable)
    assert [source.tasks(split, 1, 0)[0].task_id for split in ("train", "test")] == ["train-a", "test-a"]  # type: ignore[arg-type]


def test_equal_data_are_equal_in_any_order_and_however_they_are_kept() -> None:
    word = "".join(["a", "b"])
    first = {"number": 7, "words": [word, word], "of": {"x": frozenset("pq"), "y": 1}}
    other = {"of": {"y": 1, "x": frozenset("qp")}, "words": ["ab", "".join(["a", "b"])], "number": 7}
    source = TaskSource(Bad(tasks=lambda split, count: [Task(split, split, first if split == "train" else other)]))
    source.tasks("train", 1, 0)
    with pytest.raises(WorldValueError, match="task test with the data of train is in two splits"):
        source.tasks("test", 1, 0)


class OneBoard(Bad):
    """Whose tasks have no data."""

    def reset(self, task: Task) -> None:
        super().reset(TASK)


class DrawsById(OneBoard):
    """Its instances come from the tasks' ids."""

    def reset(self, task: Task) -> None:
        super().reset(task)
        self.returns = {**self.returns, "observe": [{"role": "user", "content": f"board {task.task_id}"}]}


@pytest.mark.parametrize(("world", "data"), [(OneBoard, {}), (DrawsById, {"size": 6})])
def test_tasks_that_their_ids_tell_apart(world: type[Bad], data: dict[str, int]) -> None:
    source = TaskSource(world(tasks=lambda split, count: [Task(f"{split}-a", split, data)]))
    assert source.tasks("test", 1, 0) != source.tasks("train", 1, 0)


async def test_names_of_numbers_that_troupe_has_itself_are_reserved() -> None:
    completion = Completion((1,), (-0.5,), "x", "stop", "p", 0)
    episode = Episode(
        Task("t", "train", {}),
        [Node("t", "low", 0, (1,), [Candidate(completion, 0, 0, 0)])],
        [JointAction({"low": (0, 0)}, outcome=Outcome(False, 1, 0.0))],
    )
    row = rollout_metrics([episode], 1.0)
    own = {key.removeprefix("rollout/low/") for key in row if key.startswith("rollout/low/")}
    result = EpisodeResult("t", False, 0)
    result.add(await Step.take(Bad(info={}), {agent: Answer.of(Prompt(), completion) for agent in ("high", "low")}))
    assert own | result.messages[0].keys() == RESERVED


def test_the_worlds_of_a_mixture_are_checked_too() -> None:
    same = Bad(tasks=lambda split, count: [Task(f"{split}-{i}", split, {"number": i}) for i in range(count)])
    source = TaskSource(Mixed(worlds={"a": same, "b": Duet()}))
    source.tasks("train", 4, 0)
    with pytest.raises(
        WorldValueError, match=r"^Bad.tasks\('test', 2, 0\): task test-0 with the data of train-0 is in two"
    ):
        source.tasks("test", 4, 0)
