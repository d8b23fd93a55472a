"""Values of expressions: exact, bounded in time and size."""

import time
from fractions import Fraction

import pytest

from troupe.envs.math.values import Undecided, value


@pytest.mark.parametrize(
    "tree",
    [
        ["pow", ["int", 10], ["pow", ["int", 10], ["int", 10]]],
        ["fn", "factorial", ["fn", "factorial", ["int", 30]]],
        ["fn", "binomial", ["int", 10**9], ["int", 10**8]],
        ["fn", "exp", ["fn", "exp", ["int", 100]]],
        ["fn", "sin", ["int", 10**12]],
        ["fn", "log", ["int", 0]],
        ["fn", "floor", ["const", "i"]],
        ["pow", ["int", 0], ["const", "i"]],
    ],
)
def test_values_are_bounded(tree: list) -> None:
    start = time.process_time()
    with pytest.raises(Undecided):
        value(tree, {})
    assert time.process_time() - start < 0.5


def test_values_are_exact_where_they_are_rational() -> None:
    assert value(["pow", ["rat", 8, 27], ["rat", 2, 3]], {}) == Fraction(4, 9)
    assert value(["fn", "floor", ["pow", ["int", 2], ["rat", 1, 2]]], {}) == 1
    assert (
        value(["fn", "ceiling", ["mul", ["pow", ["int", 2], ["rat", 1, 2]], ["pow", ["int", 2], ["rat", 1, 2]]]], {})
        == 2
    )
