"""Coarser groups by hand, and the prompts that they may hold."""

from collections.abc import Callable, Sequence

import pytest

from troupe.algorithms.credit.ablations import TreeGroups
from troupe.algorithms.credit.checks import CreditError
from troupe.experience import Episode

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
