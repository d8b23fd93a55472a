"""AT-GRPO's advantages: values worked out by hand, invariances, and the groups they are computed in."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.algorithms.credit.at_grpo import AtGrpo
from troupe.algorithms.credit.checks import CreditError
from troupe.experience import Candidate, Completion, Episode, Node, Task

SPOKEN = Completion((1,), (-0.5,), "U", "stop", "policy", 0)

grid_rewards = st.lists(st.integers(0, 8).map(lambda n: n / 8), min_size=2, max_size=8)
"""Eighths: their sums and differences are exact."""


def node(
    rewards: Sequence[float], *, task: str = "t", agent: str = "tool", turn: int = 0, prompt: tuple[int, ...] = (1, 2)
) -> Node:
    candidates = [Candidate(SPOKEN, local=0.0, team=reward, reward=reward) for reward in rewards]
    return Node(task, agent, turn, prompt, candidates)


def episode(*nodes: Node) -> Episode:
    return Episode(Task(nodes[0].task_id, "train", {}), list(nodes), [])


def advantages(node: Node) -> list[float | None]:
    return [candidate.advantage for candidate in node.candidates]


# ---- values ---------------------------------------------------------------------------------------------------------


def test_two_of_four_succeed() -> None:
    # mean 1/2; squared deviations 4 * 1/4 = 1; unbiased variance 1/3; std 0.577350269190
    # 0.5 / (0.577350269190 + 0.000001) = 0.866023903787   (the biased std, 1/2, would give 0.999998)
    assert AtGrpo().advantages([1, 0, 0, 1]) == pytest.approx(
        [0.866023903787, -0.866023903787, -0.866023903787, 0.866023903787], abs=1e-12
    )


def test_the_papers_floor_and_a_larger_one() -> None:
    # rewards 1, 0.1, 0, 0: mean 0.275; squared deviations 0.525625 + 0.030625 + 2 * 0.075625 = 0.7075;
    # unbiased variance 0.7075 / 3 = 0.235833..; std 0.485626742811
    rewards = [1, 0.1, 0, 0]
    # over 0.485627742811: 0.725, -0.175, -0.275 become
    papers = [1.492913060945, -0.360358325056, -0.566277367945, -0.566277367945]
    # over 0.685626742811:
    floored = [1.057426664876, -0.255240919109, -0.401092872884, -0.401092872884]
    assert AtGrpo(std_floor=1e-6).advantages(rewards) == pytest.approx(papers, abs=1e-11)
    assert AtGrpo(std_floor=0.2).advantages(rewards) == pytest.approx(floored, abs=1e-11)


def test_without_division() -> None:
    assert AtGrpo(normalise=False, std_floor=0.2).advantages([1, 0.1, 0, 0]) == pytest.approx(
        [0.725, -0.175, -0.275, -0.275], abs=1e-15
    )


def test_two_candidates() -> None:
    # deviations -1/2, 1/2; unbiased std sqrt(1/4 + 1/4) = 0.707106781187; 0.5 / 0.707107781187 = 0.707105781188
    assert AtGrpo().advantages([0, 1]) == pytest.approx([-0.707105781188, 0.707105781188], abs=1e-12)


@pytest.mark.parametrize("floor", [0.0, 1e-6, 0.2])
@pytest.mark.parametrize("reward", [0.0, 0.1, 1.0])
def test_equal_rewards_teach_nothing(reward: float, floor: float) -> None:
    # (0.1 summed three times over 3 is not 0.1 in floating point: a plain formula would leave a residue over 1e-6)
    assert AtGrpo(std_floor=floor).advantages([reward] * 3) == [0.0, 0.0, 0.0]


# ---- invariances ----------------------------------------------------------------------------------------------------


@given(grid_rewards, st.randoms(use_true_random=False))
def test_permuting_candidates_permutes_advantages(rewards: list[float], random: Random) -> None:
    order = list(range(len(rewards)))
    random.shuffle(order)
    straight = AtGrpo().advantages(rewards)
    assert AtGrpo().advantages([rewards[i] for i in order]) == pytest.approx([straight[i] for i in order], abs=1e-12)


@given(grid_rewards, st.integers(-16, 16).map(lambda n: n / 8), st.booleans())
def test_a_constant_on_every_reward_changes_nothing(rewards: list[float], constant: float, normalise: bool) -> None:
    rule = AtGrpo(normalise=normalise)
    assert rule.advantages([r + constant for r in rewards]) == pytest.approx(rule.advantages(rewards), abs=1e-12)


@given(grid_rewards, st.sampled_from([1e-6, 0.2]), st.booleans())
def test_advantages_sum_to_zero_and_follow_the_rewards(rewards: list[float], floor: float, normalise: bool) -> None:
    found = AtGrpo(normalise=normalise, std_floor=floor).advantages(rewards)
    assert sum(found) == pytest.approx(0, abs=1e-12)
    by_reward = sorted(zip(rewards, found, strict=True))
    assert [a for _, a in by_reward] == sorted(found)
    assert len(set(found)) == len(set(rewards))


# ---- groups ---------------------------------------------------------------------------------------------------------


def test_each_task_agent_and_turn_has_its_own_baseline() -> None:
    # One group of all would have mean 1/2, and give the groups of equal rewards an advantage.
    first = episode(
        node([1, 1], agent="tool", turn=0, prompt=(1,)),
        node([0, 1], agent="plan", turn=0, prompt=(2,)),
        node([0, 0], agent="tool", turn=1, prompt=(3,)),
        node([1, 0], agent="plan", turn=1, prompt=(4,)),
    )
    second = episode(node([0, 0], task="u", prompt=(5,)), node([1, 1], task="u", agent="plan", prompt=(6,)))
    AtGrpo(normalise=False)([first, second])
    assert [advantages(n) for n in first.nodes] == [[0, 0], [-0.5, 0.5], [0, 0], [0.5, -0.5]]
    assert [advantages(n) for n in second.nodes] == [[0, 0], [0, 0]]


def test_nodes_of_one_key_and_one_prompt_share_a_baseline() -> None:
    one, other = node([1, 1]), node([0, 0])
    AtGrpo(normalise=False)([episode(one), episode(other)])
    assert advantages(one) == [0.5, 0.5]
    assert advantages(other) == [-0.5, -0.5]


def test_two_prompts_in_one_group_are_refused() -> None:
    one, other = node([1, 0], task="board-7", prompt=(1, 2)), node([1, 0], task="board-7", prompt=(1, 3))
    with pytest.raises(CreditError, match="board-7"):
        AtGrpo()([episode(one, other)])


@pytest.mark.parametrize("normalise", [True, False])
def test_one_candidate_is_refused(normalise: bool) -> None:
    with pytest.raises(ValueError, match=r"algorithm\.sampler\.k=1"):
        AtGrpo(normalise=normalise).check(1, "tree")
    AtGrpo(normalise=normalise).check(2, "tree")


def test_chains_are_refused() -> None:
    with pytest.raises(ValueError, match=r"algorithm\.credit: AtGrpo .* tree sampler, .* gives chains"):
        AtGrpo().check(4, "chain")


def test_a_negative_floor_is_refused() -> None:
    with pytest.raises(ValueError, match=r"algorithm\.credit\.std_floor"):
        AtGrpo(std_floor=-0.1)
