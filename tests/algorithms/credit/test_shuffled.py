"""The control: AT-GRPO's advantages, permuted."""

from collections.abc import Callable, Sequence

from troupe.algorithms.credit.at_grpo import AtGrpo
from troupe.algorithms.credit.shuffled import ShuffledAtGrpo
from troupe.experience import Episode

Tree = Callable[..., Episode]
Advantages = Callable[[Sequence[Episode]], list[list[float | None]]]


def episodes_of(tree: Tree) -> list[Episode]:
    return [tree(("tool", 0, [i % 3, 1, 0, 0]), task=f"t{i}") for i in range(8)]


def test_shuffled_advantages_are_the_same_ones_elsewhere(tree: Tree, advantages: Advantages) -> None:
    def judge(rule: AtGrpo) -> list[float | None]:
        episodes = episodes_of(tree)
        rule(episodes)
        return [a for row in advantages(episodes) for a in row]

    straight, shuffled = judge(AtGrpo()), judge(ShuffledAtGrpo(seed=0))
    assert sorted(shuffled) == sorted(straight)  # type: ignore[type-var]
    assert shuffled != straight
    assert shuffled == judge(ShuffledAtGrpo(seed=0)) != judge(ShuffledAtGrpo(seed=1))
