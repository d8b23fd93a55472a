"""Whatever is said: a rule that needs one prompt a group never gets two, and every candidate is judged."""

from collections.abc import Hashable
from random import Random

import pytest
from transformers import PreTrainedTokenizerFast

from troupe.algorithms.credit.at_grpo import AtGrpo
from troupe.algorithms.credit.base import CreditRule
from troupe.algorithms.credit.c3 import C3
from troupe.algorithms.credit.gdpo import Gdpo
from troupe.algorithms.credit.magrpo import Magrpo
from troupe.envs.base import TeamEnv
from troupe.envs.grid.plan_path import PlanPath
from troupe.envs.grid.sokoban import Sokoban
from troupe.experience import Sampling
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.samplers.joint import JointSampler
from troupe.rollout.samplers.replay import ReplaySampler
from troupe.rollout.samplers.sampler import Sampler
from troupe.rollout.samplers.tree import TreeSampler
from troupe.rollout.scripted import ScriptedEngine

PAIRS: list[tuple[Sampler, CreditRule]] = [
    (TreeSampler(k=3), AtGrpo()),
    (TreeSampler(k=3, team="global", selection="sampled"), Gdpo(weights={"team": 1, "local": 1})),
    (JointSampler(k=2), Magrpo()),
    (JointSampler(k=2, pairing="cross"), Magrpo(baseline="max")),
    (JointSampler(k=3, growth="best"), Magrpo(baseline="leave_one_out")),
    (ReplaySampler(k=3, continuations=2), C3()),
]
WORLDS = {"duet": None, "sokoban": Sokoban(horizon=2), "plan_path": PlanPath(horizon=2)}


def babble(prompt: str, row: int, seed: int) -> str:
    rng = Random(f"{seed}/{row}")
    return " ".join(rng.choice("UDLR") for _ in range(rng.randint(0, 4)))


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(("sampler", "rule"), PAIRS, ids=lambda x: type(x).__name__)
async def test_one_prompt_a_group(
    sampler: Sampler, rule: CreditRule, world: str, duet: TeamEnv, words: PreTrainedTokenizerFast
) -> None:
    played = WORLDS[world] or duet
    client = PolicyClient("p", ScriptedEngine(babble, words), words, 512, Sampling(max_tokens=40))
    tasks = played.tasks("train", 4, 0)
    results = await sampler.collect(played, tasks, dict.fromkeys(played.agents, client), 3)
    episodes = [episode for (episode,) in results]
    prompts: dict[Hashable, set[tuple[int, ...]]] = {}
    for episode in episodes:
        for node in episode.nodes:
            prompts.setdefault(rule.key(node), set()).add(node.prompt_ids)
    assert len(prompts) == sum(len(episode.nodes) for episode in episodes)  # a group is a node, here
    assert all(len(group) == 1 for group in prompts.values())
    rule(episodes)
    assert all(candidate.advantage is not None for episode in episodes for _, candidate in episode.candidates())
    # Whatever the topology, the probabilities of an episode's ends sum to 1.
    for episode in episodes:
        assert sum(chance for chance, _ in episode.leaves) == pytest.approx(1)
