"""All outcomes of the samplers: their probabilities, and the game itself."""

from collections.abc import Callable

import pytest

from troupe.enumeration.game import SECOND, EchoGame, Game, probability
from troupe.enumeration.outcomes import outcomes
from troupe.rollout.samplers.chain import ChainSampler
from troupe.rollout.samplers.forest import ForestSampler
from troupe.rollout.samplers.joint import JointSampler
from troupe.rollout.samplers.sampler import Sampler
from troupe.rollout.samplers.tree import TreeSampler

SAMPLERS: dict[str, tuple[Callable[..., Sampler], bool]] = {
    "chain": (ChainSampler, False),
    "chain, at once": (ChainSampler, True),
    "tree": (TreeSampler, False),
    "joint, best": (lambda k: JointSampler(k=k, growth="best"), True),
}


@pytest.mark.parametrize(("sampler", "at_once"), SAMPLERS.values(), ids=SAMPLERS)
def test_probabilities_sum_to_1(sampler: Callable[..., Sampler], at_once: bool) -> None:
    world = Game(at_once=at_once)
    (task, _) = world.tasks("train", 2, 0)
    assert sum(chance for chance, _ in outcomes(sampler(k=2), world, task)) == pytest.approx(1, abs=1e-12)


def test_a_forest_branches_at_the_drawn_steps_that_its_episode_reaches() -> None:
    """One tree.  Branches leave its second message, or its third, if there is one; a fourth there never is."""
    world = EchoGame()
    (task, _) = world.tasks("train", 2, 0)
    forest = outcomes(ForestSampler(k=1, expansions=1), world, task)
    by_branch = dict.fromkeys(("second", "third", "none"), 0.0)
    for chance, (episode,) in forest:
        branched = [len(node.path) for node in episode.nodes if len(node.candidates) == 2]
        by_branch["second" if branched == [1] else "third" if branched == [2] else "none"] += chance
    echo = sum(probability("easy tool ", action) * probability(f"easy plan {action}", action) for action in (0, 1))
    assert by_branch == pytest.approx({"second": 1 / 3, "third": (1 - echo) / 3, "none": (1 + echo) / 3}, rel=1e-9)


def test_pairs_of_episodes_by_hand() -> None:
    """Of one episode there are 1 + 3 * 4 = 13, so of unordered pairs 13 * 14 / 2; two early ends have p^2."""
    world = Game()
    (task, _) = world.tasks("train", 2, 0)
    pairs = outcomes(ChainSampler(k=2), world, task)
    assert len(pairs) == 91
    early = [chance for chance, episodes in pairs if all(len(e.nodes) == 2 for e in episodes)]
    end = probability("easy tool ", 1) * probability("easy plan 1", 1)
    assert early == [pytest.approx(end**2, rel=1e-12)]


def test_no_two_joint_actions_are_tied() -> None:
    """Else the tree would draw which of two different actions continues."""
    assert len({*SECOND.values(), *(value / 2 for value in SECOND.values())}) == 8
