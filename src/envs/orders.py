"""In which order two agents write the parts of one work: MAGRPO's (arXiv 2508.04652), and those of its baselines."""

from __future__ import annotations

from typing import Literal, get_args

from .checks import check_choice

Order = Literal["simultaneous", "sequential", "discussion"]
"""``simultaneous``: neither sees what the other writes in this turn.  ``sequential``: the second sees the first's.
``discussion``: both write drafts in the first turn, which are not judged; from the second turn on each sees what its
partner wrote in the turn before."""


def stages_of(world: str, order: Order, agents: tuple[str, ...], horizon: int) -> tuple[tuple[str, ...], ...]:
    """The stages of a turn.  Raises ``ValueError`` for an unknown order, one agent alone that has an order, and a
    discussion without a second turn."""
    check_choice(world, "order", order, get_args(Order))
    if order != "simultaneous" and len(agents) == 1:
        raise ValueError(f"env.order={order} is of two agents, and env.team=solo has one")
    if order == "discussion" and horizon < 2:
        raise ValueError("env.order=discussion needs env.horizon=2 at least: the first turn is for drafts")
    return tuple((agent,) for agent in agents) if order == "sequential" else (agents,)
