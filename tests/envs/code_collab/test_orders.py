"""Code collaboration in the orders of the publication's baselines: who sees what, and what is judged."""

from collections.abc import Callable

import pytest

from troupe.envs.code_collab import CodeCollab, MicroCollab
from troupe.envs.testing import check_world
from troupe.envs.turns import Order
from troupe.sandbox import LocalSandbox

AUX = "def aux(x):\n    return x * x"
MAIN = "def total(xs):\n    squares = [aux(x) for x in xs]\n    return sum(squares)"
DRAFT = "def aux(x):\n    return x"
SMALL_AUX, SMALL_MAIN = (
    "def aux ( x ) : x += 3 ; x *= 4 ; return x",
    "def main ( x ) : x = aux ( x ) ; x -= 2 ; return x",
)


def user(world: CodeCollab | MicroCollab, agent: str) -> str:
    return world.observe(agent)[-1]["content"]


async def test_in_a_sequence_main_sees_aux(collab: Callable[..., CodeCollab]) -> None:
    world = collab(order="sequential", horizon=2)
    assert world.next_agents() == ("aux",) and "Your partner then solves" in user(world, "aux")
    first = await world.step({"aux": f"Here it is:\n{AUX}"})
    assert (first.team, first.local, first.done, first.success) == (0, {"aux": 0}, False, False)
    assert world.turn == 0 and world.next_agents() == ("main",)
    assert "has written a helper" in world.observe("main")[0]["content"]
    assert f"Your partner's function:\n{AUX}" in user(world, "main")
    last = await world.step({"main": MAIN})
    assert (last.team, last.local, last.success) == (4, {"main": 0}, True)  # and the episode goes on
    assert "Your partner's function" not in user(world, "aux") and "has written" not in user(world, "aux")
    await world.step({"aux": "no idea"})
    assert "Your partner's function:\n(none could be read)" in user(world, "main")
    last = await world.step({"main": MAIN})
    assert last.team == pytest.approx(0.6 + 0.5 + 0.25) and last.done and not last.success  # of the empty list


async def test_in_a_discussion_drafts_are_not_judged(collab: Callable[..., CodeCollab]) -> None:
    world = collab(order="discussion", horizon=2)
    assert "Your partner's function" not in user(world, "aux")
    draft = await world.step({"aux": DRAFT, "main": MAIN})
    assert (draft.team, draft.done, world.next_agents()) == (0, False, ("aux", "main"))
    assert f"Your draft:\n{DRAFT}" in user(world, "aux") and f"Your partner's function:\n{MAIN}" in user(world, "aux")
    assert f"Your draft:\n{MAIN}" in user(world, "main") and f"Your partner's function:\n{DRAFT}" in user(world, "main")
    last = await world.step({"aux": AUX, "main": MAIN})
    assert (last.team, last.done, last.success) == (4, True, True)


async def test_a_discussion_goes_on_with_feedback(collab: Callable[..., CodeCollab]) -> None:
    world = collab(order="discussion", horizon=3, feedback="passed")
    await world.step({"aux": DRAFT, "main": MAIN})
    await world.step({"aux": DRAFT, "main": MAIN})
    assert "Signal: not all levels passed" in user(world, "aux") and "Your draft" not in user(world, "aux")
    assert f"Your partner's function:\n{MAIN}" in user(world, "aux")


async def test_small_prompts(micro: Callable[..., MicroCollab]) -> None:
    task = "task += 3 *= 4 -= 2 mine"
    world = micro(order="sequential", horizon=2, turn_reward="points")
    await world.step({"aux": SMALL_AUX})
    assert user(world, "main") == f"{task} none aux {SMALL_AUX}"
    await world.step({"main": SMALL_MAIN})
    assert user(world, "aux") == f"{task} {SMALL_AUX}"
    await world.step({"aux": "? ?"})
    assert user(world, "main") == f"{task} {SMALL_MAIN} aux malformed"
    world = micro(order="discussion", horizon=2)
    assert user(world, "main") == f"{task} none"
    await world.step({"aux": "? ?", "main": SMALL_MAIN})
    assert user(world, "aux") == f"{task} malformed main {SMALL_MAIN}"
    assert user(world, "main") == f"{task} {SMALL_MAIN} aux malformed"
    assert (await world.step({"aux": SMALL_AUX, "main": SMALL_MAIN})).team == 4


@pytest.mark.parametrize("order", ["sequential", "discussion"])
async def test_the_contract(sandbox: LocalSandbox, order: Order) -> None:
    await check_world(MicroCollab(sandbox, horizon=2, order=order), tasks=1, team=(0, 4), local=(0, 0))
