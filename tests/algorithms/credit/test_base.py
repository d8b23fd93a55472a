"""What a credit rule of a user's own may get wrong, and how it is told."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import pytest

from troupe.algorithms.credit.base import CreditError, CreditRule
from troupe.experience import Episode, Node

Tree = Callable[..., Episode]


class Own(CreditRule):
    """A rule by agent and turn that gives what ``gives`` makes of a group's values."""

    one_prompt_per_group: Any = True
    topologies: Any = ("tree",)

    def __init__(self, gives: Callable[[Sequence[float]], Any] = list) -> None:
        self.gives = gives

    def key(self, node: Node) -> Hashable:
        return (node.agent, node.turn)

    def advantages(self, values: Sequence[float]) -> list[float]:
        found: list[float] = self.gives(values)
        return found


@pytest.mark.parametrize(
    ("gives", "told"),
    [
        (lambda values: values[:-1], r"Own\.advantages must give a list of 3 numbers.*group \('tool', 0\).*gave \[1"),
        (lambda values: None, r"Own\.advantages must give a list of 3 numbers.*gave None"),
        (lambda values: [float("nan")] * 3, r"Own\.advantages of the values \[1\.0, 2\.0, 4\.0\] of the group .*nan"),
    ],
)
def test_advantages_that_are_none(tree: Tree, gives: Callable[[Sequence[float]], Any], told: str) -> None:
    episodes = [tree(("tool", 0, [1, 2, 4]))]
    for judge in (Own(gives), Own(gives).live):
        with pytest.raises(CreditError, match=told):
            judge(episodes)


def test_who_is_left_alone_is_not_asked_about(tree: Tree) -> None:
    episode = tree(("tool", 0, [3.0]), ("plan", 0, [1, 2]))
    rule = Own(lambda values: [value / (len(values) - 1) for value in values])
    rule([episode])
    assert [candidate.advantage for _, candidate in episode.candidates()] == [0, 1, 2]
    rule.least = 1  # a rule that compares with nothing judges it too
    with pytest.raises(ZeroDivisionError):
        rule([episode])


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("topologies", ("three",), r"Own\.topologies must be a tuple of some of tree, chain, joint, replay, got"),
        ("topologies", "tree", r"Own\.topologies must be a tuple .* got 'tree'"),
        ("topologies", (), r"Own\.topologies must be a tuple .* got \(\)"),
        ("topologies", ("chain",), r"Own judges episodes of a chain sampler, but algorithm\.sampler gives trees"),
        ("one_prompt_per_group", None, r"Own\.one_prompt_per_group must be declared: True or False"),
    ],
)
def test_what_a_rule_declares(name: str, value: object, told: str) -> None:
    rule = Own()
    rule.check(4, "tree")
    setattr(rule, name, value)
    with pytest.raises(ValueError, match=rf"^algorithm\.credit: {told}"):
        rule.check(4, "tree")
