"""Normalisation, exact match and F1, by hand."""

import pytest

from troupe.envs.search.sources import contains, exact_match, f1, normalise


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Beatles!", "beatles"),
        ("an apple a day", "apple day"),
        ("U.S.", "us"),
        ("rock-and-roll", "rockandroll"),
        ("Theatre", "theatre"),
        ("don't\tstop\n", "dont stop"),
        ("«Ça»", "«ça»"),  # the script knows ASCII punctuation alone
        ("The a an .", ""),
        ("", ""),
    ],
)
def test_normalisation(text: str, expected: str) -> None:
    assert normalise(text) == expected


@pytest.mark.parametrize(
    ("answer", "accepted", "match", "overlap"),
    [
        ("Paris", ["Paris"], True, 1.0),
        ("the paris.", ["Paris, France", "Paris"], True, 1.0),
        ("Paris, France", ["Paris"], False, 2 / 3),
        ("in the city of Paris", ["Paris"], False, 2 / 5),  # in city of paris
        ("Barack Hussein Obama", ["Barack Obama"], False, 4 / 5),
        ("Obama Barack", ["Barack Obama"], False, 1.0),
        ("paris paris", ["Paris"], False, 2 / 3),
        ("New York City", ["York", "New York"], False, 4 / 5),
        ("London", ["Paris"], False, 0.0),
        ("yes", ["yes"], True, 1.0),
        ("no", ["yes"], False, 0.0),
        ("yes it is", ["yes"], False, 0.0),  # HotpotQA's rule
        ("1,000", ["1000"], True, 1.0),
        ("Ｐａｒｉｓ", ["Paris"], False, 0.0),
        ("Париж", ["Paris"], False, 0.0),
        ("", ["Paris"], False, 0.0),
        ("the", ["Paris"], False, 0.0),
        ("the", ["The The"], False, 0.0),  # nothing is left of either
        ("Paris", [], False, 0.0),
    ],
)
def test_exact_match_and_f1(answer: str, accepted: list[str], match: bool, overlap: float) -> None:
    assert exact_match(answer, accepted) is match
    assert f1(answer, accepted) == pytest.approx(overlap)


def test_words_in_a_row() -> None:
    assert contains("He was born in New-York, the U.S.", "the US")
    assert contains("He died in New York.", "new york")
    assert not contains("He died in Newark, York.", "New York") and not contains("Yorkshire", "York")
    assert not contains("anything", "the")
