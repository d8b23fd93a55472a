"""Episode-wise credit: values worked out by hand."""

from collections.abc import Sequence

import pytest

from troupe.algorithms.credit.checks import CreditError
from troupe.algorithms.credit.dr_mas import DrMas
from troupe.algorithms.credit.grpo import Grpo, MasGrpo
from troupe.experience import Candidate, Completion, Episode, JointAction, Node, Outcome, Task

SPOKEN = Completion((1,), (-0.5,), "U", "stop", "policy", 0)


def chain(value: float | None, agents: Sequence[str], task: str = "t", sample: int = 0) -> Episode:
    """An episode in which ``agents`` spoke one after the other, each to a prompt of its own."""
    nodes = [
        Node(task, agent, turn, (sample, turn), [Candidate(SPOKEN, local=0.3, team=0.0, reward=0.3, continued=True)])
        for turn, agent in enumerate(agents)
    ]
    edges = [JointAction({agent: (i, 0)}, child=i + 1) for i, agent in enumerate(agents[:-1])]
    edges.append(JointAction({agents[-1]: (len(agents) - 1, 0)}, outcome=Outcome(True, len(agents), 1.0, value)))
    return Episode(Task(task, "train", {}), nodes, edges, sample=sample)


def advantages(episodes: Sequence[Episode]) -> list[list[float | None]]:
    return [[candidate.advantage for _, candidate in episode.candidates()] for episode in episodes]


def test_grpo_compares_episodes() -> None:
    episodes = [chain(1, ["solo"]), chain(0, ["solo"] * 4, sample=1), chain(0, ["solo"] * 4, sample=2)]
    Grpo(std_floor=0)(episodes)
    # mean 1/3; squared deviations 4/9 + 1/9 + 1/9 = 2/3; unbiased variance 1/3; std 0.577350269190
    # (1 - 1/3) / std = 1.154700538379;  (0 - 1/3) / std = -0.577350269190
    assert advantages(episodes) == [
        pytest.approx([1.154700538379], abs=1e-12),
        pytest.approx([-0.577350269190] * 4, abs=1e-12),
        pytest.approx([-0.577350269190] * 4, abs=1e-12),
    ]


def test_mas_grpo_compares_messages() -> None:
    episodes = [chain(1, ["tool", "plan"]), chain(0, ["tool", "plan"] * 2, sample=1)]
    MasGrpo(std_floor=0)(episodes)
    # Six messages of values 1 1 0 0 0 0: mean 1/3; squared deviations 2 * 4/9 + 4 * 1/9 = 4/3; unbiased variance
    # 4/15; std 0.516397779494.  (2/3) / std = 1.290994448736;  (-1/3) / std = -0.645497224368
    # (over the two episodes it would be 0.7071 and -0.7071)
    assert advantages(episodes) == [
        pytest.approx([1.290994448736] * 2, abs=1e-12),
        pytest.approx([-0.645497224368] * 4, abs=1e-12),
    ]


@pytest.mark.parametrize("rule", [Grpo, MasGrpo, DrMas])
def test_tasks_are_groups_of_their_own(rule: type[Grpo] | type[MasGrpo]) -> None:
    alone = [chain(1, ["tool", "plan"]), chain(0.2, ["tool", "plan"], sample=1)]
    rule()(alone)
    beside = [chain(1, ["tool", "plan"]), chain(0.2, ["tool", "plan"], sample=1)]
    others = [chain(7, ["tool"], task="u"), chain(9, ["tool"], task="u", sample=1)]
    rule()([beside[0], others[0], beside[1], others[1]])
    assert advantages(beside) == advantages(alone)


@pytest.mark.parametrize("rule", [Grpo, MasGrpo])
def test_equal_returns_teach_nothing(rule: type[Grpo] | type[MasGrpo]) -> None:
    episodes = [chain(0.1, ["tool"] * n, sample=n) for n in (1, 2, 3)]
    rule()(episodes)
    assert advantages(episodes) == [[0.0], [0.0, 0.0], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize("rule", [Grpo(), MasGrpo()])
def test_trees_are_refused(rule: Grpo | MasGrpo) -> None:
    with pytest.raises(ValueError, match=r"algorithm\.credit: .* chain sampler, but algorithm\.sampler gives trees"):
        rule.check(4, "tree")
    rule.check(4, "chain")
    with pytest.raises(CreditError, match="board-7"):
        rule([chain(None, ["tool"], task="board-7")])


def test_rloo() -> None:
    # Means of the others: 0.5 (of 0 and 1), 1, 0.5.
    episodes = [chain(v, ["tool", "plan"], sample=i) for i, v in enumerate([1, 0, 1])]
    Grpo(baseline="leave_one_out", normalise=False)(episodes)
    assert advantages(episodes) == [pytest.approx([a, a], abs=1e-12) for a in (0.5, -1, 0.5)]


def test_dr_grpo() -> None:
    episodes = [chain(v, ["solo"], sample=i) for i, v in enumerate([1, 0, 0.5, 0])]
    Grpo(normalise=False)(episodes)
    assert advantages(episodes) == [[0.625], [-0.375], [0.125], [-0.375]]
