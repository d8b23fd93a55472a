"""What an iteration collects: tasks that teach nothing are replaced, and what is not finite stops the run."""

import asyncio
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from omegaconf import DictConfig

from troupe.algorithms.credit.checks import CreditError
from troupe.algorithms.credit.dapo import DynamicSampling
from troupe.cli import train
from troupe.envs.base import SandboxFailure, StepResult, TeamEnv, WorldFailure
from troupe.envs.grid.sokoban import Sokoban
from troupe.errors import LostEpisodesError
from troupe.experience import Candidate, Episode, Task
from troupe.loop import TrainLoop
from troupe.rollout.engines.requests import derive
from troupe.rollout.playing import complete_tasks
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.samplers.sampler import OnEpisode
from troupe.rollout.samplers.tree import TreeSampler
from troupe.runs.faults import WINDOW
from troupe.runs.metrics import prefixed
from troupe.sandbox import SandboxUnavailable

SMALL = [
    "experiment=sokoban_specialized",
    "loop.iterations=1",
    "loop.tasks_per_iteration=3",
    "loop.validation_tasks=3",
    "loop.test_tasks=1",
    "env.horizon=2",
    "algorithm.sampler.k=4",
]
Build = Callable[..., TrainLoop]


@pytest.fixture
def build(composed: Callable[..., DictConfig], tmp_path: Path) -> Build:
    """``build("key=value", ...)``: a small run, not begun."""
    return lambda *overrides: train.build(composed(*SMALL, f"run_dir={tmp_path / 'run'}", *overrides))


class Recorder:
    """A sampler that remembers the tasks and the episodes of each call."""

    def __init__(self, sampler: TreeSampler) -> None:
        self.sampler = sampler
        self.tasks: list[list[Task]] = []
        self.found: list[list[Episode]] = []

    async def collect(
        self, world: TeamEnv, tasks: list[Task], clients: dict[str, PolicyClient], seed: int, on_episode: OnEpisode
    ) -> list[list[Episode]]:
        self.tasks.append(tasks)
        found = await self.sampler.collect(world, tasks, clients, seed, on_episode)
        self.found.append([episode for episodes in found for episode in episodes])
        return found


class Poisoned(Recorder):
    """A sampler whose last candidate has what no world or engine may give."""

    spoil: Callable[[Candidate], None]

    async def collect(
        self, world: TeamEnv, tasks: list[Task], clients: dict[str, PolicyClient], seed: int, on_episode: OnEpisode
    ) -> list[list[Episode]]:
        found = await super().collect(world, tasks, clients, seed, on_episode)
        self.spoil(found[-1][-1].nodes[-1].candidates[-1])
        return found


def nan_reward(candidate: Candidate) -> None:
    candidate.reward = math.nan


def infinite_logprob(candidate: Candidate) -> None:
    said = candidate.completion
    candidate.completion = replace(said, logprobs=(-math.inf, *said.logprobs[1:]))


@pytest.mark.parametrize("spoil", [nan_reward, infinite_logprob])
def test_what_is_not_finite_stops_the_run_before_a_step(build: Build, spoil: Callable[[Candidate], None]) -> None:
    loop = build()
    loop.sampler = Poisoned(loop.sampler)
    loop.sampler.spoil = spoil
    before = [p.clone() for policy in loop.team.policies.values() for p in policy.pool.module.parameters()]
    with pytest.raises(CreditError) as error:
        train.train(loop)
    assert f"episode {loop.sampler.found[0][-1].name}: candidate 3 of agent" in str(error.value)
    after = [p for policy in loop.team.policies.values() for p in policy.pool.module.parameters()]
    assert all(torch.equal(*pair) for pair in zip(before, after, strict=True))
    assert all(policy.version == 0 for policy in loop.team.policies.values())


@pytest.fixture
def sparse(build: Build) -> Callable[..., Recorder]:
    """One iteration of DAPO with outcomes alone, 3 tasks a round: many groups have nothing to teach."""

    def collected(*overrides: str, completions: int = 0) -> Recorder:
        loop = build("algorithm=dapo", "algorithm.sampler.local=false", "algorithm.sampler.overlong=0", *overrides)
        loop.sampler = Recorder(loop.sampler)
        loop.progress.completions, loop.progress.task_cost = completions, 8.0

        async def once() -> None:
            await loop.collect()
            for engine in loop.team.engines.values():
                await engine.close()

        asyncio.run(once())
        return loop.sampler

    return collected


