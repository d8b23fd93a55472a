"""A world that is played natively, and one of Troupe's own that is a program behind the gateway: the same run."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import pytest
import torch
from omegaconf import DictConfig

from troupe.cli import train
from troupe.envs.base import TeamEnv
from troupe.envs.workflow import ClientForAgent, WorkflowWorld
from troupe.experience import Episode, Sampling, Split, Task
from troupe.loop import TrainLoop
from troupe.models.bases.loading import load_model, load_tokenizer
from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.samplers.chain import ChainSampler
from troupe.rollout.samplers.forest import ForestSampler
from troupe.rollout.samplers.joint import JointSampler
from troupe.rollout.samplers.replay import ReplaySampler
from troupe.rollout.samplers.sampler import Sampler
from troupe.rollout.samplers.tree import TreeSampler

from .programs import signalling, through_the_gateway

SMALL = [
    "env=signalling",
    "regime=specialized",
    "loop.iterations=2",
    "loop.tasks_per_iteration=3",
    "loop.validation_tasks=2",
    "loop.test_tasks=3",
    "diagnostics=off",
]
CHAIN = ["algorithm=mas_grpo", "algorithm.sampler.k=3"]
TREE = ["algorithm=at_grpo", "algorithm.sampler.k=3", "algorithm.reward.team=global"]
REPLAY = ["algorithm=c3", "algorithm.sampler.k=2"]


Played = tuple[list[Episode], dict[str, torch.Tensor], dict[str, Any]]
Play = Callable[..., Played]


@pytest.fixture
def play(composed: Callable[..., DictConfig], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Play]:
    """The episodes of a run in a world, its weights and its summary."""

    def run(env: TeamEnv, *overrides: str) -> Played:
        run_dir = tmp_path_factory.mktemp("runs") / "run"
        loop: TrainLoop = train.build(composed(*SMALL, *overrides, f"run_dir={run_dir}"))
        loop.world = env
        episodes: list[Episode] = []
        collect = loop.sampler.collect

        async def recorded(*arguments: Any) -> list[list[Episode]]:
            found = await collect(*arguments)
            episodes.extend(episode for each in found for episode in each)
            return found

        loop.sampler.collect = recorded
        summary = train.train(loop)
        weights = {
            f"{name}/{key}": value.clone()
            for name, policy in loop.team.policies.items()
            for key, value in policy.pool.module.model.state_dict().items()
        }
        return episodes, weights, summary

    yield run


def untimed(candidate: dict[str, Any]) -> dict[str, Any]:
    """Without what the world tells, and how long the engine's queue was."""
    completion = {key: value for key, value in candidate["completion"].items() if key != "waited"}
    return {key: value for key, value in candidate.items() if key != "info"} | {"completion": completion}


def described(episodes: Sequence[Episode]) -> list[Any]:
    """All of the episodes but what only one of two worlds has: the name of a state, and its numbers."""
    return [
        (
            episode.task.task_id,
            episode.sample,
            [asdict(edge) for edge in episode.edges],
            [
                {
                    key: value
                    for key, value in asdict(node).items()
                    if key not in ("state", "anchor", "candidates", "seconds")
                }
                | {"candidates": [untimed(asdict(c)) for c in node.candidates]}
                for node in episode.nodes
            ],
            episode.env_steps,
            episode.auxiliary,
        )
        for episode in episodes
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "history"),
    [(CHAIN, True), (TREE, False)],
    ids=["chain-memory", "tree"],
)
def test_the_same_run_to_the_bit(play: Play, algorithm: list[str], history: bool) -> None:
    native, weights, summary = play(signalling(history=history), *algorithm)
    others, learnt, found = play(through_the_gateway(pure=True, history=history), *algorithm)
    assert len(native) == (18 if algorithm is CHAIN else 6)
    assert any(len(episode.nodes) == 4 for episode in native)  # both turns
    assert all(c.completion.token_ids for episode in native for _, c in episode.candidates())
    assert {c.completion.version for episode in native for _, c in episode.candidates()} == {0, 1}
    assert described(others) == described(native)
    assert learnt.keys() == weights.keys()
    assert all(torch.equal(learnt[key], weights[key]) for key in weights)
    results = [key for key in summary if key.startswith(("eval", "train/")) and not key.endswith("_s")]
    assert {key: found[key] for key in results} == {key: summary[key] for key in results}


