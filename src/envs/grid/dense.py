"""Dense local rewards of the games as PettingLLMs' repository has them: ``env.local_reward=dense``, an option.

A message earns the sum over its moves, carried out one by one: a cost of each move and a higher one of a blocked move,
the change of a potential, and what the goal is worth.  A proposal earns what it would, carried out on a copy.

Otherwise than published: moves end at the first blocked one, as everywhere here; a planner's reward is not doubled; the
penalty after 200 (Sokoban) or 10,000 moves (Plan-Path) is left out, since no episode here is so long; and the reward of
the world's last state, equal for all candidates of a group, is not added.

**It can be exploited.**  A potential phi that is discounted, 0.99 phi' - phi, but summed without discount pays for
walking to and fro: 0.02 d - 0.01 for two moves between distances d and d + 1 in Plan-Path.  16 such moves at d = 8 earn
1.2, more than the 1.0 of the goal; the way to it pays 8.4 besides, so that reaching it is still the better episode.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .sudoku_board import candidates, units

LocalReward = Literal["progress", "dense"]

STEP, DISCOUNT = -0.01, 0.99
MALFORMED_REWARD = -2.0
"""Of a message without moves."""


@dataclass(frozen=True)
class WalkReward:
    """Of one move of a walking piece, beside :data:`STEP`: ``blocked`` in its place; ``shaping``: the weight of the
    potential; ``home``, ``away``: a box comes onto a goal or leaves it; ``goal``: the world is solved; ``shortest``: by
    as few moves as possible."""

    blocked: float
    shaping: float
    goal: float
    shortest: float = 0.0
    home: float = 0.0
    away: float = 0.0

    def of(self, *, blocked: bool, before: int, after: int, homes: int, solved: bool, shortest: bool) -> float:
        """``before``, ``after``: distances of which the potential is the negative; ``homes``: boxes that came onto
        goals, less those that left them."""
        reward = self.blocked if blocked else STEP
        reward += self.shaping * (before - DISCOUNT * after)
        reward += homes * (self.home if homes > 0 else -self.away)
        return reward + solved * (self.goal + shortest * self.shortest)


PLAN_PATH = WalkReward(blocked=-0.1, shaping=1.0, goal=1.0, shortest=0.5)
SOKOBAN = WalkReward(blocked=-0.05, shaping=0.1, goal=10.0, home=1.0, away=-0.5)


def fill_reward(size: int, grid: Sequence[int], entries: Sequence[tuple[int, int]], solution: Sequence[int]) -> float:
    """Of the digits ``entries``, (cell, digit), filled into ``grid`` in their order; digit 0 empties a cell.

    Each: -0.01; +0.2 where its cell had one candidate, +0.1 where two; 0.5 of the share of the grid that it fills;
    0.02 for every constraint more that is met; 0.1 of the share that is filled now; +0.05 while cells are left.  A
    digit that breaks a rule, or a cell that was not empty: -0.3.  The solution: +2.5.
    """
    cells, total = list(grid), 0.0
    for cell, digit in entries:
        if cells[cell] or digit not in (choices := candidates(size, cells, cell)):
            total -= 0.3
            continue
        met = _met(size, cells)
        cells[cell] = digit
        empty = cells.count(0)
        total += STEP + {1: 0.2, 2: 0.1}.get(len(choices), 0.0) + 0.5 / size**2
        total += 0.02 * (_met(size, cells) - met) + 0.1 * (1 - empty / size**2) + 0.05 * (empty > 0)
    return total + 2.5 * (tuple(cells) == tuple(solution))


def _met(size: int, cells: Sequence[int]) -> int:
    """Constraints met: of each row, column and box without a digit twice, its digits less one."""
    digits: dict[tuple[int, int], list[int]] = {}
    for unit, digit in zip(units(size), cells, strict=True):
        for kind, index in enumerate(unit):
            if digit:
                digits.setdefault((kind, index), []).append(digit)
    return sum(len(each) - 1 for each in digits.values() if len(set(each)) == len(each))
