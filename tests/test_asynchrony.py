"""``loop.staleness``: 0 is the on-policy loop to the bit; above it tasks go on during updates, and nothing is lost."""

import asyncio
import json
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from omegaconf import DictConfig

from troupe.cli import train
from troupe.envs.base import StepResult, WorldFailure
from troupe.envs.grid.sokoban import Sokoban
from troupe.experience import Episode, Task
from troupe.loop import TrainLoop
from troupe.rollout.engines.requests import derive
from troupe.rollout.engines.torch.decoding import Decoder
from troupe.rollout.playing import complete_tasks

from .programs import through_the_gateway

SMALL = [
    "loop.iterations=3",
    "loop.tasks_per_iteration=3",
    "loop.eval_every=100",
    "loop.validation_tasks=2",
    "loop.test_tasks=2",
    "diagnostics=off",
]
AHEAD = ["loop.lockstep=false", "algorithm.objective.importance_cap=2"]
Build = Callable[..., TrainLoop]


@pytest.fixture
def build(composed: Callable[..., DictConfig], tmp_path: Path) -> Build:
    """``build("key=value", ...)``: a small run in a new run directory, not begun."""
    count = iter(range(100))

    def new(*overrides: str) -> TrainLoop:
        return train.build(composed(*SMALL, f"run_dir={tmp_path / str(next(count))}", *overrides))

    return new


@pytest.fixture
def ahead(build: Build) -> Build:
    """``build`` of Sokoban with ``loop.staleness=1``."""
    return lambda *overrides: build(
        "experiment=sokoban_specialized", "env.horizon=2", "loop.staleness=1", *AHEAD, *overrides
    )


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]


def learnt_from(loop: TrainLoop) -> list[list[str]]:
    """By iteration, the tasks that are learnt from, as the run goes on."""
    found: list[list[str]] = []
    learn = loop._learn

    async def recorded(episodes: list[Episode], *arguments: Any) -> dict[str, Any]:
        found.append(list(dict.fromkeys(episode.task.task_id for episode in episodes)))
        return await learn(episodes, *arguments)

    loop._learn = recorded
    return found


def on_policy(loop: TrainLoop) -> list[list[str]]:
    """By iteration, the tasks of the run at staleness 0."""
    seeds = [derive(loop.seed, "train", batch) for batch in range(loop.settings.iterations)]
    return [[task.task_id for task in loop.world.tasks("train", 3, seed)] for seed in seeds]


def all_of(iterations: list[list[str]]) -> list[str]:
    return sorted(chain.from_iterable(iterations))


# ---- on-policy -------------------------------------------------------------------------------------------------------


async def plain(loop: TrainLoop) -> tuple[list[dict[str, Any]], list[torch.Tensor]]:
    """The metrics of the updates and the weights of a run, one phase after the other."""
    await loop.team.load_weights()
    found: list[dict[str, Any]] = []
    for iteration in range(loop.settings.iterations):
        seed = derive(loop.seed, "train", iteration)
        tasks = loop.world.tasks("train", loop.settings.tasks_per_iteration, seed)
        by_task = await loop.sampler.collect(loop.world, tasks, loop.team.training, seed)
        episodes = complete_tasks([episode for episodes in by_task for episode in episodes])
        await loop.team.sleep()
        loop.credit(episodes)
        batches = loop.router.route(episodes, loop.credit.key, loop.credit.weight)
        found.append(await loop.team.update(batches, iteration, in_order=False))
        await loop.team.load_weights()
    weights = [w.clone() for p in loop.team.policies.values() for w in (await p.weights()).values()]
    await loop.team.close()
    return found, weights


@pytest.mark.parametrize(
    "words",
    [
        ["experiment=sokoban_specialized", "env.horizon=2"],
        pytest.param(
            ["experiment=sokoban_lora", "env.horizon=2", "algorithm=mas_grpo", "algorithm.objective.importance_cap=2"],
            marks=pytest.mark.slow,
        ),
        pytest.param(["experiment=couplet_specialized"], marks=pytest.mark.slow),
    ],
    ids=["at_grpo", "mas_grpo with adapters", "magrpo"],
)
def test_staleness_0_is_the_loop_without_it_to_the_bit(build: Build, words: list[str]) -> None:
    expected, expected_weights = asyncio.run(plain(build(*words)))
    loop = build(*words, "loop.staleness=0")
    asyncio.run(loop.run())
    for row, updates in zip(rows(loop.directory.path), expected, strict=True):
        for policy, metrics in updates.items():
            for key, value in metrics.items():
                own = key if key.startswith("mismatch/") else f"train/{policy}/{key}"
                assert key.endswith("_s") or key.startswith("faults/") or row[own] == value, key
            assert row[f"train/{policy}/staleness_max"] == 0
            assert "rollout/tasks_ahead" not in row
    weights = [w for p in loop.team.policies.values() for w in p.pool.module.weights(p.name).values()]
    assert all(torch.equal(*pair) for pair in zip(weights, expected_weights, strict=True))


