"""An episode of delegation by hand."""

from typing import Any

from troupe.envs.delegation import Delegation
from troupe.experience import Task

TASK = Task("by-hand", "test", {"numbers": list("47290135"), "asked": ["bob", "ann"]})
"""Red has ann 4 and cid 2, blue bob 7 and eva 0, green fay 1 and gus 3, grey dan 9 and hal 5."""
EXPERT = "call bob blue ann red"
RIGHT = "say bob 7 ann 4"


def begin(**settings: Any) -> Delegation:
    world = Delegation(**settings)
    world.reset(TASK)
    return world


def prompt(world: Delegation, agent: str) -> str:
    return world.observe(agent)[1]["content"]


async def say(world: Delegation, **texts: str) -> Any:
    return await world.step(texts)
