"""A world that waits, or fails, in the middle of a rollout."""

import asyncio
import json
import pickle
import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

import pytest
from transformers import PreTrainedTokenizerFast

from troupe.envs.base import StepResult, WorldFailure
from troupe.envs.grid.sokoban import Sokoban
from troupe.envs.history import WithHistory
from troupe.envs.returned import WorldValueError
from troupe.errors import ConfigError
from troupe.evaluation.episodes import PolicyActor, evaluate
from troupe.evaluation.summary import summarise
from troupe.experience import Completion, Episode, Failure, Message, Request, Sampling, Task
from troupe.models.bases.open_tokenizer import SMALLEST, train_tokenizer
from troupe.rollout.engines.base import EngineError, RequestFailedError
from troupe.rollout.playing import gather
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.samplers.chain import ChainSampler
from troupe.rollout.samplers.forest import ForestSampler
from troupe.rollout.samplers.joint import JointSampler
from troupe.rollout.samplers.replay import ReplaySampler
from troupe.rollout.samplers.sampler import Sampler
from troupe.rollout.samplers.tree import TreeSampler
from troupe.rollout.scripted import ScriptedEngine
from troupe.runs.faults import FaultSettings
from troupe.runs.metrics import rollout_metrics


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
    """A world whose method ``where`` has a mistake, in the episodes of one task."""

    where, broken, task_id = "step", "", ""

    def _stumble(self, method: str) -> None:
        if method == self.where and self.task_id == self.broken:
            {}["no such key"]

    def reset(self, task: Task) -> None:
        self.task_id = task.task_id
        self._stumble("reset")
        super().reset(task)

    def next_agents(self) -> tuple[str, ...]:
        self._stumble("next_agents")
        return super().next_agents()

    def observe(self, agent: str) -> Sequence[Message]:
        self._stumble("observe")
        return super().observe(agent)

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        self._stumble("step")
        return await super().step(actions)

    def fork(self) -> Self:
        self._stumble("fork")
        return super().fork()

    def state_key(self) -> Hashable:
        self._stumble("state_key")
        return super().state_key()


class Wrong(Sokoban):
    """Returns a reward that is none, in the episodes of one task."""

    broken = task_id = ""

    def reset(self, task: Task) -> None:
        self.task_id = task.task_id
        super().reset(task)

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        result = await super().step(actions)
        return replace(result, team=float("nan")) if self.task_id == self.broken else result


class Repeating(Sokoban):
    """Its prompts begin with half a character."""

    def observe(self, agent: str) -> list[Message]:
        system, user = super().observe(agent)
        return [system, {**user, "content": "\ud83d " + user["content"]}]


class Talkative(Sokoban):
    """Its prompts repeat all that was said, from the second turn on."""

    def observe(self, agent: str) -> list[Message]:
        system, user = super().observe(agent)
        return [system, {**user, "content": user["content"] + " goal" * 600 * self.turn}]


