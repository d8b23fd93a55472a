"""When a policy learns: from some iteration on, or in turns with others (iterated best response)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Turn:
    """A policy's place in a rotation: ``every`` iterations another turn learns, those of the others rest.

    Turns count from 0.  Several policies may share one.
    """

    every: int
    turn: int

    def __post_init__(self) -> None:
        for name, least in (("every", 1), ("turn", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ValueError(f"alternate.{name} must be a whole number of at least {least}, got {value!r}")


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """A policy does not learn in the first ``freeze_until`` iterations, and with ``alternate`` only in its turns.

    ``turns`` is how many turns the team's rotation has.
    """

    freeze_until: int = 0
    alternate: Turn | None = None
    turns: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.freeze_until, int) or isinstance(self.freeze_until, bool) or self.freeze_until < 0:
            raise ValueError(f"freeze_until must be a whole number of at least 0, got {self.freeze_until!r}")

    def learns(self, iteration: int) -> bool:
        """Whether the policy learns in the iteration after ``iteration`` others."""
        if iteration < self.freeze_until:
            return False
        return self.alternate is None or iteration // self.alternate.every % self.turns == self.alternate.turn

    def ever(self, iterations: int) -> bool:
        """Whether the policy learns in a run of so many iterations."""
        return any(self.learns(iteration) for iteration in range(iterations))


def rotation(turns: Mapping[str, Turn]) -> int:
    """How many turns the rotation of the policies ``turns`` has.

    Raises ``ValueError``, naming the policy, where they disagree about its length, or a turn belongs to nobody.
    """
    if not turns:
        return 1
    first = next(iter(turns))
    for name, turn in turns.items():
        if turn.every != turns[first].every:
            raise ValueError(
                f"policies.{name}.schedule.alternate.every={turn.every}: policy '{first}' has {turns[first].every}, "
                "and a rotation has one length"
            )
    count = 1 + max(turn.turn for turn in turns.values())
    for free in set(range(count)) - {turn.turn for turn in turns.values()}:
        raise ValueError(f"policies.*.schedule.alternate.turn: nobody has turn {free} of {count}, counted from 0")
    return count
