"""GDPO by hand, under every mix of rewards; mixes that contradict each other."""

import math
from collections.abc import Callable, Sequence
from math import sqrt
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf
from transformers import PreTrainedTokenizerFast

from troupe.algorithms.credit.at_grpo import AtGrpo
from troupe.algorithms.credit.checks import CreditError
from troupe.algorithms.credit.gdpo import Gdpo
from troupe.envs.grid.sokoban import Sokoban
from troupe.experience import Episode, Sampling, Task
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.samplers.chain import ChainSampler
from troupe.rollout.samplers.joint import JointSampler
from troupe.rollout.samplers.replay import ReplaySampler
from troupe.rollout.samplers.tree import TreeSampler
from troupe.rollout.scripted import ScriptedEngine

Tree = Callable[..., Episode]
Advantages = Callable[[Sequence[Episode]], list[list[float | None]]]
WEIGHTS = {"team": 1.0, "local": 0.5, "overlong": 0.25}
S = 1 / sqrt(2)  # two values that differ, normalised: S and -S


def test_gdpo_by_hand(tree: Tree, advantages: Advantages) -> None:
    # team 1, 0: +-0.7071 (std sqrt(.5)); local 0, 0.1: -+0.7071 whatever its size.  0.7071 - 0.5 * 0.7071 = 0.3536.
    episode = tree(("plan", 0, [(1, 0), (0, 0.1)]))
    Gdpo(weights={"team": 1, "local": 0.5}, batch=False, std_floor=0)([episode])
    assert advantages([episode]) == [pytest.approx([0.353553390593, -0.353553390593], abs=1e-12)]
    # Mixed before, the local reward hardly counts: the sum differs by 0.9.
    AtGrpo(std_floor=0)([episode])
    assert advantages([episode]) == [pytest.approx([0.707106781187, -0.707106781187], abs=1e-12)]


def test_gdpo_over_the_batch(tree: Tree, advantages: Advantages) -> None:
    # Sums: +-1.4142 in the first node, 0 in the second: mean 0, squares 2 * 2 / 4 = 1.
    episode = tree(("tool", 0, [(1, 0.1), (0, 0)]), ("plan", 0, [(1, 0), (1, 0)]))
    Gdpo(weights={"team": 1, "local": 1}, std_floor=0)([episode])
    assert advantages([episode]) == [pytest.approx([math.sqrt(2), -math.sqrt(2), 0, 0], abs=1e-12)]


def test_gdpos_weights_are_checked() -> None:
    with pytest.raises(ValueError, match=r"algorithm\.credit\.weights must weigh team and local, got team"):
        Gdpo(weights={"team": 1})


def test_gdpo_leaves_dead_groups_at_exactly_0(tree: Tree, advantages: Advantages) -> None:
    """The mean over the iteration is rounding alone, 1e-17 or so."""
    episode = tree(("tool", 0, [0.1, 0.7, 0.3]), ("plan", 0, [0.3, 0.3, 0.3]), ("tool", 1, [0.9, 0.1, 0.2]))
    Gdpo(weights={"team": 1, "local": 1})([episode])
    assert advantages([episode])[0][3:6] == [0.0, 0.0, 0.0]


# ---- the mix of rewards ----------------------------------------------------------------------------------------------


def mixed(tree: Tree, alpha: float = 1.0, local: bool = True, overlong: Sequence[float] = (0, 0)) -> Episode:
    """The first candidate earns the team's reward; the second a local one, and is the shorter one."""
    episode = tree(("plan", 0, [(1, 0), (0, 0.1)]))
    for candidate, penalty in zip(episode.nodes[0].candidates, overlong, strict=True):
        candidate.overlong = penalty
        candidate.reward = alpha * candidate.team + local * candidate.local + penalty
    return episode


@pytest.mark.parametrize(
    ("mix", "overlong", "expected"),
    [
        ({}, (0, 0), (1 - 0.5) * S),
        ({"alpha": 2.0}, (0, 0), (2 - 0.5) * S),
        ({"alpha": 0.0}, (0, 0), -0.5 * S),
        ({"local": False}, (0, 0), S),
        ({}, (-0.75, 0), (1 - 0.5 - 0.25) * S),
        ({"alpha": 2.0, "local": False}, (-0.75, 0), (2 - 0.25) * S),
    ],
)
def test_every_part_of_the_mix_counts(
    tree: Tree, mix: dict[str, Any], overlong: tuple[float, float], expected: float
) -> None:
    episode = mixed(tree, overlong=overlong, **mix)
    Gdpo(weights=WEIGHTS, batch=False, std_floor=0, **mix)([episode])
    found = [candidate.advantage for _, candidate in episode.candidates()]
    assert found == pytest.approx([expected, -expected], abs=1e-12)


def test_what_the_mix_leaves_out_makes_no_task_live(tree: Tree) -> None:
    episode = tree(("plan", 0, [(1, 0), (1, 0.1)]))
    for candidate in episode.nodes[0].candidates:
        candidate.reward = candidate.team
    rule = Gdpo(weights=WEIGHTS, local=False)
    assert rule.live([episode]) == set()
    rule([episode])
    assert [candidate.advantage for _, candidate in episode.candidates()] == [0.0, 0.0]


@pytest.mark.parametrize("mix", [{"alpha": 2.0}, {"local": False}, {"overlong": (-0.5, 0)}])
def test_rewards_that_were_mixed_otherwise_are_refused(tree: Tree, mix: dict[str, Any]) -> None:
    episode = mixed(tree, **mix)
    if "overlong" in mix:  # a sampler of the user's own, which does not say what it took off
        episode.nodes[0].candidates[0].overlong = 0.0
    with pytest.raises(
        CreditError, match=r"episode t, sample 0: .*alpha and local must be those of algorithm\.sampler"
    ):
        Gdpo(weights=WEIGHTS)([episode])


def test_the_configuration_hands_the_mix_over(composed: Callable[..., DictConfig]) -> None:
    sampler = ("algorithm.sampler.alpha=0.5", "algorithm.sampler.local=false")
    cfg = composed("experiment=sokoban_specialized", "run_dir=nowhere", "algorithm=gdpo", *sampler)
    credit = OmegaConf.to_container(cfg.algorithm.credit, resolve=True)
    assert isinstance(credit, dict)
    assert (credit["alpha"], credit["local"]) == (0.5, False)


@pytest.mark.parametrize("sampler", [TreeSampler, ChainSampler, ReplaySampler, JointSampler])
async def test_samplers_say_what_they_took_off_for_length(
    sampler: type[TreeSampler], words: PreTrainedTokenizerFast, board: Task
) -> None:
    """Four words and the end: 5 of at most 8 tokens, where the penalty begins after 4: -1/4."""
    client = PolicyClient("p", ScriptedEngine(lambda *_: "R U D L", words), words, 512, Sampling(max_tokens=8))
    clients = {"tool": client, "plan": client}
    (episodes,) = await sampler(k=2, alpha=2.0, overlong=0.5).collect(Sokoban(horizon=1), [board], clients, 0)
    candidates = [candidate for episode in episodes for _, candidate in episode.candidates()]
    assert {candidate.overlong for candidate in candidates} == {-0.25}
    assert all(c.reward == pytest.approx(2 * c.team + c.local + c.overlong) for c in candidates)