@pytest.mark.slow
def test_the_same_run_to_the_bit_by_replay(play: Play) -> None:
    native, weights, _ = play(signalling(history=False), *REPLAY)
    others, learnt, _ = play(through_the_gateway(pure=True, history=False), *REPLAY)
    assert any(episode.auxiliary for episode in native)
    assert described(others) == described(native)
    assert learnt.keys() == weights.keys()
    assert all(torch.equal(learnt[key], weights[key]) for key in weights)


@pytest.mark.slow
def test_a_program_that_is_not_pure_plays_chains(play: Play) -> None:
    """Each sample then has a start of its own; with one sample, that of a native world."""
    one = [
        "algorithm=mas_grpo",
        "algorithm.sampler.k=1",
        "algorithm.credit.baseline=none",
        "algorithm.credit.normalise=false",
    ]
    native, weights, _ = play(signalling(history=False), *one)
    others, learnt, _ = play(through_the_gateway(pure=False, history=False), *one)
    assert described(others) == described(native)
    assert any(c.advantage for episode in native for _, c in episode.candidates())
    assert learnt.keys() == weights.keys()
    assert all(torch.equal(learnt[key], weights[key]) for key in weights)
    several, _, _ = play(through_the_gateway(pure=False, history=False), *CHAIN)
    first = {tuple(episode.nodes[0].candidates[0].completion.token_ids) for episode in several}
    assert len(several) == 18 and len(first) > 6  # the samples of a task differ


@pytest.mark.parametrize("sampler", [TreeSampler, JointSampler, ForestSampler, ReplaySampler])
def test_samplers_that_fork_need_a_pure_program(sampler: Callable[[], Sampler]) -> None:
    with pytest.raises(ValueError, match=r"^algorithm\.sampler: .* with env\.pure=true"):
        sampler().check(through_the_gateway(pure=False, history=False))
    sampler().check(through_the_gateway(pure=True, history=False))


async def test_of_a_chat_of_200_calls_the_model_reads_what_is_new() -> None:
    """The tokens of each prompt that it reads, in a chat that grows by two messages per call."""
    tokenizer, model, read = load_tokenizer("laptop_signalling"), load_model("laptop_signalling").eval(), [0]
    model.config.max_position_embeddings = 2048
    engine = TorchEngine({"p": model}, tokenizer, lockstep=False, prefix_cache_gib=0.1)

    async def talk(task: Task, client_for_agent: ClientForAgent) -> float:
        client, messages = client_for_agent("ann"), [{"role": "system", "content": "sender signalling"}]
        for _ in range(200):
            messages.append({"role": "user", "content": "colours red blue before none guess none"})
            messages.append(await client.chat(messages))
            read.append(engine._decoders["p"].forwarded["prompt"])
        return 1.0

    def tasks(split: Split, count: int, seed: int) -> list[Task]:
        return [Task("chat", split, {})]

    world = WorkflowWorld(workflow=talk, tasks=tasks, agents=["ann"], horizon=200)
    client = PolicyClient("p", engine, tokenizer, 2048, Sampling(max_tokens=4))
    ((episode,),) = await ChainSampler(k=1).collect(world, tasks("train", 1, 0), {"ann": client}, seed=0)
    prompts = [len(node.prompt_ids) for node in episode.nodes]
    assert episode.failure is None and len(prompts) == 200 and sum(prompts) > 100_000
    assert max(after - before for before, after in pairwise(read)) <= 16 and read[-1] < 1.2 * prompts[-1]
    await world.close()
    await engine.close()
