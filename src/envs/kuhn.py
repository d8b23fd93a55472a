"""Kuhn poker (H. W. Kuhn, A simplified two-person poker, 1950): two players, three cards, zero sum.

Each antes 1 and is dealt one of three cards.  In turn they pass or bet 1 more: two passes, or two bets, and the higher
card takes the pot; a pass after a bet gives it away.  The team is the ``player``, in either seat; the ``opponent``
plays against it and is asked in the same words, so that one policy can play both.  With an equilibrium strategy the
first seat loses 1/18 ante a game; all such strategies are known (:func:`equilibrium`).
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping, Sequence
from itertools import permutations, product
from random import Random
from typing import Self

from ..experience import Message, Split, Task
from .base import Decision, Skill, StepResult, Strategy, TwoSidedGame
from .fences import spoken
from .setting_checks import check_actions, check_agent, check_split
from .turns import chat

PLAYER, OPPONENT = "player", "opponent"
SEATS, CARDS, ACTIONS = ("first", "second"), ("jack", "queen", "king"), ("pass", "bet")
FORFEIT = "forfeit"
"""What any other message is: it loses as much as can be lost."""
MOST = 2.0
"""Antes that a game can cost."""
Place = tuple[int, int, tuple[int, ...]]
PLACES: list[Place] = [
    (seat, card, past) for seat in (0, 1) for card in range(3) for past in (((), (0, 1)), ((0,), (1,)))[seat]
]
"""The information sets: seat, card, and the actions before, each by its index."""
INDEX = {place: index for index, place in enumerate(PLACES)}


class Kuhn(TwoSidedGame):
    """A game is a task: who is dealt what, and the seat of the player.  There are twelve, and each split has them all.

    The team's reward is what the player wins, in units of the largest loss, so within [-1, 1]; a success is a win.
    """

    name = "kuhn"
    agents = (PLAYER, OPPONENT)
    opponents = (OPPONENT,)
    horizon = 3
    tasks_are_all = True

    def __init__(self) -> None:
        self.cards: tuple[int, ...] = (0, 1)
        self.seat, self.past = 0, tuple[int, ...]((0, 0))  # over, until there is a task

    @property
    def turn(self) -> int:  # type: ignore[override]
        return len(self.past)

    def tasks(self, split: Split, count: int, seed: int) -> list[Task]:
        check_split(self.name, split)
        games = [(cards, seat) for cards in permutations(range(3), 2) for seat in (0, 1)]
        if count > len(games):
            raise ValueError(f"{self.name}: there are {len(games)} games, deals and seats, not {count}")
        drawn = Random(f"{self.name}/{split}/{seed}").sample(games, count)
        return [
            Task(
                f"{self.name}-{CARDS[cards[0]]}-{CARDS[cards[1]]}-{SEATS[seat]}",
                split,
                {"cards": cards, "seat": seat},
                role=SEATS[seat],
            )
            for cards, seat in drawn
        ]

    def task_count(self, split: Split) -> int:
        return 12

    def reset(self, task: Task) -> None:
        self.cards, self.seat, self.past = tuple(task.data["cards"]), task.data["seat"], ()

    def next_agents(self) -> tuple[str, ...]:
        return () if is_over(self.past) else (PLAYER if len(self.past) % 2 == self.seat else OPPONENT,)

    def observe(self, agent: str) -> list[Message]:
        check_agent(self.name, self.agents, agent)
        seat = self.seat if agent == PLAYER else 1 - self.seat
        return prompt(seat, self.cards[seat], self.past)

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        check_actions(self.name, self.next_agents(), actions)
        ((agent, text),) = actions.items()
        word = spoken(text).strip()
        self.past = (*self.past, ACTIONS.index(word) if word in ACTIONS else -1)
        won = payoff(self.cards, self.past) * (1 - 2 * self.seat) / MOST if is_over(self.past) else 0.0
        return StepResult({agent: 0.0}, won, is_over(self.past), won > 0, {FORFEIT: float(word not in ACTIONS)})

    def fork(self) -> Self:
        return copy.copy(self)

    def state_key(self) -> Hashable:
        return self.cards, self.seat, self.past

    def demonstration(self, agent: str, rng: Random, *, skill: Skill = "expert") -> str:
        """Experts play the equilibrium in which the first seat never bluffs.  Novices bet the more often the higher
        their card, and less often after a bet.  Flawed players do anything legal.
        """
        seat = self.seat if agent == PLAYER else 1 - self.seat
        card, bet = self.cards[seat], 1 in self.past
        weights = equilibrium(0.0)[INDEX[seat, card, self.past]] if skill == "expert" else (1.0, 1.0)
        return rng.choices(ACTIONS, (1 + bet, (1 / 3, 1, 3)[card]) if skill == "novice" else weights)[0]

    # ---- strategies ------------------------------------------------------------------------------------------------

    def decisions(self) -> list[Decision]:
        return [Decision(prompt(*place), ACTIONS) for place in PLACES]

    def exploitability(self, strategy: Strategy) -> float:
        """In antes: what a best response to ``strategy`` wins, the mean of both seats (NashConv / 2); 0 for an
        equilibrium, and only there."""
        check_strategy(strategy)
        sides = product((0, 1), range(3))
        deals = {card: {other: 1 / 6 for other in range(3) if other != card} for card in range(3)}
        return sum(best_response(strategy, seat, card, (), deals[card]) for seat, card in sides) / 2

    def mixture(self, one: Strategy, other: Strategy, share: float) -> Strategy:
        """At a second decision each counts as often as it comes there."""
        check_strategy(one)
        check_strategy(other)
        rows = []
        for index, (seat, card, past) in enumerate(PLACES):
            parts = [(1 - share, one), (share, other)]
            if len(past) == 2:
                parts = [(part * each[INDEX[seat, card, ()]][past[0]], each) for part, each in parts]
            whole = sum(part for part, _ in parts) or 1.0  # where none comes nothing depends on it
            rows.append([sum(part * each[index][action] for part, each in parts) / whole for action in (0, 1)])
        return rows


def prompt(seat: int, card: int, past: Sequence[int]) -> list[Message]:
    """What whoever has ``card`` in ``seat`` sees after ``past``."""
    return chat("kuhn", " ".join([SEATS[seat], CARDS[card], "after", *([ACTIONS[each] for each in past] or ["none"])]))


def is_over(past: Sequence[int]) -> bool:
    return -1 in past or tuple(past[-2:]) in ((0, 0), (1, 1), (1, 0))


def payoff(cards: Sequence[int], past: Sequence[int]) -> float:
    """What the first seat wins in a game that is over, in antes."""
    last = 1 - 2 * ((len(past) - 1) % 2)  # 1 where the first seat acted last
    if past[-1] == -1:
        return -MOST * last
    if tuple(past[-2:]) == (1, 0):
        return -1.0 * last
    return (1.0 + past[-1]) * (1 if cards[0] > cards[1] else -1)


def best_response(strategy: Strategy, seat: int, card: int, past: tuple[int, ...], reach: Mapping[int, float]) -> float:
    """What the best answers of ``seat`` with ``card`` win from ``past`` on; ``reach``: by card of the other, how
    probable deal and ``past`` are."""
    if is_over(past):
        won = (payoff((card, c) if seat == 0 else (c, card), past) * (1 - 2 * seat) * p for c, p in reach.items())
        return sum(won)
    if len(past) % 2 == seat:
        return max(best_response(strategy, seat, card, (*past, action), reach) for action in (0, 1))
    total = 0.0
    for action in (0, 1, -1):  # of a strategy's row, what is left forfeits
        rows = {c: strategy[INDEX[1 - seat, c, past]] for c in reach}
        after = {c: p * (1 - sum(rows[c]) if action < 0 else rows[c][action]) for c, p in reach.items()}
        total += best_response(strategy, seat, card, (*past, action), after)
    return total


def equilibrium(bluff: float) -> Strategy:
    """Kuhn's equilibria: the first seat bets with the jack with probability ``bluff``, in [0, 1/3]."""
    third = 1 / 3
    bets = {(0, 0, ()): bluff, (0, 2, ()): 3 * bluff, (0, 1, (0, 1)): bluff + third, (0, 2, (0, 1)): 1.0}
    bets |= {(1, 0, (0,)): third, (1, 2, (0,)): 1.0, (1, 1, (1,)): third, (1, 2, (1,)): 1.0}
    return [[1 - bets.get(place, 0.0), bets.get(place, 0.0)] for place in PLACES]


def check_strategy(strategy: Strategy) -> None:
    """Raise ``ValueError``, naming the decision, for what are no probabilities."""
    if len(strategy) != len(PLACES):
        raise ValueError(f"a strategy of {Kuhn.name} has {len(PLACES)} decisions, got {len(strategy)}")
    for (seat, card, past), row in zip(PLACES, strategy, strict=True):
        if len(row) != 2 or not all(0 <= p <= 1 for p in row) or sum(row) > 1 + 1e-4:
            where = prompt(seat, card, past)[-1]["content"]
            raise ValueError(
                f"{Kuhn.name}, {where}: expected the probabilities of {' and '.join(ACTIONS)}, got {row!r}"
            )


def vocabulary() -> list[str]:
    """Every word of observations and messages."""
    return [Kuhn.name, *SEATS, *CARDS, "after", "none", *ACTIONS]
