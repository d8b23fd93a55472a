"""The boxes of solutions and messages."""

import pytest

from troupe.envs.math.answers import boxed_answers

BOXES: list[tuple[str, list[str]]] = [
    ("so \\boxed{\\frac{1}{2}}.", ["\\frac{1}{2}"]),
    ("$\\boxed 7$", ["7"]),
    ("\\boxed {7}", ["7"]),
    ("\\fbox{3}", ["3"]),
    ("\\boxed{1} and \\boxed{\\{1,2\\}}", ["1", "\\{1,2\\}"]),
    ("a \\boxed{1} b \\boxed{\\frac{1}{2}} \\boxed{3", ["1", "\\frac{1}{2}"]),
    ("\\boxed{\\boxed{2}}", ["\\boxed{2}"]),
    ("\\boxed{1\\\\{2}}", ["1\\\\{2}"]),
    ("\\boxed{\\{1\\\\\\}}", ["\\{1\\\\\\}"]),
    ("\\boxed7 and \\boxed -3 and \\boxed 0.5", ["7", "-3", "0.5"]),
    ("$\\boxed x$ or \\boxed C.", ["x", "C"]),
    ("\\boxed (1,2)", ["(1,2)"]),
    ("we get \\boxed when done, with \\boxed, or \\boxed.", []),
    ("\\boxedx", []),
    ("\\boxed{2", []),
    ("boxed{1}", []),
    ("no box", []),
]


@pytest.mark.parametrize(("text", "answers"), BOXES)
def test_boxes(text: str, answers: list[str]) -> None:
    assert boxed_answers(text) == answers


def test_boxes_are_read_in_one_pass() -> None:
    """A million characters of boxes that nobody closes: a scan from each would take hours."""
    assert boxed_answers(r"} \boxed{a{b}\}c} and \boxed{x" + r"\boxed{" * 150_000) == [r"a{b}\}c"]
