"""Coarser groups by hand, and the prompts that they may hold."""

from collections.abc import Callable, Sequence

import pytest

from troupe.algorithms.credit.ablations import KeyedGroups
from troupe.algorithms.credit.grpo import MasGrpo
from troupe.experience import Candidate, Completion, Episode, JointAction, Node, Outcome, Task

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
    KeyedGroups(by=by, normalise=False)([episode, other])
    assert advantages([episode, other]) == [expected, [0, 0]]


def test_unknown_fields_are_refused() -> None:
    with pytest.raises(ValueError, match=r"algorithm\.credit\.by may hold agent and turn, got role"):
        KeyedGroups(by=["agent", "role"])


def test_the_value_and_the_sampler_belong_together() -> None:
    with pytest.raises(ValueError, match=r"credit\.value must be one of reward, episode, outcome, got 'luck'"):
        KeyedGroups(by=[], value="luck")  # type: ignore[arg-type]
    for value, topology in (("episode", "tree"), ("outcome", "chain"), ("reward", "forest")):
        with pytest.raises(ValueError, match="judges episodes of a"):
            KeyedGroups(by=[], value=value).check(4, topology)  # type: ignore[arg-type]


# ---- chains and forests ---------------------------------------------------------------------------------------------

SAID = Completion((1,), (-0.5,), "U", "stop", "p", 0)


def chain(rewards: Sequence[float], total: float, sample: int) -> Episode:
    """``tool`` and ``plan`` in turn; the episode's return is ``total``."""
    places = [("tool", 0), ("plan", 0), ("tool", 1), ("plan", 1)][: len(rewards)]
    nodes = [
        Node("t", agent, turn, (sample, i), [Candidate(SAID, 0.0, reward, reward, continued=True)])
        for i, ((agent, turn), reward) in enumerate(zip(places, rewards, strict=True))
    ]
    edges = [JointAction({places[i][0]: (i, 0)}, child=i + 1) for i in range(len(nodes) - 1)]
    edges.append(JointAction({places[len(nodes) - 1][0]: (len(nodes) - 1, 0)}, outcome=Outcome(True, 2, total, total)))
    return Episode(Task("t", "train", {}), nodes, edges, sample=sample)


@pytest.mark.parametrize(
    ("value", "by", "expected"),
    [
        # (tool, 0): 1 0; (plan, 0): 0 1; the second turn has one episode alone, and nothing to compare.
        ("reward", ["agent", "turn"], [[0.5, -0.5, 0, 0], [-0.5, 0.5]]),
        # (tool, 0) and (plan, 0): returns 0 and 1.
        ("episode", ["agent", "turn"], [[-0.5, -0.5, 0, 0], [0.5, 0.5]]),
        # Returns 0 0 0 0 1 1: mean 1/3.  As MAS-GRPO.
        ("episode", [], [[-1 / 3] * 4, [2 / 3] * 2]),
        # Of each agent: 0 0 1.  As Dr.MAS.
        ("episode", ["agent"], [[-1 / 3] * 4, [2 / 3] * 2]),
    ],
)
def test_chains(advantages: Advantages, value: str, by: list[str], expected: list[list[float]]) -> None:
    episodes = [chain([1, 0, 0, 0], 0, 0), chain([0, 1], 1, 1)]
    KeyedGroups(by=by, value=value, normalise=False)(episodes)  # type: ignore[arg-type]
    assert advantages(episodes) == [pytest.approx(each) for each in expected]


def test_with_all_messages_in_one_group_chains_are_those_of_mas_grpo(advantages: Advantages) -> None:
    ours, theirs = ([chain([1, 0, 0, 0], 0.3, 0), chain([0, 1], 1, 1)] for _ in range(2))
    KeyedGroups(by=[], value="episode", std_floor=0.2)(ours)
    MasGrpo(std_floor=0.2)(theirs)
    assert advantages(ours) == advantages(theirs)


def test_outcomes_of_a_forest(advantages: Advantages) -> None:
    # Two trees: the first branches after its first message, and ends with 1 and 0; the second ends with 0 at once.
    # No message's own reward, 7, is read.
    nodes = [
        Node("t", "tool", 0, (0,), [Candidate(SAID, 3, 4, 7), Candidate(SAID, 3, 4, 7)]),
        Node("t", "plan", 0, (1,), [Candidate(SAID, 3, 4, 7), Candidate(SAID, 3, 4, 7)]),
    ]
    edges = [
        JointAction({"tool": (0, 0)}, child=1),
        JointAction({"tool": (0, 1)}, outcome=Outcome(False, 1, 0.0)),
        JointAction({"plan": (1, 0)}, outcome=Outcome(True, 1, 1.0)),
        JointAction({"plan": (1, 1)}, outcome=Outcome(False, 1, 0.0)),
    ]
    episode = Episode(Task("t", "train", {}), nodes, edges)
    KeyedGroups(by=["agent", "turn"], value="outcome", normalise=False)([episode])
    # tool: means below 1/2 and 0; plan: 1 and 0.
    assert advantages([episode]) == [pytest.approx([0.25, -0.25, 0.5, -0.5])]
