"""Boards drawn by hand, and how hypothesis runs here."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest
from hypothesis import settings

from troupe.envs.grid.plan_path import PlanPath
from troupe.envs.grid.sokoban import Sokoban
from troupe.envs.math.answers import IMPORTS
from troupe.experience import Task
from troupe.sandbox import LocalSandbox

settings.register_profile("envs", deadline=None, derandomize=True)  # the result must not depend on the machine's load
settings.load_profile("envs")


def cells(picture: str, signs: str) -> frozenset[int]:
    """The cells of a square picture that hold one of ``signs``."""
    rows = picture.split()
    assert {len(row) for row in rows} == {len(rows)}, rows
    return frozenset(cell for cell, sign in enumerate("".join(rows)) if sign in signs)


@pytest.fixture(scope="session")
def plan_path() -> Callable[..., PlanPath]:
    """``plan_path(picture, **settings)``: an episode on it.

    ``S`` start, ``G`` goal, ``#`` wall, ``?`` wall that the map lacks, ``.`` free.
    """

    def begin(picture: str, **settings: Any) -> PlanPath:
        (start,), (goal,) = cells(picture, "S"), cells(picture, "G")
        data = {"walls": cells(picture, "#?"), "mapped": cells(picture, "#"), "start": start, "goal": goal}
        world = PlanPath(**{"size": len(picture.split()), "min_distance": 1, **settings})
        world.reset(Task("by-hand", "test", data))
        return world

    return begin


@pytest.fixture(scope="session")
def sokoban() -> Callable[..., Sokoban]:
    """``sokoban(picture, **settings)``: an episode on it.

    ``#`` wall, ``@`` worker, ``$`` box, ``o`` goal, ``*`` box on a goal, ``+`` worker on a goal, ``.`` floor.
    """

    def begin(picture: str, **settings: Any) -> Sokoban:
        (worker,), boxes = cells(picture, "@+"), cells(picture, "$*")
        data = {"walls": cells(picture, "#"), "worker": worker, "boxes": boxes, "goals": cells(picture, "o*+")}
        world = Sokoban(**{"size": len(picture.split()), "boxes": len(boxes), "inner_walls": 0, **settings})
        world.reset(Task("by-hand", "test", data))
        return world

    return begin


@pytest.fixture(scope="session")
def programs() -> Iterator[LocalSandbox]:
    """A sandbox that worlds share; it knows no packages."""
    sandbox = LocalSandbox(workers=2)
    yield sandbox
    asyncio.run(sandbox.close())


@pytest.fixture(scope="session")
def reading() -> Iterator[LocalSandbox]:
    """A sandbox that can read answers."""
    sandbox = LocalSandbox(workers=1, imports=IMPORTS)
    yield sandbox
    asyncio.run(sandbox.close())


@pytest.fixture
async def sandbox() -> AsyncIterator[LocalSandbox]:
    """A worker of the real sandbox."""
    async with LocalSandbox(workers=1) as shared:
        yield shared


@pytest.fixture
def in_full(sandbox: LocalSandbox) -> Callable[..., Any]:
    """``in_full(make, picture, **settings)``: a world told in full, whose tool agent writes programs."""
    defaults = {"wording": "full", "tool_message": "program", "program_seconds": 0.3, "sandbox": sandbox}
    return lambda make, picture, **settings: make(picture, **defaults | settings)
