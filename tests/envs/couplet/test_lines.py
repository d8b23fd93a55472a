"""Lines of a couplet: their words and their score."""

import pytest

from troupe.envs.couplet.world import (
    FAMILIES,
    FAMILY,
    FILLERS,
    LEXICON,
    SUBJECTS,
    Fit,
    Half,
    fit,
    read_line,
    vocabulary,
)

HALVES = (
    Half(("river", "stone"), ("moon", "night", "rain")),
    Half(("garden", "tower"), ("day", "spoon", "plain")),
)
FITTING = ("the river under stone moon", "a garden with tower spoon")


def test_no_word_means_two_things() -> None:
    words = vocabulary()
    assert len(words) == len(set(words)) and set(words) >= LEXICON
    assert [len(family) for family in FAMILIES] == [2] * 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("the river moon", 3),
        ("  the\nriver\tmoon ", 3),
        ("a and beside beyond by from in into", 8),
        ("a and beside beyond by from in into my", 0),  # more than 8
        ("the river the moon", 0),  # twice
        ("the rivers moon", 0),
        ("the river moon.", 0),
        ("The river moon", 0),
        ("", 0),
    ],
)
def test_what_a_line_is(text: str, words: int) -> None:
    assert len(read_line(text, 8)) == words


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (*FITTING, Fit(1, 1, 1)),
        ("river stone moon", "tower garden spoon", Fit(1, 1, 1)),
        ("the river under stone moon", "a garden tower spoon", Fit(1, 0.5, 1)),
        ("the river under stone moon", "garden tower spoon", Fit(1, 0, 1)),
        ("the river under stone moon", "a garden with tower plain", Fit(1, 1, 0)),  # other families
        ("the river under stone moon", "a garden with tower moon", Fit(1, 1, 0)),  # it rhymes, but is not its word
        ("the river under stone moon", "a garden spoon with tower", Fit(1, 1, 0)),  # the rhyme is not at the end
        ("the river under a moon", "a garden with tower spoon", Fit(0.75, 1, 1)),
        ("a garden with tower spoon", "the river under stone moon", Fit(0, 1, 0)),  # each the other's
        ("the moon", "the spoon", Fit(0, 1, 1)),
        ("the river under stone moon", "", Fit()),
    ],
)
def test_fit_by_hand(first: str, second: str, expected: Fit) -> None:
    lines = [read_line(text, 8) for text in (first, second)]
    assert fit(HALVES, lines) == expected


@pytest.mark.parametrize(
    ("quality", "score"),
    [(Fit(1, 1, 1), 1.0), (Fit(1, 1, 0), 2 / 3), (Fit(1, 0.5, 0), 0.5), (Fit(0.5, 1, 1), 0.5), (Fit(0, 1, 1), 0.0)],
)
def test_scores_by_hand(quality: Fit, score: float) -> None:
    assert quality.score == pytest.approx(score)
    assert quality.complete == (score == 1)


def test_fillers_rhyme_with_nothing() -> None:
    assert not set(FILLERS) & FAMILY.keys() and not set(SUBJECTS) & FAMILY.keys()