def test_tasks_that_teach_nothing_are_replaced(sparse: Callable[..., Recorder]) -> None:
    recorder = sparse("algorithm.sampler.resample=3")
    assert 2 <= len(recorder.tasks) <= 4
    credit, episodes = DynamicSampling(), []
    for tasks, found in zip(recorder.tasks, recorder.found, strict=True):
        assert not {task.task_id for task in tasks} & {episode.task.task_id for episode in episodes}
        assert len(tasks) == 3 - len(credit.live(episodes))
        episodes += found
    assert len(credit.live(episodes)) == 3 or len(recorder.tasks) == 4


def test_replacements_end_with_the_budget(sparse: Callable[..., Recorder]) -> None:
    # 8 completions a task, 28 left: 3.5 tasks, rounded to the even 4; 3 are played, so 1 more.
    recorder = sparse("algorithm.sampler.resample=3", "loop.completions=128", completions=100)
    assert [len(tasks) for tasks in recorder.tasks] == [3, 1]


def test_nothing_is_replaced_unless_asked_for(sparse: Callable[..., Recorder]) -> None:
    assert len(sparse("algorithm.sampler.resample=0").tasks) == 1


def test_dense_rewards_do_not_make_a_task_worth_keeping(build: Build) -> None:
    """DAPO as it ships, local rewards included: each task that is not replaced is solved by some and not by all."""
    loop = build("algorithm=dapo", "algorithm.sampler.resample=1")
    loop.sampler = Recorder(loop.sampler)

    async def once() -> list[Episode]:
        episodes = await loop.collect()
        for engine in loop.team.engines.values():
            await engine.close()
        return episodes

    episodes = asyncio.run(once())
    solved: dict[str, set[bool]] = {}
    for episode in loop.sampler.found[0]:
        solved.setdefault(episode.task.task_id, set()).add(episode.outcomes[0].success)
    contested = sum(len(results) == 2 for results in solved.values())
    assert contested < 3  # else this test shows nothing
    assert len(loop.sampler.tasks[1]) == 3 - contested
    loop.credit(episodes)
    for task_id, results in solved.items():
        advantages = [c.advantage for e in episodes if e.task.task_id == task_id for _, c in e.candidates()]
        assert any(advantages) == (len(results) == 2)


class Broken(Sokoban):
    """Sokoban that cannot judge the boards in ``broken`` (None: any that it trains on), with ``error``."""

    broken: ClassVar[set[str] | None] = set()
    error: ClassVar[Exception] = WorldFailure("the judge is gone")

    def reset(self, task: Task) -> None:
        self.task = task
        super().reset(task)

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        if self.task.split == "train" and (self.broken is None or self.task.task_id in self.broken):
            raise self.error
        return await super().step(actions)


