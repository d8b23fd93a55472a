"""Values of expressions: exact, bounded in time and size."""

import time
from fractions import Fraction

import pytest

from troupe.envs.math.values import Undecided, check_tree, value


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


# ---- trees are untrusted data, and checked ---------------------------------------------------------------------------


DEEP: list = ["int", 1]
for _ in range(3000):
    DEEP = ["add", DEEP]


@pytest.mark.parametrize(
    "forged",
    [
        *(None, 5, "204", [], [[]], {}, ["either", ["int", 1], ["int", 2]], ["int", True], ["int", 1.0], ["int", "1"]),
        *(["rat", 1, 0], ["rat", 1, -2], ["int"], ["int", 1, 2], ["pow", ["int", 1]], ["add"], ["rel", [], ["int", 1]]),
        *(["rel", ["~"], ["int", 1], ["int", 1]], ["interval", ["int", 1], ["int", 2], 1, 0], ["sym", ["int", 1]]),
        *(["list", *([["int", 1]] * 2001)], DEEP, ["add", ["int", 1], {"int": 1}]),
    ],
)
def test_data_that_is_no_tree(forged: object) -> None:
    assert check_tree(forged) is None
