"""Schedules of policies: they learn from some iteration on, or in turns with others (iterated best response)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import Natural, Positive, check_fields


@dataclass(frozen=True, kw_only=True)
class Alternation:
    """A policy's place in a rotation: for ``every`` iterations the policies of one turn learn and all others rest, then
    those of the next turn.

    Turns count from 0.  Several policies may share one.
    """

    every: Positive
    turn: Natural

    def __post_init__(self) -> None:
        check_fields(self, "alternate.")


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A policy does not learn in the first ``freeze_until`` iterations, and with ``alternate`` only in its turns.

    ``turns`` is the number of turns in the team's rotation.
    """

    freeze_until: Natural = 0
    alternate: Alternation | None = None
    turns: int = 1

    def __post_init__(self) -> None:
        check_fields(self)

    def learns(self, iteration: int) -> bool:
        """Whether the policy learns in the iteration after ``iteration`` others."""
        if iteration < self.freeze_until:
            return False
        return self.alternate is None or iteration // self.alternate.every % self.turns == self.alternate.turn

    def ever(self, iterations: int) -> bool:
        """Whether the policy learns in any of the first ``iterations`` iterations."""
        return any(self.learns(iteration) for iteration in range(iterations))


def count_turns(alternations: Mapping[str, Alternation]) -> int:
    """The number of turns in the rotation of these policies.

    Raises ``ValueError``, naming the policy, where they disagree about ``every``, or no policy has some turn.
    """
    if not alternations:
        return 1
    first = next(iter(alternations))
    for name, alternation in alternations.items():
        if alternation.every != alternations[first].every:
            raise ValueError(
                f"policies.{name}.schedule.alternate.every={alternation.every}: policy '{first}' has "
                f"{alternations[first].every}, and all policies of a rotation have the same"
            )
    count = 1 + max(alternation.turn for alternation in alternations.values())
    for free in set(range(count)) - {alternation.turn for alternation in alternations.values()}:
        raise ValueError(f"policies.*.schedule.alternate.turn: no policy has turn {free} of {count}, counted from 0")
    return count
