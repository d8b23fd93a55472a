"""MAGRPO and its variants on trees of joint actions, by hand."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.algorithms.credit.base import Baseline
from troupe.algorithms.credit.checks import CreditError
from troupe.algorithms.credit.magrpo import Magrpo
from troupe.algorithms.credit.shuffled import ShuffledMagrpo
from troupe.experience import Candidate, Completion, Episode, JointAction, Node, Outcome, Task

Advantages = Callable[[Sequence[Episode]], list[list[float | None]]]
AGENTS = ("helper", "main")
END = Outcome(False, 2, 0.0)


def pair(path: tuple[int, ...], k: int = 2) -> list[Node]:
    """A node of each agent."""
    said = Completion((1,), (-0.5,), "U", "stop", "p", 0)
    return [
        Node("t", a, len(path), (i, *path), [Candidate(said, 0, 0, 0) for _ in range(k)], path=path)
        for i, a in enumerate(AGENTS)
    ]


def aligned(first: int, rewards: Sequence[float], children: Sequence[int | None]) -> list[JointAction]:
    return [
        JointAction({a: (first + i, c) for i, a in enumerate(AGENTS)}, child, None if child else END, reward)
        for c, (reward, child) in enumerate(zip(rewards, children, strict=True))
    ]


def two_turns(rewards: Sequence[Sequence[float]] = ((1, 0), (2, 0), (1, 0))) -> Episode:
    """K = 2: the rewards of the root's joint actions, of those after the first, of those after the second."""
    nodes = [*pair(()), *pair((0,)), *pair((1,))]
    edges = aligned(0, rewards[0], [2, 4]) + aligned(2, rewards[1], [None] * 2) + aligned(4, rewards[2], [None] * 2)
    return Episode(Task("t", "train", {}), nodes, edges)


def judged(rule: Magrpo, episode: Episode, advantages: Advantages) -> list[float | None]:
    rule([episode])
    return advantages([episode])[0]


def test_returns_to_go_less_the_nodes_mean(advantages: Advantages) -> None:
    # R: 1 + (2 + 0) / 2 = 2 and 0 + (1 + 0) / 2 = 0.5, mean 1.25; then 2, 0 and 1, 0.  Both agents alike.
    assert judged(Magrpo(), two_turns(), advantages) == [0.75, -0.75] * 2 + [1, -1] * 2 + [0.5, -0.5] * 2


def test_the_control_has_the_same_advantages_elsewhere(advantages: Advantages) -> None:
    straight, control = (judged(rule, two_turns(), advantages) for rule in (Magrpo(), ShuffledMagrpo(seed=0)))
    assert sorted(control) == sorted(straight)  # type: ignore[type-var]
    assert control != straight
    assert control == judged(ShuffledMagrpo(seed=0), two_turns(), advantages)
    assert control != judged(ShuffledMagrpo(seed=1), two_turns(), advantages)


def test_gamma_discounts_what_follows(advantages: Advantages) -> None:
    # R of the first turn: 1 + 0.5 * 1 and 0 + 0.5 * 0.5, mean 0.875.
    assert judged(Magrpo(gamma=0.5), two_turns(), advantages)[:4] == [0.625, -0.625] * 2
    assert judged(Magrpo(gamma=0), two_turns(), advantages)[:4] == [0.5, -0.5] * 2


@pytest.mark.parametrize(
    ("baseline", "root", "after"),
    [("none", [2, 0.5], [2, 0]), ("leave_one_out", [1.5, -1.5], [2, -2]), ("max", [0, -1.5], [0, -2])],
)
def test_the_variants_differ(baseline: Baseline, root: list[float], after: list[float], advantages: Advantages) -> None:
    found = judged(Magrpo(baseline=baseline), two_turns(), advantages)
    assert found[:6] == root * 2 + after


def test_an_early_end_has_no_future(advantages: Advantages) -> None:
    # The first joint action ends with 1; the second earns 0 and leads to 3 and 1: R = 1 and 2.
    edges = aligned(0, [1, 0], [None, 2]) + aligned(2, [3, 1], [None] * 2)
    episode = Episode(Task("t", "train", {}), [*pair(()), *pair((1,))], edges)
    assert judged(Magrpo(), episode, advantages) == [-0.5, 0.5] * 2 + [1, -1] * 2


def test_where_only_the_best_went_on_rewards_are_compared(advantages: Advantages) -> None:
    root = [
        JointAction({a: (i, c) for i, a in enumerate(AGENTS)}, 2 if c == 0 else None, None, 1.0 - c) for c in (0, 1)
    ]
    episode = Episode(Task("t", "train", {}), [*pair(()), *pair((0,))], root + aligned(2, [5, 3], [None] * 2))
    assert judged(Magrpo(), episode, advantages) == [0.5, -0.5] * 2 + [1, -1] * 2


