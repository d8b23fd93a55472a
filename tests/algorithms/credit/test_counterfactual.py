"""Marginal credit by hand, and whatever the outcomes are."""

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.algorithms.credit.checks import CreditError
from troupe.algorithms.credit.counterfactual import Counterfactual
from troupe.experience import Candidate, Completion, Episode, Node, Task

Tree = Callable[..., Episode]
Advantages = Callable[[Sequence[Episode]], list[list[float | None]]]


def test_what_a_message_adds(tree: Tree, advantages: Advantages) -> None:
    # Without the first message the team earns 0.25, without the second 1: it did harm, or nothing.
    episode = tree(("tool", 0, [1, 0]), ("plan", 0, [(0.5, 0.125), 1]))
    episode.nodes[0].removed, episode.nodes[1].removed = 0.25, 1.0
    Counterfactual(removal="")([episode])
    assert advantages([episode]) == [[0.75, -0.25, -0.375, 0]]


def test_one_candidate_is_enough(tree: Tree, advantages: Advantages) -> None:
    rule, episode = Counterfactual(removal=""), tree(("tool", 0, [1]))
    rule.check(1, "replay")
    episode.nodes[0].removed = 0.5
    rule([episode])
    assert advantages([episode]) == [[0.5]]


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=4), st.floats(-5, 5), st.floats(-5, 5))
def test_a_return_that_every_message_gets_changes_nothing(values: list[float], removed: float, more: float) -> None:
    def judged(shift: float) -> list[float | None]:
        said = Completion((1,), (-0.5,), "U", "stop", "p", 0)
        candidates = [Candidate(said, 0.0, value + shift, value + shift) for value in values]
        node = Node("t", "tool", 0, (1,), candidates, removed=removed + shift)
        Counterfactual(removal="")([Episode(Task("t", "train", {}), [node], [])])
        return [candidate.advantage for candidate in candidates]

    assert judged(more) == pytest.approx(judged(0.0), abs=1e-9)
    assert judged(0.0) == [value - removed for value in values]


def test_an_episode_without_removals_is_named(tree: Tree) -> None:
    with pytest.raises(CreditError, match="episode t, sample 0: a message of tool was not removed"):
        Counterfactual(removal="")([tree(("tool", 0, [1]))])


def test_a_sampler_that_removes_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match=r"algorithm\.sampler\.removal: Counterfactual needs a text"):
        Counterfactual(removal=None)
