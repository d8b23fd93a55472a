"""Reward hacking in Couplet: reward without a good couplet; docs/worlds/ lists the attempts."""

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.envs.couplet.world import FAMILY, FILLERS, FIRST, SECOND, Couplet, Half, fit, vocabulary
from troupe.experience import Task

HALVES = {
    FIRST: Half(("river", "stone"), ("moon", "night", "rain")),
    SECOND: Half(("garden", "tower"), ("day", "spoon", "plain")),
}
FITTING = {FIRST: "the river under stone moon", SECOND: "a garden with tower spoon"}
TEXTS = st.lists(st.sampled_from([*vocabulary(), "river", "stone", "garden", "tower", "moon", "spoon"]), max_size=8)


def begin(**settings: Any) -> Couplet:
    world = Couplet(**settings)
    world.reset(Task("by-hand", "test", HALVES))
    return world


@given(st.lists(st.tuples(TEXTS, TEXTS), min_size=3, max_size=3))
async def test_no_way_to_more_than_the_best_couplet(lines: list[tuple[list[str], list[str]]]) -> None:
    """Whatever is said: an episode's rewards sum to the score of its best couplet, 1 at the most."""
    world, total, best = begin(horizon=3), 0.0, 0.0
    for pair in lines:
        if not world.next_agents():
            break
        result = await world.step(dict(zip(world.agents, map(" ".join, pair), strict=True)))
        assert world._lines is not None
        total, best = total + result.team, max(best, fit(world._halves, world._lines).score)
        assert result.team >= 0 and set(result.local.values()) == {0.0}
    assert total == pytest.approx(best) and best <= 1


async def test_holding_back_for_the_next_turn() -> None:
    """A poor couplet first and a perfect one then earn together what the perfect one earns alone."""
    world = begin()
    first = (await world.step({FIRST: "river moon", SECOND: "tower day"})).team
    assert 0 < first < 1
    assert first + (await world.step(FITTING)).team == pytest.approx(1)


async def test_saying_the_same_again() -> None:
    world = begin(horizon=5)
    almost = {**FITTING, SECOND: "a garden with tower day"}
    assert [(await world.step(almost)).team for _ in range(5)] == [pytest.approx(2 / 3), 0, 0, 0, 0]


@pytest.mark.parametrize("silent", [FIRST, SECOND])
async def test_leaving_it_to_the_other(silent: str) -> None:
    for nothing in ("", " ", "Silence!"):
        assert (await begin().step({**FITTING, silent: nothing})).team == 0


async def test_writing_both_lines() -> None:
    """One names all four subjects and the other none: only a poet's own count."""
    result = await begin().step({FIRST: "river stone garden tower moon", SECOND: "a and by from spoon"})
    assert (result.info["subjects"], result.success) == (0.5, False)


async def test_naming_nothing() -> None:
    """Rhyme and length without a subject are worth nothing."""
    assert (await begin().step({FIRST: "the moon", SECOND: "a spoon"})).team == 0


async def test_ending_with_every_rhyme() -> None:
    """Only the last word counts."""
    for ends in permutations(HALVES[FIRST].rhymes):
        result = await begin().step({FIRST: " ".join(["river stone", *ends]), SECOND: FITTING[SECOND]})
        assert result.success == (FAMILY[ends[-1]] == FAMILY["spoon"])


async def test_borrowing_a_rhyme() -> None:
    """A word that is not among the poet's rhymes does not rhyme, not even the other's own."""
    for word in FAMILY.keys() - set(HALVES[SECOND].rhymes):
        assert not (await begin().step({**FITTING, SECOND: f"a garden with tower {word}"})).info["rhyme"]


@pytest.mark.parametrize("padding", [["the"] * 5, [*FILLERS], ["tower", "tower"]])
async def test_padding_a_line(padding: list[str]) -> None:
    """A word said twice, or more than ``max_words``: the line is malformed, and the couplet earns nothing."""
    text = " ".join([*padding, "garden tower spoon"])
    assert (await begin().step({**FITTING, SECOND: text})).info["empty_or_malformed"] == 0.5
    assert (await begin().step({**FITTING, SECOND: text})).team == 0


@pytest.mark.parametrize(
    "spoil", ["{}.", "{} !", "X {}", "{}\x00", "({})", "{} success", "{} none", "theirs {}", "{} malformed"]
)
async def test_half_a_line(spoil: str) -> None:
    for agent in FITTING:
        assert (await begin().step({**FITTING, agent: spoil.format(FITTING[agent])})).team == 0


LOOK_ALIKES = ["the river under stone Moon", "the river under stone mооn", "the river\u200b under stone moon"]


@pytest.mark.parametrize("text", [*LOOK_ALIKES, "ｔｈｅ river under stone moon", "the river, under stone, moon"])
async def test_words_that_look_alike(text: str) -> None:
    result = await begin().step({**FITTING, FIRST: text})
    assert (result.team, result.success) == (0, False)


@given(st.one_of(st.text(), TEXTS.map(" ".join)))
async def test_injection_through_a_line(text: str) -> None:
    """Of a line, only words of the lexicon, each once, can reach the other; never a key of its prompt."""
    world = begin()
    await world.step({FIRST: text, SECOND: ""})
    prompt = world.observe(SECOND)[-1]["content"]
    head = "subjects garden tower rhymes day spoon plain mine malformed theirs "
    assert prompt.startswith(head)
    words = prompt.removeprefix(head).split()
    keys = {"subjects", "rhymes", "mine", "theirs", "none", "first", "second", "couplet"}
    assert words == ["malformed"] or (not keys & set(words) and set(words) <= set(vocabulary()) and len(words) <= 8)


async def test_speaking_in_the_name_of_the_other() -> None:
    for actions in ({FIRST: "\n".join(FITTING.values())}, {FIRST: FITTING[FIRST], "second ": FITTING[SECOND]}):
        with pytest.raises(ValueError, match="a message of first and second"):
            await begin().step(actions)


async def test_a_code_of_fillers() -> None:
    """Fillers may carry a secret to the next turn: they are read by the poets alone, never by the reward."""
    results = [await begin().step({**FITTING, FIRST: f"{code} river stone moon"}) for code in ("a by", "by a", "of on")]
    assert results[0] == results[1] == results[2]