def test_crossed_candidates_are_worth_the_mean_over_their_combinations(advantages: Advantages) -> None:
    # Rewards 4, 0 of the helper's first with the main agent's two, 2, 2 of its second: 2 and 2; 3 and 1.
    rewards = dict(zip(product((0, 1), repeat=2), [4, 0, 2, 2], strict=True))
    edges = [
        JointAction({a: (i, pick[i]) for i, a in enumerate(AGENTS)}, None, END, reward)
        for pick, reward in rewards.items()
    ]
    episode = Episode(Task("t", "train", {}), pair(()), edges)
    assert judged(Magrpo(), episode, advantages) == [0, 0, 1, -1]
    assert judged(Magrpo(baseline="none"), episode, advantages) == [2, 2, 3, 1]


def test_later_messages_own_rewards_are_not_added_up(advantages: Advantages) -> None:
    """Who ends with 1 is worth more than who goes on, is paid 0.2 for every message, and ends with 1 as well."""
    told = aligned(0, [1.2, 0.2], [None, 2]) + aligned(2, [0.2, 0.2], [4, None]) + aligned(4, [1.2, 1.2], [None] * 2)
    parts = [1.0, 0.0, 0.0, 0.0, 1.0, 1.0]
    edges = [replace(edge, team=team) for edge, team in zip(told, parts, strict=True)]
    episode = Episode(Task("t", "train", {}), [*pair(()), *pair((1,)), *pair((1, 0))], edges)
    # R of the root: 1.2 and 0.2 + (1 + 0) / 2 = 0.7; then 0.2 + 1 and 0.2; then 1.2 twice.
    found = judged(Magrpo(), episode, advantages)
    assert found == pytest.approx([0.25, -0.25] * 2 + [0.5, -0.5] * 2 + [0, 0] * 2)


small = st.integers(-8, 8).map(lambda n: n / 4)  # exact in binary
trees = st.lists(st.lists(small, min_size=2, max_size=2), min_size=3, max_size=3)


@given(trees, small)
def test_a_constant_on_every_reward_changes_nothing(rewards: list[list[float]], constant: float) -> None:
    for baseline in ("mean", "leave_one_out", "max"):
        rule = Magrpo(baseline=baseline)
        one, other = two_turns(rewards), two_turns([[r + constant for r in row] for row in rewards])
        rule([one])
        rule([other])
        for (_, a), (_, b) in zip(one.candidates(), other.candidates(), strict=True):
            assert a.advantage == b.advantage


@given(trees)
def test_permuting_joint_actions_permutes_advantages(rewards: list[list[float]]) -> None:
    one, other = two_turns(rewards), two_turns([rewards[0], rewards[1][::-1], rewards[2]])
    for episode in (one, other):
        Magrpo()([episode])
    found, turned = ([[c.advantage for c in node.candidates] for node in e.nodes] for e in (one, other))
    assert turned == [*found[:2], found[2][::-1], found[3][::-1], *found[4:]]


def test_nodes_are_groups_of_their_own(advantages: Advantages) -> None:
    episode = two_turns()
    keys = [Magrpo().key(node) for node in episode.nodes]
    assert len(set(keys)) == 6
    other = two_turns(((9, 9), (9, 9), (9, 9)))
    for node in other.nodes:
        node.task_id = "u"
    other.task = Task("u", "train", {})
    alone = judged(Magrpo(), two_turns(), advantages)
    Magrpo()([episode, other])
    assert advantages([episode]) == [alone]


def test_what_it_refuses() -> None:
    with pytest.raises(ValueError, match=r"algorithm\.credit: Magrpo judges episodes of a joint sampler"):
        Magrpo().check(4, "tree")
    with pytest.raises(ValueError, match=r"algorithm\.sampler\.k=1"):
        Magrpo().check(1, "joint")
    Magrpo(baseline="none").check(1, "joint")
    with pytest.raises(ValueError, match=r"algorithm\.credit\.gamma must be in \[0, 1\], got 1.5"):
        Magrpo(gamma=1.5)
    with pytest.raises(CreditError, match="episode t, sample 0: a joint action has no reward"):
        Magrpo()([Episode(Task("t", "train", {}), pair(()), [JointAction({"helper": (0, 0)}, None, END)])])


@pytest.mark.parametrize("reward", [nan, inf])
def test_a_joint_reward_that_is_not_finite_names_the_episode(reward: float) -> None:
    with pytest.raises(CreditError, match=rf"episode t, sample 0: .*helper, main.* {reward}"):
        Magrpo()([two_turns(((1, reward), (0, 0), (0, 0)))])


def test_a_std_that_cancels_the_difference_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    Magrpo(baseline="leave_one_out", normalise=True)
    assert "cancels" in caplog.text
