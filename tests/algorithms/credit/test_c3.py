"""C3 by hand."""

from collections.abc import Callable, Sequence

import pytest

from troupe.algorithms.credit.c3 import C3
from troupe.experience import Episode

Tree = Callable[..., Episode]
Advantages = Callable[[Sequence[Episode]], list[list[float | None]]]


def test_each_message_is_compared_with_the_others(tree: Tree, advantages: Advantages) -> None:
    # Means of the others: 0.5 (of 0 and 1), 1, 0.5; the second node has a baseline of its own.
    episode = tree(("tool", 0, [1, 0, 1]), ("plan", 0, [3, 1]))
    C3()([episode])
    assert advantages([episode]) == [pytest.approx([0.5, -1, 0.5, 2, -2], abs=1e-12)]
