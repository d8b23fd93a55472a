"""Coarser groups, decoupled components, and what no rule may be given."""

import math
from collections.abc import Callable, Sequence

import pytest

from troupe.algorithms.credit.ablations import TreeGroups
from troupe.algorithms.credit.at_grpo import AtGrpo
from troupe.algorithms.credit.base import CreditError
from troupe.algorithms.credit.gdpo import Gdpo
from troupe.algorithms.credit.grpo import Grpo
from troupe.experience import Completion, Episode

Tree = Callable[..., Episode]
Advantages = Callable[[Sequence[Episode]], list[list[float | None]]]


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        # agent: tool 1 1 0 0 (mean .5), plan 0 1 (mean .5).  turn: 1 1 0 1 (.75), 0 0 (0).  flat: 1 1 0 1 0 0 (.5).
        (["agent"], [0.5, 0.5, -0.5, 0.5, -0.5, -0.5]),
        (["turn"], [0.25, 0.25, -0.75, 0.25, 0, 0]),
        ([], [0.5, 0.5, -0.5, 0.5, -0.5, -0.5]),
        (["agent", "turn"], [0, 0, -0.5, 0.5, 0, 0]),
        (["turn", "agent"], [0, 0, -0.5, 0.5, 0, 0]),
    ],
)
def test_groups(tree: Tree, advantages: Advantages, by: list[str], expected: list[float]) -> None:
    episode = tree(("tool", 0, [1, 1]), ("plan", 0, [0, 1]), ("tool", 1, [0, 0]))
    other = tree(("tool", 0, [7, 7]), task="u")  # a task is never compared with another
    TreeGroups(by=by, normalise=False)([episode, other])
    assert advantages([episode, other]) == [expected, [0, 0]]


def test_only_the_finest_groups_need_one_prompt(tree: Tree) -> None:
    twice = tree(("tool", 0, [1, 0]), ("tool", 0, [1, 0]), task="board-7")
    TreeGroups(by=["agent"])([twice])
    with pytest.raises(CreditError, match="board-7"):
        TreeGroups(by=["agent", "turn"])([twice])


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(ValueError, match=r"algorithm\.credit\.by may hold agent and turn, got role"):
        TreeGroups(by=["agent", "role"])


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


def test_a_group_that_lost_candidates(tree: Tree, advantages: Advantages) -> None:
    episode = tree(("tool", 0, [1, 0, 0]), ("plan", 0, [1]), ("tool", 1, []))
    AtGrpo(normalise=False)([episode])
    assert advantages([episode]) == [pytest.approx([2 / 3, -1 / 3, -1 / 3, 0], abs=1e-12)]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("field", ["local", "team", "reward"])
def test_a_reward_that_is_not_finite_names_the_episode(tree: Tree, field: str, value: float) -> None:
    episodes = [tree(("tool", 0, [1, 0])), tree(("tool", 0, [1, 0]), ("plan", 2, [1, 0]), task="board-7")]
    setattr(episodes[1].nodes[1].candidates[1], field, value)
    with pytest.raises(CreditError, match=rf"board-7, sample 0: candidate 1 of agent 'plan' at turn 2.*{value}"):
        AtGrpo()(episodes)
    assert all(candidate.advantage is None for episode in episodes for _, candidate in episode.candidates())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_logprob_that_is_not_finite_names_the_episode(tree: Tree, value: float) -> None:
    episode = tree(("tool", 0, [1, 0]), task="board-7")
    episode.nodes[0].candidates[0].completion = Completion((1, 2), (-0.5, value), "U", "stop", "scout", 0)
    with pytest.raises(CreditError, match=r"board-7.*policy 'scout'\) has a log-probability of"):
        AtGrpo()([episode])


def test_a_return_that_is_not_finite_names_the_episode(chain: Callable[..., Episode]) -> None:
    episodes = [chain(1, ["solo"]), chain(math.nan, ["solo"], task="board-7", sample=3)]
    with pytest.raises(CreditError, match=r"episode board-7, sample 3: its return is not finite"):
        Grpo()(episodes)
