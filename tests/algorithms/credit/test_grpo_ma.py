"""GRPO-MA by hand, and against the formula written plainly."""

from collections.abc import Callable, Sequence
from statistics import fmean, stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.algorithms.credit.grpo_ma import GrpoMa
from troupe.experience import Episode

from .test_tree_grpo import Tree, below, forest

Advantages = Callable[[Sequence[Episode]], list[list[float | None]]]

# Two thoughts with two answers each: one of the first's answers succeeds, both of the second's fail.
SMALL: list[Tree] = [[True, False], [False, False]]


def test_thoughts_by_their_means_and_answers_by_their_outcomes(advantages: Advantages) -> None:
    # Thoughts 1/2, 0: mean 1/4, std 0.353553, so +-0.707107.  Answers 1, 0, 0, 0: mean 1/4, std 1/2, so 1.5 and -0.5.
    episode = forest(SMALL)
    GrpoMa(std_floor=0.0)([episode])
    expected = [0.707107, -0.707107, 1.5, -0.5, -0.5, -0.5]
    assert advantages([episode]) == [pytest.approx(expected, abs=1e-6)]


def test_every_message_of_an_answer_has_its_advantage(advantages: Advantages) -> None:
    # The first answer has two messages, the third node's is its second.
    episode = forest([[[True], False], [False, False]])
    GrpoMa(normalise=False)([episode])
    assert advantages([episode]) == [pytest.approx([1 / 4, -1 / 4, 3 / 4, -1 / 4, 3 / 4, -1 / 4, -1 / 4])]


def test_a_thought_without_answers_is_judged_by_its_own_outcome(advantages: Advantages) -> None:
    # Thoughts 1/2, 1; answers 1, 0 alone: the second thought ended the episode.
    episode = forest([[True, False], True])
    GrpoMa(normalise=False)([episode])
    assert advantages([episode]) == [pytest.approx([-1 / 4, 1 / 4, 1 / 2, -1 / 2])]


def test_the_teams_return_in_place_of_success(advantages: Advantages) -> None:
    # Edges come children first: the answers earn 10 and 1, 3 and 4.
    episode = forest(SMALL)
    GrpoMa(value="team_return", normalise=False)([episode])
    assert advantages([episode]) == [pytest.approx([1, -1, 5.5, -3.5, -1.5, -0.5])]


def test_tasks_are_judged_apart(advantages: Advantages) -> None:
    alone, other = forest(SMALL), forest([[True, True], [True, False]], "other")
    GrpoMa()([alone])
    before = advantages([alone])
    GrpoMa()([alone, other])
    assert advantages([alone]) == before
    assert GrpoMa().live([alone, forest([[True], [True]], "even")]) == {"t"}


@given(st.integers(1, 4).flatmap(lambda m: st.lists(st.lists(st.booleans(), min_size=m, max_size=m), min_size=2)))
def test_the_formula_written_plainly(answers: list[list[bool]]) -> None:
    """As many answers to each thought: advantages are (v - mean) / (std + floor), and each group's sum to 0."""
    episode = forest([[*outcomes] for outcomes in answers])
    GrpoMa(std_floor=0.1)([episode])
    thoughts = standard([fmean(map(float, outcomes)) for outcomes in answers])
    every = standard([float(outcome) for outcomes in answers for outcome in outcomes])
    found = [candidate.advantage or 0.0 for _, candidate in episode.candidates()]
    assert found == pytest.approx([*thoughts, *every], abs=1e-9)
    assert sum(thoughts) == pytest.approx(0, abs=1e-6) and sum(every) == pytest.approx(0, abs=1e-6)


def standard(values: list[float]) -> list[float]:
    if len(set(values)) == 1:
        return [0.0] * len(values)
    return [(value - fmean(values)) / (stdev(values) + 0.1) for value in values]


TREES = st.recursive(st.booleans(), lambda child: st.lists(child, min_size=1, max_size=3), max_leaves=8)


@given(st.lists(TREES, min_size=2, max_size=3))
def test_a_thoughts_advantage_has_nothing_but_the_means_of_its_answers(trees: list[Tree]) -> None:
    """However answers branch on, and whichever of them ended at once."""
    episode = forest(trees)
    GrpoMa(normalise=False)([episode])
    means = [fmean(below(tree)) for tree in trees]
    first = [candidate.advantage or 0.0 for candidate in episode.nodes[0].candidates]
    assert first == pytest.approx([value - fmean(means) for value in means], abs=1e-9)
