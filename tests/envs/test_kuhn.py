"""Kuhn poker: rules and payoffs by hand, known equilibria, and messages of every kind."""

from itertools import permutations, product
from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.envs.base import StepResult, Strategy
from troupe.envs.kuhn import ACTIONS, FORFEIT, PLACES, Kuhn, equilibrium, is_over, payoff
from troupe.envs.returned import TaskSource
from troupe.envs.testing import GARBAGE

UNIFORM: Strategy = [[0.5, 0.5] for _ in PLACES]
KING, JACK = 2, 0
ROWS = st.lists(st.floats(0, 1).map(lambda bet: [1 - bet, bet]), min_size=12, max_size=12)


def game(seat: int = 0, cards: tuple[int, int] = (KING, JACK)) -> Kuhn:
    world = Kuhn()
    (task,) = [each for each in world.tasks("train", 12, 0) if (each.data["cards"], each.data["seat"]) == (cards, seat)]
    world.reset(task)
    return world


async def play(world: Kuhn, *texts: str) -> list[StepResult]:
    return [await world.step(dict.fromkeys(world.next_agents(), text)) for text in texts]


@pytest.mark.parametrize(
    ("texts", "won"),
    [
        (("pass", "pass"), 1),
        (("bet", "bet"), 2),
        (("pass", "bet", "bet"), 2),
        (("bet", "pass"), 1),
        (("pass", "bet", "pass"), -1),
        (("call",), -2),
        (("bet", ""), 2),
        (("pass", "bet", "bet bet"), -2),
    ],
)
async def test_payoffs_by_hand(texts: tuple[str, ...], won: float) -> None:
    """Of the first seat, with a king against a jack; the other seat loses as much, and the team earns a half."""
    first, second = game(seat=0), game(seat=1)
    for world, sign in ((first, 1), (second, -1)):
        *before, last = await play(world, *texts)
        assert not any(each.team or each.done for each in before) and not world.next_agents()
        assert (last.team, last.done, last.success) == (sign * won / 2, True, sign * won > 0)


async def test_who_sees_what() -> None:
    world = game(seat=1)
    assert world.next_agents() == ("opponent",)
    assert world.observe("opponent")[-1]["content"] == "first king after none"
    await play(world, "pass")
    assert world.observe("player")[-1]["content"] == "second jack after pass"
    seen = {world.observe(agent)[-1]["content"] for agent in world.agents}
    assert not any("king" in each and "jack" in each for each in seen)


HOSTILE = [
    *GARBAGE[:20],
    "BET",
    "bet.",
    "pass bet",
    "<think>bet",
    "bet</think>",
    "ｂｅｔ",
    "b\u0435t",
    "\ufeffbet",
    "-1",
    "1",
]


@pytest.mark.parametrize("text", HOSTILE)
async def test_thirty_hostile_messages_forfeit(text: str) -> None:
    (result,) = await play(game(), text)
    assert (result.team, result.done, result.success, result.info) == (-1.0, True, False, {FORFEIT: 1.0, **result.info})
    assert len(HOSTILE) == 30


async def test_thoughts_are_not_read() -> None:
    (result,) = await play(game(), "<think>pass</think> bet ")
    assert not result.done and result.info[FORFEIT] == 0.0


# ---- tasks ----------------------------------------------------------------------------------------------------------


def test_every_split_has_all_deals_in_both_seats() -> None:
    source = TaskSource(Kuhn())
    drawn = {split: {each.task_id for each in source.tasks(split, 12, 0)} for split in ("train", "validation", "test")}
    assert drawn["train"] == drawn["validation"] == drawn["test"] and len(drawn["train"]) == 12
    assert {each.role for each in Kuhn().tasks("train", 12, 1)} == {"first", "second"}
    with pytest.raises(ValueError, match="kuhn: there are 12 games, deals and seats, not 13"):
        Kuhn().tasks("train", 13, 0)


# ---- strategies -----------------------------------------------------------------------------------------------------


