"""Writing in the orders of the publication's baselines: who sees what, and what is judged."""

import json
from pathlib import Path

import pytest

from troupe.envs.testing import check_world
from troupe.envs.turns import Order
from troupe.envs.writing import ArticleSource, Writing
from troupe.experience import Task

WORDS = "anchor bridge candle desert feather garden"
FIRST, SECOND = "the anchor bridge", "then the anchor bridge candle of"


def begin(order: Order, horizon: int) -> Writing:
    world = Writing(order=order, horizon=horizon)
    world.reset(Task("by-hand", "test", {"article": WORDS}))
    return world


def user(world: Writing, agent: str) -> str:
    return world.observe(agent)[-1]["content"]


async def test_in_a_sequence_the_second_sees_the_first() -> None:
    world = begin("sequential", 2)
    result = await world.step({"concise": "the anchor"})
    assert (result.team, result.local, result.done, world.turn) == (0, {"concise": 0}, False, 0)
    assert user(world, "detailed").endswith("mine none theirs the anchor")
    result = await world.step({"detailed": "garden"})
    assert result.local == {"detailed": 0} and not result.done
    assert user(world, "concise").endswith("mine the anchor theirs garden")
    await world.step({"concise": FIRST})
    assert user(world, "detailed").endswith(f"mine garden theirs {FIRST}")
    result = await world.step({"detailed": SECOND})
    assert result.success and world._best == pytest.approx(2.76)


async def test_in_a_discussion_drafts_are_not_judged() -> None:
    world = begin("discussion", 2)
    result = await world.step({"concise": FIRST, "detailed": SECOND})
    assert (result.team, result.done) == (0, False)
    assert user(world, "detailed").endswith(f"mine {SECOND} theirs {FIRST}")
    result = await world.step({"concise": FIRST, "detailed": SECOND})
    assert (result.team, result.success) == (pytest.approx(2.76), True)


async def test_prompts_in_sentences(tmp_path: Path) -> None:
    rows = [{"prompt": f"SUBREDDIT: r/cats\n\nTITLE: My cat {n}\n\nPOST: It sleeps.\n\nTL;DR:"} for n in range(60)]
    (tmp_path / "posts.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    world = Writing(kind="tldr", order="sequential", train=[ArticleSource("tldr", str(tmp_path / "posts.jsonl"))])
    world.reset(world.tasks("train", 1, 0)[0])
    assert "writes the long summary after you" in world.observe("concise")[0]["content"]
    await world.step({"concise": "A cat sleeps on things."})
    assert "writes the short summary before you" in world.observe("detailed")[0]["content"]
    assert user(world, "detailed").endswith("Your partner's text:\nA cat sleeps on things.")


@pytest.mark.parametrize("order", ["sequential", "discussion"])
async def test_the_contract(order: Order) -> None:
    await check_world(Writing(order=order, horizon=2), tasks=1, team=(0, 3), local=(0, 0))
