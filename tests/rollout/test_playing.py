"""A world that waits, or fails, in the middle of a rollout."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from troupe.envs.base import StepResult, WorldFailure
from troupe.envs.grid.sokoban import Sokoban
from troupe.evaluation.episodes import PolicyActor, evaluate
from troupe.experience import Episode, Sampling, Task
from troupe.rollout.engines.scripted import ScriptedEngine
from troupe.rollout.playing import gather
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.samplers.base import Sampler
from troupe.rollout.samplers.chain import ChainSampler
from troupe.rollout.samplers.forest import ForestSampler
from troupe.rollout.samplers.joint import JointSampler
from troupe.rollout.samplers.replay import ReplaySampler
from troupe.rollout.samplers.tree import TreeSampler


class Failing(Sokoban):
    """Fails in the episodes of one task, at the second turn."""

    broken: str = ""

    def reset(self, task: Task) -> None:
        self.fails = task.task_id == self.broken
        super().reset(task)

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        await asyncio.sleep(0)
        if self.fails and self.turn == 1:
            raise WorldFailure("the judge is gone")
        return await super().step(actions)


class Mistaken(Sokoban):
    """A world whose code has a mistake."""

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        return {}["no such key"]  # type: ignore[no-any-return]


SAMPLERS: dict[str, Callable[[], Sampler]] = {
    "tree": lambda: TreeSampler(k=2),
    "lookahead": lambda: TreeSampler(k=2, lookahead=1),
    "chain": lambda: ChainSampler(k=2),
    "joint": lambda: JointSampler(k=2),
    "replay": lambda: ReplaySampler(k=2),
    "forest": lambda: ForestSampler(k=2),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_an_episode_whose_world_fails_is_lost_alone(
    name: str, words: PreTrainedTokenizerFast, caplog: pytest.LogCaptureFixture
) -> None:
    engine = ScriptedEngine(lambda prompt, row, seed: "goal", words)
    client = PolicyClient("p", engine, words, 512, Sampling(max_tokens=40))
    world = Failing(horizon=2)
    tasks = world.tasks("train", 3, 0)
    world.broken = tasks[1].task_id
    ended: list[Episode] = []
    sampler, clients = SAMPLERS[name](), {"tool": client, "plan": client}
    results = asyncio.run(sampler.collect(world, tasks, clients, 0, ended.append))
    episodes = [episode for episodes in results for episode in episodes]
    assert len(ended) == len(episodes) and all(any(each is one for one in ended) for each in episodes)
    lost = [episode for episode in episodes if episode.failure]
    assert {episode.task.task_id for episode in lost} == {world.broken}
    assert all(episode.failure == "the judge is gone" and not episode.nodes for episode in lost)
    assert all(episode.outcomes for episode in episodes if not episode.failure)
    assert f"an episode is lost: task {world.broken}, sample 0: the judge is gone" in caplog.text


def test_what_fails_cancels_what_goes_on_beside_it() -> None:
    ended: list[str] = []

    async def fails() -> None:
        raise WorldFailure("no")

    async def goes_on() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def nested() -> None:
        await gather(goes_on(), fails())

    with pytest.raises(WorldFailure, match=r"^no$"):
        asyncio.run(asyncio.wait_for(gather(nested(), goes_on()), 10))
    assert ended == ["cancelled", "cancelled"]


def test_results_keep_their_order() -> None:
    async def late(value: int) -> int:
        await asyncio.sleep(0.01 * (3 - value))
        return value

    async def main() -> list[Any]:
        return await gather(*(late(value) for value in range(3)))

    assert asyncio.run(main()) == [0, 1, 2]


def test_an_error_of_a_world_names_task_agent_and_message(words: PreTrainedTokenizerFast) -> None:
    engine = ScriptedEngine(lambda prompt, row, seed: "goal", words)
    client = PolicyClient("p", engine, words, 512, Sampling(max_tokens=40))
    world = Mistaken(horizon=2)
    (task,) = world.tasks("train", 1, 0)
    clients = {"tool": client, "plan": client}
    with pytest.raises(KeyError) as sampled:
        asyncio.run(TreeSampler(k=2).collect(world, [task], clients, 0))
    with pytest.raises(KeyError) as evaluated:
        asyncio.run(evaluate(world, [task], {agent: PolicyActor(client) for agent in clients}, 0))
    notes = ["step of Mistaken in turn 0: agent tool said 'goal'", f"in an episode of task {task.task_id}"]
    assert sampled.value.__notes__ == evaluated.value.__notes__ == notes