# ---- ahead of the updates --------------------------------------------------------------------------------------------


class Gated(Sokoban):
    """Sokoban in which training tasks of ``closed`` wait until ``gate`` is open."""

    closed: ClassVar[set[str]] = set()
    gate: ClassVar[asyncio.Event]
    waited: ClassVar[Counter[str]] = Counter()

    def reset(self, task: Task) -> None:
        self.task = task
        super().reset(task)

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        if self.task.task_id in self.closed:
            self.waited[self.task.task_id] += 1
            await self.gate.wait()
        return await super().step(actions)


@pytest.fixture
def gated(ahead: Build, monkeypatch: pytest.MonkeyPatch) -> Build:
    """A run whose world is :class:`Gated`; nothing waits yet."""

    def new(*overrides: str) -> TrainLoop:
        loop = ahead(*overrides)
        loop.world = Gated(horizon=2)
        for name, value in (("closed", set()), ("gate", asyncio.Event()), ("waited", Counter())):
            monkeypatch.setattr(Gated, name, value, raising=False)
        return loop

    return new


def test_tasks_are_played_while_policies_learn_and_the_slow_one_is_learnt_from_later(gated: Build) -> None:
    """The gate opens only once the second update is under way: on-policy, the run would wait for ever."""
    loop = gated("loop.staleness=2")
    batches = on_policy(loop)
    Gated.closed = {batches[0][1]}
    found, update = learnt_from(loop), loop.team.update

    async def opening(batches: Any, iteration: int, **settings: Any) -> Any:
        if iteration == 1:
            Gated.gate.set()
        return await update(batches, iteration, **settings)

    loop.team.update = opening
    asyncio.run(asyncio.wait_for(loop.run(), 120))
    assert Gated.waited[batches[0][1]]
    assert batches[0][1] in found[2] and [len(tasks) for tasks in found] == [3, 3, 3]
    assert all_of(found) == all_of(batches)
    metrics = rows(loop.directory.path)
    assert [row["rollout/tasks_ahead"] for row in metrics] == [6, 3, 0]
    assert metrics[0]["train/plan/staleness_max"] == 0
    # Its first messages are of the first version, the last ones of the second or third.
    assert metrics[2]["train/tool/staleness_max"] == 2
    assert 0 < metrics[2]["train/tool/stale_samples"] < metrics[2]["train/tool/samples"]


@pytest.mark.slow
def test_a_run_ahead_ends_with_every_task_learnt_from_and_honest_ages(ahead: Build) -> None:
    loop = ahead()
    found = learnt_from(loop)
    summary = asyncio.run(loop.run())
    assert all_of(found) == all_of(on_policy(loop))
    assert summary["status"] == "finished" and summary["rollout/unused_tasks"] == 0
    assert summary["iterations"] == 3 and loop.team.policies["tool"].version == 3
    for row in rows(loop.directory.path):
        for policy in ("tool", "plan"):
            assert 0 <= row[f"train/{policy}/staleness_mean"] <= row[f"train/{policy}/staleness_max"] <= 1
    assert rows(loop.directory.path)[0]["train/plan/staleness_max"] == 0
    assert any("train/plan/stale_ess_ratio" in row for row in rows(loop.directory.path))


