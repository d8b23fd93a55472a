"""Equality of trees; the notations of answers are in test_answers.py."""

import pytest

from troupe.envs.math.equality import equal
from troupe.envs.math.values import Tree, check_tree

I_SQUARED: Tree = ["pow", ["const", "i"], ["int", 2]]


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


@pytest.mark.parametrize(
    "answer",
    [
        ["rel", ["="], ["fn", "floor", I_SQUARED], ["int", 1]],  # \lfloor i^2\rfloor = 1
        ["rel", ["="], ["int", 1], ["fn", "max", I_SQUARED, ["int", 3]]],  # 1=\max(i^2,3)
        ["fn", "ceiling", ["add", I_SQUARED, ["const", "pi"]]],
        ["fn", "max", ["const", "i"], ["int", 3]],
        ["fn", "floor", ["const", "i"]],
        ["fn", "factorial", ["const", "i"]],
        ["fn", "atan", ["const", "i"]],
        ["fn", "csc", ["int", 0]],
        ["fn", "log", ["int", 1], ["int", 1]],
        ["fn", "binomial", ["int", -1], ["rat", 1, 2]],
        ["pow", ["int", 0], ["const", "i"]],
    ],
)
def test_what_cannot_be_compared_is_not_equal(answer: Tree) -> None:
    for expected in (["int", 1], ["sym", "x"], ["add", ["sym", "x"], ["int", 1]], ["list", ["int", 1], ["int", 2]]):
        assert check_tree(answer) is not None and not equal(answer, expected)


def test_a_complex_number_without_an_imaginary_part_is_real() -> None:
    assert equal(["fn", "floor", I_SQUARED], ["fn", "floor", ["rat", -1, 2]])
    assert equal(["fn", "abs", I_SQUARED], ["fn", "abs", ["int", -1]])


@pytest.mark.parametrize("kind", ["fn", "apply"])
def test_the_name_of_a_function_is_text_and_it_has_an_argument(kind: str) -> None:
    for rest in ([], ["floor"], [["int", 1]], [["int", 1], ["int", 2]], [1, ["int", 2]], [None, ["int", 2]]):
        assert check_tree([kind, *rest]) is None
    assert check_tree([kind, "floor", ["int", 1]]) is not None
