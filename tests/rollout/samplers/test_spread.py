"""The actors that play episodes, without a cluster."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from troupe.cluster.actors import Answer
from troupe.cluster.execution import Execution
from troupe.envs.workflow import WorkflowWorld
from troupe.rollout.samplers import spread
from troupe.rollout.samplers.spread import SpreadSampler, WorldActor


class Refusing(WorkflowWorld):
    """Closes after a request that was refused."""

    async def close(self) -> None:
        self._service.refused(None, "sender", "no_episode")
        await super().close()


def test_the_run_warns_of_what_worlds_in_actors_warn_of_as_they_close(caplog: pytest.LogCaptureFixture) -> None:
    actor = WorldActor()
    actor.world = Refusing(workflow=lambda *_: 0.0, tasks=lambda *_: [], agents=["sender"])
    stub: Any = ActorStub(answer=asyncio.run(actor.close()))
    caplog.clear()  # in an actor, nobody reads them
    asyncio.run(spread._close(stub))
    line = "worlds 0: requests to the gateway were refused: 1 of no episode (no_episode)"
    assert [record.getMessage() for record in caplog.records] == [line]


class ActorStub:
    """An actor whose world closes with ``answer``."""

    name = "worlds 0"

    def __init__(self, answer: Answer = ([], None)) -> None:
        self.answer, self.calls, self.group = answer, list[str](), SimpleNamespace(actors=[self])

    def at_once(self, method: str) -> Any:
        self.calls.append(method)
        result, error = self.answer
        if error is not None:
            raise error
        return result

    async def end(self) -> None:
        self.calls.append("end")


def test_every_actor_ends_where_worlds_fail_to_close() -> None:
    sampler: Any = SpreadSampler.__new__(SpreadSampler)
    sampler.actors = [ActorStub(), ActorStub((None, OSError("a world does not close"))), ActorStub()]
    with pytest.raises(OSError, match="a world does not close"):
        asyncio.run(sampler.close())
    assert [actor.calls for actor in sampler.actors] == [["close", "end"]] * 3


def test_tasks_that_come_one_by_one_go_to_the_actor_with_fewest() -> None:
    """As those of rollouts ahead of the updates do."""
    played: list[tuple[int, list[Any]]] = []
    ended = asyncio.Event()

    class Playing:
        def __init__(self, index: int) -> None:
            self.index = index

        async def ask(self, method: str, tasks: list[Any], *_: object) -> list[list[Any]]:
            played.append((self.index, tasks))
            if tasks == ["slow"]:
                await ended.wait()
            return [[SimpleNamespace(task=task)] for task in tasks]

    sampler: Any = SpreadSampler.__new__(SpreadSampler)
    sampler.actors, sampler._under_way = [Playing(0), Playing(1)], [0, 0]

    async def run() -> None:
        slow = asyncio.ensure_future(sampler.collect(None, ["slow"], {}, 0))
        for _ in range(5):
            await asyncio.sleep(0)
        for task in ("a", "b"):
            await sampler.collect(None, [task], {}, 0)
        ended.set()
        await slow
        together = await sampler.collect(None, ["c", "d", "e"], {}, 0)
        assert [episode.task for (episode,) in together] == ["c", "d", "e"]

    asyncio.run(run())
    assert played == [(0, ["slow"]), (1, ["a"]), (1, ["b"]), (0, ["c", "e"]), (1, ["d"])]


def test_actors_end_where_a_later_one_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []

    def actor(name: str, *_: object) -> Any:
        if name == "worlds 2":
            raise OSError("no third actor")
        return SimpleNamespace(group=SimpleNamespace(end=lambda: ended.append(name)))

    monkeypatch.setattr(spread, "RemoteActor", actor)
    inner: Any = SimpleNamespace(topology="tree", k=2, resample=0)
    with pytest.raises(OSError, match="no third actor"):
        SpreadSampler(inner, lambda: inner, Execution("ray", worlds=4))
    assert ended == ["worlds 1", "worlds 0"]
