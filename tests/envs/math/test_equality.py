"""Equality of trees; the notations of answers are in test_answers.py."""

from troupe.envs.math.equality import equal
from troupe.envs.math.trees import check_tree


def test_forged_trees_equal_no_number() -> None:
    """Well-formed trees without a value, or with any, are never equal to a number."""
    gold = ["int", 204]
    for forged in (
        ["fn", "anything", gold],
        ["apply", "f", gold],
        ["sym", "204"],
        ["const", "any"],
        ["const", "inf"],
        ["mul", ["int", 0], ["const", "inf"]],
        ["pow", ["int", 0], ["int", -1]],
        ["list", gold, ["int", 205]],
        ["set", ["int", 205], gold],
        ["union", gold, gold],
        ["rel", ["!="], ["sym", "x"], ["int", 5]],
        ["text", "204"],
    ):
        assert check_tree(forged) is not None and not equal(forged, gold), forged


def test_nearly_equal_values_differ() -> None:
    # e^(pi sqrt(163)) is an integer to twelve places, and none.
    near = ["fn", "exp", ["mul", ["const", "pi"], ["pow", ["int", 163], ["rat", 1, 2]]]]
    assert not equal(near, ["int", 262537412640768744])
    assert not equal(["add", near, ["const", "pi"]], ["add", ["int", 262537412640768744], ["const", "pi"]])
