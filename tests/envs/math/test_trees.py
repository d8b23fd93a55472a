"""Trees are untrusted data, and checked."""

import pytest

from troupe.envs.math.values import check_tree

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