SAMPLERS: dict[str, Callable[[], Sampler]] = {
    "tree": lambda: TreeSampler(k=2),
    "tree, global": lambda: TreeSampler(k=2, team="global"),
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
    gone = Failure("world", f"task {world.broken}: the judge is gone")
    assert all(episode.failure == gone and not episode.nodes for episode in lost)
    assert all(episode.outcomes for episode in episodes if not episode.failure)
    assert f"an episode is lost: task {world.broken}: the judge is gone" in caplog.text


@pytest.mark.parametrize("where", ["reset", "next_agents", "observe", "step", "fork", "state_key"])
@pytest.mark.parametrize("name", SAMPLERS)
def test_an_exception_of_a_world_costs_the_episodes_of_its_task(
    name: str, where: str, words: PreTrainedTokenizerFast
) -> None:
    client = PolicyClient("p", ScriptedEngine(lambda *_: "goal", words), words, 512, Sampling(max_tokens=40))
    world = Mistaken(horizon=1)
    tasks = world.tasks("train", 3, 0)
    world.where, world.broken = where, tasks[1].task_id
    sampler = SAMPLERS[name]()
    results = asyncio.run(sampler.collect(world, tasks, {"tool": client, "plan": client}, 0))
    assert [len(episodes) for episodes in results] == [2 if name == "chain" else 1] * 3
    for task, episodes in zip(tasks, results, strict=True):
        for sample, episode in enumerate(episodes):
            assert (episode.task, episode.sample) == (task, sample)
            assert (episode.failure is None) == bool(episode.outcomes) == (task.task_id != world.broken)
            if episode.failure:
                message = episode.failure.message
                assert message.startswith(f"Mistaken.{where} raised KeyError: 'no such key' (task {world.broken}, ")
                assert re.search(rf"{Path(__file__).name}:\d+\)$", message)
                assert ("agent tool" in message) == (where in ("step", "observe"))
                assert pickle.loads(pickle.dumps(episode.failure)) == episode.failure


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_value_that_the_contract_forbids_costs_the_episodes_of_its_task(
    name: str, words: PreTrainedTokenizerFast
) -> None:
    client = PolicyClient("p", ScriptedEngine(lambda *_: "goal", words), words, 512, Sampling(max_tokens=40))
    world = Wrong(horizon=1)
    tasks = world.tasks("train", 3, 0)
    world.broken = tasks[1].task_id
    results = asyncio.run(SAMPLERS[name]().collect(world, tasks, {"tool": client, "plan": client}, 0))
    lost = [each.failure for episodes in results for each in episodes if each.failure]
    assert {episode.task.task_id for episodes in results for episode in episodes if episode.failure} == {world.broken}
    for failure in lost:
        named = rf"^task {world.broken}: Wrong\.step, agent (tool|plan), turn 0: the team reward must be .* got nan$"
        assert re.match(named, failure.message)
        with pytest.raises(WorldValueError, match=named):
            FaultSettings(world="stop").raise_if_stopping(failure)


@pytest.mark.parametrize("name", SAMPLERS)
def test_half_a_character_ends_no_rollout(name: str) -> None:
    """A program's output may hold one, or a data set: the prompts hold U+FFFD."""
    tokenizer = train_tokenizer(["check goal walls"], SMALLEST)
    engine = ScriptedEngine(lambda *_: "a", tokenizer)
    client = PolicyClient("p", engine, tokenizer, 4096, Sampling(max_tokens=40))
    world = WithHistory(Repeating(horizon=2))
    results = asyncio.run(
        SAMPLERS[name]().collect(world, world.tasks("train", 1, 0), dict.fromkeys(world.agents, client), 0)
    )
    assert all(not episode.failure and episode.outcomes for episodes in results for episode in episodes)


@pytest.mark.parametrize("name", SAMPLERS)
def test_prompts_that_outgrow_the_context_end_no_rollout(name: str, words: PreTrainedTokenizerFast) -> None:
    engine = ScriptedEngine(lambda prompt, row, seed: "goal", words)
    client = PolicyClient("p", engine, words, 512, Sampling(max_tokens=40))
    world = Talkative(horizon=2)
    tasks, clients = world.tasks("train", 2, 0), {"tool": client, "plan": client}
    results = asyncio.run(SAMPLERS[name]().collect(world, tasks, clients, 0))
    episodes = [episode for episodes in results for episode in episodes]
    assert all(not episode.failure and {outcome.turns for outcome in episode.outcomes} == {2} for episode in episodes)
    nodes = [node for episode in episodes for node in episode.nodes]
    assert all(node.cut == (node.turn > 0) and len(node.prompt_ids) <= 472 for node in nodes)
    row = rollout_metrics(episodes, 1.0)
    for agent in ("tool", "plan"):
        own = [node for node in nodes if node.agent == agent]
        assert 0 < row[f"rollout/{agent}/cut_prompts"] == sum(node.cut for node in own) / len(own) < 1


def test_prompts_that_outgrow_the_context_end_no_evaluation(words: PreTrainedTokenizerFast) -> None:
    engine = ScriptedEngine(lambda prompt, row, seed: "goal", words)
    actor = PolicyActor(PolicyClient("p", engine, words, 512, Sampling(max_tokens=40)))
    world = Talkative(horizon=2)
    results = asyncio.run(evaluate(world, world.tasks("test", 2, 0), {"tool": actor, "plan": actor}, 0))
    assert [result.turns for result in results] == [2, 2]
    assert all(message["cut_prompts"] == (message["turn"] > 0) for result in results for message in result.messages)
    assert summarise(results)["tool/cut_prompts"] == 0.5


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
    world.broken = task.task_id
    strict = FaultSettings(world="stop")
    ((episode,),) = asyncio.run(TreeSampler(k=2).collect(world, [task], clients, 0))
    assert episode.failure is not None
    with pytest.raises(KeyError) as sampled:
        strict.raise_if_stopping(episode.failure)
    with pytest.raises(KeyError) as evaluated:
        asyncio.run(evaluate(world, [task], {agent: PolicyActor(client) for agent in clients}, 0, faults=strict))
    notes = ["step of Mistaken in turn 0: agent tool said 'goal'", f"in an episode of task {task.task_id}"]
    assert sampled.value.__notes__ == evaluated.value.__notes__ == notes


class Unfit(Sokoban):
    """A world that a setting does not fit, which shows in its first step."""

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        raise ConfigError("env.reward_bounds=[0, 1]: the game gave 2")


def test_a_setting_that_does_not_fit_loses_no_episode_but_ends_the_run(words: PreTrainedTokenizerFast) -> None:
    client = PolicyClient("p", ScriptedEngine(lambda *_: "goal", words), words, 512, Sampling(max_tokens=40))
    world = Unfit()
    with pytest.raises(ConfigError, match=r"env\.reward_bounds=\[0, 1\]"):
        asyncio.run(TreeSampler(k=2).collect(world, world.tasks("train", 1, 0), {"tool": client, "plan": client}, 0))


class Refusing(ScriptedEngine):
    """An engine that refuses the requests of one task with ``error``."""

    def __init__(self, words: PreTrainedTokenizerFast, task_id: str, error: Exception) -> None:
        super().__init__(lambda *_: "goal", words)
        self.task_id, self.error = task_id, error

    async def generate(self, request: Request) -> list[Completion]:
        if request.key[0] == self.task_id:
            raise self.error
        return await super().generate(request)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_request_that_fails_costs_its_task_and_any_other_error_the_run(
    name: str, words: PreTrainedTokenizerFast
) -> None:
    world = Sokoban(horizon=1)
    tasks = world.tasks("train", 2, 0)

    def collect(error: Exception) -> list[list[Episode]]:
        engine = Refusing(words, tasks[0].task_id, error)
        client = PolicyClient("p", engine, words, 512, Sampling(max_tokens=40))
        return asyncio.run(SAMPLERS[name]().collect(world, tasks, {"tool": client, "plan": client}, 0))

    refused, played = collect(RequestFailedError("HTTP 400: the content filter"))
    expected = Failure("engine", f"task {tasks[0].task_id}: HTTP 400: the content filter")
    assert refused and all(episode.failure == expected for episode in refused)
    assert all(episode.failure is None for episode in played)
    for error in (RuntimeError("CUDA error"), FloatingPointError("not finite"), EngineError("no restart is left")):
        with pytest.raises(type(error), match=str(error)):
            collect(error)


def test_evaluations_report_lost_episodes_beside_success(words: PreTrainedTokenizerFast) -> None:
    client = PolicyClient("p", ScriptedEngine(lambda *_: "goal", words), words, 512, Sampling(max_tokens=40))
    world, actors = Mistaken(horizon=1), dict.fromkeys(("tool", "plan"), PolicyActor(client))
    tasks = world.tasks("test", 4, 0)
    whole = asyncio.run(evaluate(world, tasks, actors, 0))
    world.broken = tasks[2].task_id
    results = asyncio.run(evaluate(world, tasks, actors, 0))
    assert [result.task_id for result in results] == [task.task_id for task in tasks]
    assert [result.lost for result in results] == [None, None, "world", None]
    assert "KeyError" in results[2].failure
    summary = summarise(results)
    assert (summary["episodes"], summary["lost_episodes"]) == (3, 1)
    del results[2], whole[2]
    assert results == whole and summary == summarise(whole) | {"lost_episodes": 1}
    json.dumps([asdict(result) for result in results])
