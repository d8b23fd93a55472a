"""The reward of Writing, by hand: every level and its bounds, for the constants of each kind."""

import hashlib
import json
from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.envs.writing.reward import (
    POINTS,
    STOP_WORDS,
    STYLES,
    TRANSITIONS,
    Band,
    Style,
    TextScore,
    jaccard,
    score,
    transition_share,
    vocabulary,
)

TLDR, ARXIV, LINES = STYLES["tldr"], STYLES["arxiv"], STYLES["lines"]
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
    """Characters 30 and 66 (2.2), different words 8 and 12 (1.5: 0.286 of 0.5); of the content words {cat, sat, warm,
    mat} and 12 others 1 of 15 is common (0.067 > 0.03); "however" has two purposes."""
    second = "however nobody else found another cat whose fur glows bright red x"
    assert (len(EIGHT), len(second)) == (30, 66)
    ours, theirs = vocabulary(EIGHT), vocabulary(second)
    assert (len(ours), len(theirs)) == (8, 12)
    result = score(EIGHT, second, TLDR)
    assert (result.structure, result.length) == (0.5, 1.0)
    assert result.words == pytest.approx(0.5 * (12 / 8 - 1.3) / 0.7)
    assert result.style == pytest.approx(0.4 * 0.45 + 0.6)
    assert result.points == pytest.approx(1.5 + 0.5 * 0.2 / 0.7 + 0.78)


def test_the_word_lists_are_those_of_the_published_code() -> None:
    """Their digest, made from rewards/tldr_rewards.py of github.com/OpenMLRL/LLM_Collab_Writing at 7e59995."""
    lists = [{purpose: sorted(words) for purpose, words in TRANSITIONS.items()}, sorted(STOP_WORDS)]
    digest = hashlib.sha256(json.dumps(lists, sort_keys=True).encode()).hexdigest()
    assert digest.startswith("c4e02804cbb5c676")


@pytest.mark.parametrize(
    ("text", "purposes"),
    [
        ("a cat", 0),
        ("Additionally, in addition and furthermore", 1),  # elaboration
        ("a red cat, yet", 2),  # contrast, concession
        ("Specifically: red", 2),  # examples; "if" within it: condition
        ("a mole, for example", 1),
        ("a mole, for\nexample", 0),  # a phrase is one string, with one blank
        ("the castle", 1),  # "as" within it: time
        ("a soft shadow", 2),  # "so": cause; "had": condition
        ("a wherefore", 1),
    ],
)
def test_transition_words_count_within_others_too(text: str, purposes: int) -> None:
    assert transition_share(text, TLDR) == pytest.approx(0.4 + 0.05 * (purposes - 1) if purposes else 0)


def test_twelve_purposes_do_not_earn_all() -> None:
    every = " ".join(words[0] for words in TRANSITIONS.values())
    assert transition_share(every, TLDR) == pytest.approx(0.95)


def test_where_transition_words_count() -> None:
    """TLDR: in the second text; arXiv: in both, put together without a blank: "thin" + "deed"."""
    first, second = "yet " + "w " * 127 + "in", "deed " + "word word " * 87 + "x"
    alone = Style((1, 999), Band(0, 1, 9, 10), Band(0, 0.1, 9, 10), transitions_in_both=False, common=1.0)
    both = replace(alone, transitions_in_both=True)
    assert score(first, second, alone).style == 0
    assert score(first, second, both).style == pytest.approx(0.4 * 0.55)  # contrast, concession; explanation, emphasis


def test_lines_have_whole_words_of_their_own() -> None:
    assert transition_share("the castle shadow", LINES) == 0
    assert transition_share("then the castle but thus", LINES) == pytest.approx(0.5)
    assert transition_share("yet however", LINES) == 0


def test_the_ends_of_a_band_earn_nothing_and_let_pass() -> None:
    """Lengths 20 and 22, ratio 1.1; different words 10 and 13, ratio 1.3.  Of lines, both are out."""
    assert TLDR.length.admits(22 / 20) and TLDR.length.admits(5.0) and TLDR.vocabulary.admits(13 / 10)
    assert not TLDR.length.admits(1.09) and not TLDR.length.admits(5.01) and not TLDR.vocabulary.admits(1.29)
    assert not LINES.length.admits(1.0) and not LINES.length.admits(3.2) and LINES.length.admits(1.01)
    first = "a b c d e f g h i j"  # 19 characters, 10 words
    second = "a b c d e f g h i j kkkk llll mmmm"  # 34: 1.79; 13 words
    result = score(first, second, TLDR)
    assert (result.length, result.words) == (1.0, 0.0) and result.style == pytest.approx(0.6)
    assert score("one two three", "one two three", LINES) == TextScore(0.5)


def test_common_vocabulary_is_of_content_words() -> None:
    assert jaccard(frozenset({"the", "cat", "dog"}), frozenset({"cat", "red"})) == pytest.approx(1 / 4)
    assert jaccard(frozenset({"cat"}), frozenset()) == 0
    assert jaccard(frozenset(), frozenset()) == 1  # as published: texts of stop words alone have all in common
    assert {"the", "a", "good", "last"} <= STOP_WORDS and not {"into", "through", "because"} & STOP_WORDS


def test_an_apostrophe_and_a_hyphen_part_words() -> None:
    assert vocabulary("The cat's well-known “Mat”, mat. 3 — _ don't") == {
        *("the", "cat", "s", "well", "known", "mat", "3", "_", "don", "t")
    }


@given(st.text(max_size=80), st.text(max_size=160), st.sampled_from(sorted(STYLES)))
def test_points_are_bounded(first: str, second: str, kind: str) -> None:
    result = score(first, second, STYLES[kind])
    assert 0 <= result.points <= POINTS


@given(st.lists(st.sampled_from(["however", "cat", "a", "dog", "—", "then"]), min_size=3, max_size=16), st.data())
def test_points_are_bounded_for_words(first: list[str], data: st.DataObject) -> None:
    second = data.draw(st.permutations(first * 2))
    assert 0 <= score(" ".join(first), " ".join(second[:16]), STYLES["lines"]).points <= POINTS