@pytest.fixture
def breaking(build: Build, monkeypatch: pytest.MonkeyPatch) -> Build:
    """``build`` of a run whose world raises ``error`` in one of the three tasks of its iteration."""

    def building(*overrides: str, error: Exception = Broken.error) -> TrainLoop:
        loop = build(*overrides)
        loop.world = Broken(horizon=2)
        monkeypatch.setattr(Broken, "broken", {loop.world.tasks("train", 3, derive(0, "train", 0))[1].task_id})
        monkeypatch.setattr(Broken, "error", error)
        return loop

    return building


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        pytest.param(WorldFailure("gone"), "world", marks=pytest.mark.slow),
        (KeyError("x"), "world"),
        pytest.param(SandboxFailure("no worker lives"), "sandbox", marks=pytest.mark.slow),
        (SandboxUnavailable("no room"), "sandbox"),
    ],
)
def test_episodes_that_a_fault_took_are_counted_and_not_learnt_from(
    breaking: Build, error: Exception, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    loop = breaking("faults.max_lost_share=0.5", error=error)
    summary = train.train(loop)
    row = json.loads((loop.directory.path / "metrics.jsonl").read_text())
    assert row["rollout/lost_episodes"] == 1 and row["rollout/tasks"] == 2
    names = ["world", "sandbox", "engine", "logger", "display", "diagnostics", "oom_splits", "oom_decoding"]
    counts = dict.fromkeys(names, 0) | {kind: 1}
    for numbers in (row, json.loads((loop.directory.path / "summary.json").read_text())):
        assert {key: numbers[key] for key in numbers if key.startswith("faults/")} == prefixed("faults", counts)
    assert summary["status"] == "finished"
    assert f"faults so far: {kind} 1" in capsys.readouterr().out


def test_of_a_task_that_lost_an_episode_nothing_is_learnt(breaking: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left of its group would be a selection."""
    loop = breaking("algorithm=mas_grpo", "faults.max_lost_share=0.5")
    steps, task_id = [0], next(iter(Broken.broken or ()))

    async def once(self: Broken, actions: Mapping[str, str]) -> StepResult:
        steps[0] += self.task.task_id == task_id
        if steps[0] == 1 and self.task.task_id == task_id:
            raise WorldFailure("gone")
        return await Sokoban.step(self, actions)

    monkeypatch.setattr(Broken, "step", once)
    episodes = asyncio.run(loop.collect())
    assert len(episodes) == 12
    assert [episode.task.task_id for episode in episodes if episode.failure] == [task_id]
    assert {episode.task.task_id for episode in complete_tasks(episodes)} == {e.task.task_id for e in episodes} - {
        task_id
    }
    assert len(complete_tasks(episodes)) == 8


def test_too_large_a_share_of_lost_episodes_stops_the_run(breaking: Build) -> None:
    loop = breaking("faults.max_lost_share=0.2", error=KeyError("my_key"))
    with pytest.raises(LostEpisodesError, match=r"1 of 3 episodes are lost.*Broken\.step raised KeyError: 'my_key'"):
        train.train(loop)
    assert json.loads((loop.directory.path / "summary.json").read_text())["status"] == "failed"
    assert not loop.team.policies["tool"].version


def test_the_share_is_that_of_the_last_iterations(breaking: Build) -> None:
    loop = breaking("faults.max_lost_share=0.1")
    loop.progress.losses = [[0, 3]] * 10
    assert len(asyncio.run(loop.collect())) == 3
    loop.progress.losses = [[0, 3]] * 4 + [[1, 3]] * 2
    with pytest.raises(LostEpisodesError, match="3 of 21 episodes are lost"):
        asyncio.run(loop.collect())
    for _ in range(30):
        loop.progress.add_losses(0, 3)
    assert loop.progress.losses_before == (0, 3 * (WINDOW - 1))


def test_under_strict_faults_a_mistake_in_a_world_is_raised_as_it_is(breaking: Build) -> None:
    loop = breaking("faults=strict", error=KeyError("my_key"))
    with pytest.raises(KeyError, match="my_key") as raised:
        train.train(loop)
    assert any("agent tool said" in note for note in raised.value.__notes__)
    assert not loop.team.policies["tool"].version


def test_a_world_that_fails_in_every_episode_stops_the_run(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = build()
    loop.world = Broken(horizon=2)
    monkeypatch.setattr(Broken, "broken", None)
    with pytest.raises(LostEpisodesError, match=r"3 of 3 episodes are lost.*: the judge is gone"):
        train.train(loop)
    assert json.loads((loop.directory.path / "summary.json").read_text())["status"] == "failed"
    assert not loop.team.policies["tool"].version


def test_what_a_world_opens_is_described_and_closed(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    async def opened(world: TeamEnv) -> dict[str, bool]:
        calls.append("open")
        return {"unsafe": False}

    async def closed(world: TeamEnv) -> None:
        calls.append("close")

    monkeypatch.setattr(Sokoban, "open", opened)
    monkeypatch.setattr(Sokoban, "close", closed)
    summary = train.train(build())
    assert summary["world/unsafe"] is False
    assert calls == ["open", "close"]
