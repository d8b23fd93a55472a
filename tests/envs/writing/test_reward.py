"""The reward of Writing, by hand: every level and its bounds, for the constants of each kind."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.envs.writing.reward import (
    POINTS,
    STYLES,
    Band,
    TextScore,
    jaccard,
    score,
    transition_share,
    vocabulary,
)
from troupe.envs.writing.transitions import STOP_WORDS, TRANSITIONS

TLDR, ARXIV = STYLES["tldr"], STYLES["arxiv"]
EIGHT = "the cat sat on my warm old mat"  # 8 words, 30 characters


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0, 0), (1.1, 0), (1.35, 0.5), (1.6, 1), (2, 1), (3.2, 1), (4.1, 0.5), (5, 0), (9, 0)],
)
def test_a_band_is_flat_between_two_slopes(value: float, expected: float) -> None:
    assert TLDR.length(value) == pytest.approx(expected)


@pytest.mark.parametrize(("value", "expected"), [(1.3, 0), (1.65, 0.5), (2, 1), (inf, 1)])
def test_a_band_without_an_upper_end(value: float, expected: float) -> None:
    assert TLDR.vocabulary(value) == pytest.approx(expected)


@pytest.mark.parametrize("bounds", [(1, 1), (2, 1), (0, 1, 0.5, 2), (0, 1, 2, 2), (0, 1, 3, 2)])
def test_a_band_must_rise_and_fall(bounds: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="a band needs least < low <= high < most"):
        Band(*bounds)


def test_the_published_constants() -> None:
    """MAGRPO's code: word bounds, length, different words, where transitions count, common vocabulary."""
    assert (TLDR.words, ARXIV.words) == ((8, 256), (128, 256))
    assert ARXIV.length == Band(0.8, 1.3, 1.6, 2.0) and ARXIV.vocabulary == Band(0.5, 0.7, 1.3, 1.7)
    assert (TLDR.common, ARXIV.common, len(TRANSITIONS)) == (0.03, 0.23, 12)


def test_structure_gates_all_else() -> None:
    """7 words or 257: nothing."""
    long = "however " + "many different words are here " * 2
    for short in ("a b c d e f g", "w " * 257, ""):
        assert score(short, long, TLDR) == score(long, short, TLDR) == TextScore()


def test_length_gates_words_and_style() -> None:
    assert score(EIGHT, EIGHT, TLDR) == TextScore(0.5)  # ratio 1
    assert score(EIGHT, EIGHT + " x" * 100, TLDR) == TextScore(0.5)  # 230 / 30 > 5


def test_words_gate_style() -> None:
    assert score(EIGHT, f"{EIGHT} {EIGHT}", TLDR) == TextScore(0.5, 1.0)  # twice as long, no new word


def test_all_levels_by_hand() -> None:
    """Characters 30 and 66 (2.2), different words 8 and 14 (1.75: 0.643 of 0.5); of content words {cat, sat, warm, old,
    mat} 1 of 15 is common (0.067 > 0.03); one purpose."""
    second = "however nobody else found another cat whose fur glows bright red x"
    assert (len(EIGHT), len(second)) == (30, 66)
    ours, theirs = vocabulary(EIGHT), vocabulary(second)
    assert (len(ours), len(theirs)) == (8, 12)
    result = score(EIGHT, second, TLDR)
    assert (result.structure, result.length) == (0.5, 1.0)
    assert result.words == pytest.approx(0.5 * (12 / 8 - 1.3) / 0.7)
    assert result.style == pytest.approx(0.4 * 0.4 + 0.6)
    assert result.points == pytest.approx(1.5 + 0.5 * 0.2 / 0.7 + 0.76)


def test_transition_words() -> None:
    assert transition_share("a cat") == 0
    assert transition_share("Also, in addition and furthermore") == 0.4  # of one purpose
    assert transition_share("However, it is, for example, red.") == pytest.approx(0.45)
    assert transition_share("athens, thenceforth, lasting") == 0  # parts of words
    every = " ".join(words[0] for words in TRANSITIONS.values())
    assert transition_share(every) == pytest.approx(0.95)


def test_common_vocabulary_is_of_content_words() -> None:
    assert jaccard(frozenset({"the", "a", "cat"}), frozenset({"the", "a", "dog"})) == 0
    assert jaccard(frozenset({"the", "cat", "dog"}), frozenset({"cat", "red"})) == pytest.approx(1 / 3)
    assert jaccard(frozenset(), frozenset()) == 0 and {"the", "a", "through"} <= STOP_WORDS


def test_words_are_read_without_the_signs_around_them() -> None:
    assert vocabulary("The cat's well-known “Mat”, mat. 3 — _") == {"the", "cat's", "well-known", "mat", "3"}


@given(st.text(max_size=80), st.text(max_size=160), st.sampled_from(sorted(STYLES)))
def test_points_are_bounded(first: str, second: str, kind: str) -> None:
    result = score(first, second, STYLES[kind])
    assert 0 <= result.points <= POINTS


@given(st.lists(st.sampled_from(["however", "cat", "a", "dog", "—", "then"]), min_size=3, max_size=16), st.data())
def test_points_are_bounded_for_words(first: list[str], data: st.DataObject) -> None:
    second = data.draw(st.permutations(first * 2))
    assert 0 <= score(" ".join(first), " ".join(second[:16]), STYLES["lines"]).points <= POINTS