@pytest.mark.slow
def test_a_program_is_played_ahead_through_the_gateway(build: Build) -> None:
    signalling = "env=signalling", "regime=specialized", "algorithm=mas_grpo", "algorithm.sampler.k=3"
    loop = build(*signalling, "loop.staleness=1", *AHEAD)
    loop.world = through_the_gateway(pure=False)
    found = learnt_from(loop)
    summary = asyncio.run(loop.run())
    assert all_of(found) == all_of(on_policy(loop))
    assert summary["status"] == "finished" and summary["rollout/unused_tasks"] == 0
    metrics = rows(loop.directory.path)
    assert [(row["rollout/tasks"], row["rollout/tasks_ahead"]) for row in metrics] == [(3, 3), (3, 3), (3, 0)]
    assert all(row["rollout/lost_episodes"] == 0 == row["faults/world"] for row in metrics)
    for agent in ("sender", "receiver"):
        ages = [row[f"train/{agent}/staleness_max"] for row in metrics]
        assert ages[0] == 0 and max(ages) == 1
        assert all(row[f"rollout/{agent}/refused_requests"] == 0 for row in metrics)


def held_for_loads(loop: TrainLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The gate opens in the first update, and completions that are under way in an update go on once weights come."""
    step, update = Decoder.step, loop.team.update

    def holding(self: Decoder) -> None:
        engine = loop.team.engines[self.policy]
        while loop.update_in_progress and not engine._waiting_loads:
            time.sleep(0.001)
        step(self)

    async def opening(*arguments: Any, **settings: Any) -> Any:
        Gated.gate.set()
        decoders = [each for engine in loop.team.distinct_engines() for each in engine._decoders.values()]
        while not any(each.rows for each in decoders) and not loop.progress.iteration:
            await asyncio.sleep(0)
        return await update(*arguments, **settings)

    monkeypatch.setattr(Decoder, "step", holding)
    loop.team.update = opening


@pytest.mark.slow
@pytest.mark.parametrize("regime", ["specialized", pytest.param("lora", marks=pytest.mark.slow)])
def test_new_weights_reach_completions_under_way(gated: Build, monkeypatch: pytest.MonkeyPatch, regime: str) -> None:
    loop = gated(f"experiment=sokoban_{regime}", "loop.in_flight=true", "loop.iterations=2")
    Gated.closed = {on_policy(loop)[1][0]}
    held_for_loads(loop, monkeypatch)
    found, learn, ages = learnt_from(loop), loop._learn, list[tuple[int, ...]]()

    async def aged(episodes: list[Episode], *arguments: Any) -> dict[str, Any]:
        for _, candidate in (pair for episode in episodes for pair in episode.candidates()):
            said = candidate.completion
            now = loop.team.policies[said.policy].version
            ages.append(tuple(now - version for version in said.versions or [said.version]))
        return await learn(episodes, *arguments)

    loop._learn = aged
    summary = asyncio.run(asyncio.wait_for(loop.run(), 120))
    assert summary["status"] == "finished" and all_of(found) == all_of(on_policy(loop))
    mixed = [each for each in ages if len(set(each)) > 1]
    assert mixed and {age for each in ages for age in each} == {0, 1}
    assert all(list(each) == sorted(each, reverse=True) for each in mixed)
    policies, metrics = list(loop.team.policies), rows(loop.directory.path)
    assert sum(row.get(f"train/{name}/mixed_version_samples", 0) for row in metrics for name in policies) == len(mixed)
    assert max(row[f"train/{name}/staleness_max"] for row in metrics for name in policies) == 1
    # The ledger of the engine has none of them, whose caches no learner computes.
    drifts = [value for row in metrics for key, value in row.items() if key.endswith("/max_abs_nats")]
    assert max(drifts) < 1e-4


@pytest.mark.slow
def test_a_budget_of_completions_leaves_little_unused(ahead: Build) -> None:
    loop = ahead("loop.iterations=100", "loop.completions=150", "algorithm.sampler.k=4")
    summary = asyncio.run(loop.run())
    assert summary["status"] == "finished" and summary["train/completions"] >= 150
    assert summary["rollout/unused_tasks"] <= 3


# ---- interrupts and resumption ---------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("in_flight", [False, True])
def test_an_interrupted_run_goes_on_with_the_tasks_that_were_under_way(
    gated: Build, composed: Callable[..., DictConfig], in_flight: bool
) -> None:
    loop = gated(f"loop.in_flight={in_flight}")
    batches = on_policy(loop)
    Gated.closed = {batches[1][2]}  # without it the second iteration cannot end
    found = learnt_from(loop)

    async def interrupted() -> None:
        running = asyncio.ensure_future(loop.run())
        while loop.progress.iteration < 1 or not Gated.waited:
            await asyncio.sleep(0)
            assert not running.done()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not [task for task in asyncio.all_tasks() if " of batch " in task.get_name()], "all are cancelled"

    asyncio.run(asyncio.wait_for(interrupted(), 120))
    path = loop.directory.path
    assert json.loads((path / "summary.json").read_text())["status"] == "interrupted"
    loop.directory.release()
    state = json.loads((path / "checkpoints" / "last" / "state.json").read_text())["ahead"]
    assert len(state["left"]) == 3 * (state["next_batch"] - 1)

    again = train.build(composed(f"resume={path}"))
    later = learnt_from(again)
    assert asyncio.run(again.run())["status"] == "finished"
    assert len(later) == 2 and all_of([*found, *later]) == all_of(batches)


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_from_its_last_checkpoint(
    ahead: Build, composed: Callable[..., DictConfig], tmp_path: Path
) -> None:
    """What a kill leaves is a checkpoint between iterations, with tasks under way: here a copy of it."""
    loop = ahead("loop.checkpoint.every=1")
    found, write, killed = learnt_from(loop), loop.checkpoints.write, tmp_path / "killed"

    def copying(*arguments: Any) -> None:
        write(*arguments)
        if loop.progress.iteration == 1:
            shutil.copytree(loop.directory.path, killed, symlinks=True)

    loop.checkpoints.write = copying
    asyncio.run(loop.run())
    file = killed / "config.yaml"
    file.write_text(file.read_text().replace(f"run_dir: {loop.directory.path}", f"run_dir: {killed}"))
    again = train.build(composed(f"resume={killed}"))
    later = learnt_from(again)
    summary = asyncio.run(again.run())
    assert summary["status"] == "finished" and summary["iterations"] == 3
    assert all_of([found[0], *later]) == all_of(on_policy(loop))
    assert [row["iteration"] for row in rows(killed)] == [1, 2, 3]


# ---- faults ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_episode_that_is_lost_ahead_is_counted_in_the_iteration_that_would_learn_from_it(
    gated: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = gated("faults.max_lost_share=0.5")
    lost = on_policy(loop)[1][0]

    async def step(self: Gated, actions: Mapping[str, str]) -> StepResult:
        if self.task.task_id == lost:
            raise WorldFailure("gone")
        return await Sokoban.step(self, actions)

    monkeypatch.setattr(Gated, "step", step)
    summary = asyncio.run(loop.run())
    assert summary["faults/world"] == 1
    metrics = rows(loop.directory.path)
    assert sum(row["rollout/lost_episodes"] for row in metrics) == 1
    assert sum(row["rollout/tasks"] for row in metrics) == 8


def test_an_engine_that_fails_during_an_update_stops_the_run(ahead: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = ahead()
    step = Decoder.step

    def failing(self: Decoder) -> None:
        if loop.update_in_progress:
            raise FloatingPointError("logits are not finite")
        step(self)

    async def slowly(*arguments: Any, **settings: Any) -> Any:
        while not loop.ahead._flights or not any(flight.episodes.done() for flight in loop.ahead._flights):
            await asyncio.sleep(0)
        return await update(*arguments, **settings)

    update = loop.team.update
    loop.team.update = slowly
    monkeypatch.setattr(Decoder, "step", failing)
    with pytest.raises(FloatingPointError, match="not finite"):
        asyncio.run(asyncio.wait_for(loop.run(), 120))
    summary = json.loads((loop.directory.path / "summary.json").read_text())
    assert summary["status"] == "failed" and summary["faults/engine"] >= 1
    # The iteration whose update was under way is complete, and the run can go on from it.
    assert summary["iterations"] == 1 == loop.checkpoints.state("last")["iteration"]


# ---- learning --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_team_learns_one_update_behind(build: Build) -> None:
    sizes = ["loop.iterations=6", "loop.tasks_per_iteration=48", "loop.test_tasks=150", "name=learning"]
    loop = build("experiment=sokoban_specialized", "loop.staleness=1", *AHEAD, *sizes)
    learnt = asyncio.run(loop.run())
    assert learnt["eval_before/success"] < 0.3
    # The 95 % intervals before and after lie far apart.
    assert learnt["eval/success_ci95"][0] > learnt["eval_before/success_ci95"][1] + 0.1
    assert max(row["train/plan/staleness_mean"] for row in rows(loop.directory.path)) > 0.5
