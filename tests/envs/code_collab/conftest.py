"""Problems by hand, and episodes of them."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from troupe.envs.code import ProblemSet, ProblemSource
from troupe.envs.code.problem import Check, Problem
from troupe.envs.code_collab import CodeCollab, MicroCollab
from troupe.experience import Task
from troupe.sandbox import LocalSandbox

PROMPT = 'def total(xs):\n    """ The sum of the squares of xs. """\n'
TOTAL = Problem(
    "total",
    PROMPT,
    hidden=(Check("[[1, 2]]", "5"), Check("[[3]]", "9"), Check("[[]]", "0"), Check("[[2, 2]]", "8")),
    function="total",
    starter=PROMPT,
)
"""Four tests."""


@pytest.fixture(scope="session")
def sandbox() -> Iterator[LocalSandbox]:
    """One worker for all of these tests, which never close it."""
    shared = LocalSandbox(workers=1)
    yield shared
    asyncio.run(shared.close())


@pytest.fixture
def collab(sandbox: LocalSandbox) -> Callable[..., CodeCollab]:
    """``collab(**settings)``: an episode of :data:`TOTAL`."""

    def begin(problem: Problem = TOTAL, **settings: Any) -> CodeCollab:
        data = ProblemSet(ProblemSource("human_eval", "nowhere.jsonl"))
        world = CodeCollab(sandbox, data, **{"cpu_s": 0.5, **settings})
        world.reset(Task("by-hand", "test", {"problem": problem}))
        return world

    return begin


@pytest.fixture
def micro(sandbox: LocalSandbox) -> Callable[..., MicroCollab]:
    """``micro(**settings)``: an episode of "+= 3 *= 4 -= 2"."""

    def begin(**settings: Any) -> MicroCollab:
        world = MicroCollab(sandbox, **settings)
        world.reset(Task("by-hand", "test", {"steps": (("+=", "3"), ("*=", "4"), ("-=", "2"))}))
        return world

    return begin