def value(one: Strategy, other: Strategy, cards: tuple[int, int], past: tuple[int, ...] = ()) -> float:
    """What ``one`` in the first seat wins from ``other``: a plain sum over all games."""
    if is_over(past):
        return payoff(cards, past)
    seat = len(past) % 2
    row = (one, other)[seat][PLACES.index((seat, cards[seat], past))]
    return sum(p * value(one, other, cards, (*past, action)) for action, p in enumerate(row))


def worth(one: Strategy, other: Strategy) -> float:
    return sum(value(one, other, cards) for cards in permutations(range(3), 2)) / 6


def by_force(strategy: Strategy) -> float:
    """Every pure strategy of each seat against ``strategy``."""
    best = []
    for seat in (0, 1):
        own = [index for index, place in enumerate(PLACES) if place[0] == seat]
        values = []
        for actions in product((0, 1), repeat=6):
            pure = [list(row) for row in strategy]
            for index, action in zip(own, actions, strict=True):
                pure[index] = [1.0 - action, float(action)]
            values.append(worth(pure, strategy) if seat == 0 else -worth(strategy, pure))
        best.append(max(values))
    return sum(best) / 2


@pytest.mark.parametrize("bluff", [0, 0.1, 0.2, 1 / 3])
def test_kuhns_equilibria_cannot_be_exploited(bluff: float) -> None:
    strategy = equilibrium(bluff)
    assert worth(strategy, strategy) == pytest.approx(-1 / 18)
    assert Kuhn().exploitability(strategy) == pytest.approx(0, abs=1e-12)


def test_the_uniform_strategy_by_hand() -> None:
    """Best responses to it.  First seat: a king bets, 1.5; a queen checks or bets, 0.25 at most of calls and folds; a
    jack passes.  The sum over both seats is 11/12 (NashConv), which other programs give too.
    """
    assert Kuhn().exploitability(UNIFORM) == pytest.approx(11 / 24)


def test_out_of_the_interval_it_can() -> None:
    assert Kuhn().exploitability(equilibrium(0.33)) < 1e-12 < Kuhn().exploitability([[0, 1]] * 12)
    off = [list(row) for row in equilibrium(0.1)]
    off[PLACES.index((1, 0, (0,)))] = [0.6, 0.4]  # the second seat bluffs too often
    assert Kuhn().exploitability(off) > 0.001


@given(ROWS)
def test_best_responses_are_those_of_a_full_search(strategy: Strategy) -> None:
    assert Kuhn().exploitability(strategy) == pytest.approx(by_force(strategy), abs=1e-9)


def test_forfeits_are_exploited() -> None:
    """Who never says a legal word loses two antes in each game, whatever the other does."""
    silent = [[0.0, 0.0]] * 12
    assert Kuhn().exploitability(silent) == pytest.approx(2.0)  # in both seats: before the other folds or bets


@given(ROWS, ROWS, st.floats(0, 1))
def test_a_mixture_plays_as_its_parts_do(one: Strategy, other: Strategy, share: float) -> None:
    """Against anybody it earns their mean: a later decision counts as often as each comes there."""
    mixture = Kuhn().mixture(one, other, share)
    for against in (UNIFORM, equilibrium(0.2), one):
        parts = (1 - share) * worth(one, against) + share * worth(other, against)
        assert worth(mixture, against) == pytest.approx(parts, abs=1e-9)


@pytest.mark.parametrize(
    "strategy",
    [
        [],
        UNIFORM[:11],
        [*UNIFORM[:11], [0.5]],
        [*UNIFORM[:11], [0.7, 0.7]],
        [*UNIFORM[:11], [nan, 0]],
        [[-0.1, 1]] * 12,
    ],
)
def test_what_is_no_strategy(strategy: Strategy) -> None:
    with pytest.raises(
        ValueError, match=r"a strategy of kuhn has 12|kuhn, .*: expected the probabilities of pass and bet"
    ):
        Kuhn().exploitability(strategy)


def test_actions_are_words() -> None:
    assert ACTIONS == ("pass", "bet")
