"""The actors that play episodes, without a cluster."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from troupe.cluster.settings import Execution
from troupe.rollout.samplers import spread
from troupe.rollout.samplers.spread import SpreadSampler


class ActorStub:
    """An actor whose world closes with ``error``."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error, self.calls, self.group = error, list[str](), SimpleNamespace(actors=[self])

    def at_once(self, method: str) -> None:
        self.calls.append(method)
        if self.error is not None:
            raise self.error

    async def end(self) -> None:
        self.calls.append("end")


def test_every_actor_ends_where_worlds_fail_to_close() -> None:
    sampler: Any = SpreadSampler.__new__(SpreadSampler)
    sampler.actors = [ActorStub(), ActorStub(OSError("a world does not close")), ActorStub()]
    with pytest.raises(OSError, match="a world does not close"):
        asyncio.run(sampler.close())
    assert [actor.calls for actor in sampler.actors] == [["close", "end"]] * 3


def test_actors_end_where_a_later_one_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    def actor(name: str, *_: object) -> Any:
        if name == "worlds 2":
            raise OSError("no third actor")
        return SimpleNamespace(group=SimpleNamespace(end=lambda: ended.append(name)))

    monkeypatch.setattr(spread, "Actor", actor)
    inner: Any = SimpleNamespace(topology="tree", k=2, resample=0)
    with pytest.raises(OSError, match="no third actor"):
        SpreadSampler(inner, lambda: inner, Execution("ray", worlds=4))
    assert ended == ["worlds 1", "worlds 0"]
