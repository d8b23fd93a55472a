"""An actor that is lost, and others in its place: the code of the run's process, with a stub of Ray's actors."""

import asyncio
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

from troupe.cluster import actors
from troupe.cluster.actors import ActorGroup, ClusterError, LostActorError, RemoteActor, connected, packed, unpacked
from troupe.cluster.execution import Execution, Resources


class EndedError(Exception):
    """Ray's ``RayActorError``."""


class GoneError(Exception):
    """Ray's ``ObjectLostError``."""


class RefusedError(Exception):
    """Ray's ``AuthenticationError``."""


EXCEPTIONS = SimpleNamespace(RayActorError=EndedError, ObjectLostError=GoneError, AuthenticationError=RefusedError)
RAY = SimpleNamespace(get=asyncio.run, exceptions=EXCEPTIONS)
Fault = Exception | asyncio.Event | None


class ActorStub:
    """Answers every call with its name; a method among ``faults`` fails, or waits."""

    def __init__(self, faults: dict[str, Fault]) -> None:
        self.faults, self.calls = faults, list[str]()

    def __getattr__(self, method: str) -> Any:
        async def remote(*_: object) -> Any:
            self.calls.append(method)
            fault = self.faults.get(method)
            if isinstance(fault, asyncio.Event):
                await fault.wait()
            elif fault is not None:
                raise fault
            return method, None

        return SimpleNamespace(remote=remote)


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[ActorGroup]:
    """Every group that was started."""
    started: ClassVar[list[ActorGroup]] = []
    monkeypatch.setattr(actors, "ActorGroup", GroupStub)
    monkeypatch.setattr(GroupStub, "started", started)
    return started


class GroupStub(ActorGroup):
    """The next actor that :func:`begin` was given."""

    started: ClassVar[list[ActorGroup]] = []
    coming: ClassVar[list[ActorStub]] = []

    def __init__(self, name: str, *_: object, **__: object) -> None:
        self.name, self.ray, self.actors = name, RAY, [self.coming.pop(0)]
        self.actor: ActorStub = self.actors[0]
        self.started.append(self)

    def end(self) -> None:
        self.actors = []


def begin(*faults: dict[str, Fault], restarts: int = 3) -> RemoteActor:
    """The first actor of those with ``faults``; what brings a new one to its state is ``load``."""
    GroupStub.coming = [ActorStub(each) for each in faults]
    execution = Execution("ray", restarts=restarts)
    return RemoteActor("engine", ActorStub, Resources(), execution, ActorStub, lambda: [("load", 1)])  # type: ignore[arg-type]


def alive(groups: list[ActorGroup]) -> list[bool]:
    return [bool(group.actors) for group in groups]


@pytest.mark.parametrize("mode", ["token", "disabled", None])
def test_a_cluster_without_a_token_is_warned_of(
    mode: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", mode or "")
    if mode is None:
        monkeypatch.delenv("RAY_AUTH_MODE")
    ray = SimpleNamespace(is_initialized=lambda: False, init=lambda *_, **__: None, exceptions=EXCEPTIONS)
    monkeypatch.setattr(actors, "import_module", {"ray": ray}.__getitem__)
    assert connected(Execution("ray", "head:6379")) is ray
    assert ("joined without a token" in caplog.text) == (mode != "token")


def test_a_wrong_token_is_an_error_with_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(*_: object, **__: object) -> None:
        raise RefusedError("no token")

    ray = SimpleNamespace(is_initialized=lambda: False, init=init, exceptions=EXCEPTIONS)
    monkeypatch.setattr(actors, "import_module", {"ray": ray}.__getitem__)
    with pytest.raises(ClusterError, match=r"execution\.address=head:6379: no token"):
        connected(Execution("ray", "head:6379"))


LOST, GONE = EndedError("lost"), GoneError("gone")


def test_an_actor_that_is_lost_as_it_starts_gives_its_place_back(groups: list[ActorGroup]) -> None:
    with pytest.raises(LostActorError, match="engine: a process, or its node, has ended while it started"):
        begin({"begin": LOST})
    with pytest.raises(KeyboardInterrupt):
        begin({"begin": KeyboardInterrupt()})  # type: ignore[dict-item]
    assert alive(groups) == [False, False]


def test_an_actor_is_replaced_until_one_is_ready(groups: list[ActorGroup]) -> None:
    actor = begin({"play": LOST}, {"begin": LOST}, {"load": LOST}, {})
    assert asyncio.run(actor.ask("play")) == "play"
    assert actor.restarts == 3 and alive(groups) == [False, False, False, True]
    assert groups[-1].actor.calls == ["begin", "load", "play"]  # type: ignore[attr-defined]


def test_restarts_bound_it_and_nothing_is_left(groups: list[ActorGroup]) -> None:
    actor = begin({"play": LOST}, {"begin": LOST}, {"load": LOST}, {}, restarts=2)
    for message in ("has ended again .execution.restarts=2.", "engine has ended"):
        with pytest.raises(LostActorError, match=message):
            asyncio.run(actor.ask("play"))
    assert alive(groups) == [False, False, False]


def test_lost_weights_are_not_tried_again(groups: list[ActorGroup]) -> None:
    actor = begin({"play": LOST}, {"load": GONE}, {})
    with pytest.raises(LostActorError, match="the weights that it had are lost, too"):
        asyncio.run(actor.ask("play"))
    assert alive(groups) == [False, False]


@pytest.mark.parametrize("fault", [None, LOST, asyncio.Event()])
def test_an_actor_closes_what_it_has_before_it_is_ended(
    groups: list[ActorGroup], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: Fault
) -> None:
    monkeypatch.setattr(actors, "GRACE_S", 0.01)
    actor = begin({"do": fault})
    asyncio.run(actor.end("do", "close"))
    assert groups[0].actor.calls == ["begin", "do"] and alive(groups) == [False]  # type: ignore[attr-defined]
    assert ("engine has not ended by itself" in caplog.text) == (fault is not None)
    asyncio.run(actor.end("do", "close"))


def test_a_caller_that_gives_up_leaves_no_actor_without_its_weights(groups: list[ActorGroup]) -> None:
    may_load = asyncio.Event()
    actor = begin({"play": LOST}, {"load": may_load})

    async def main() -> Any:
        first, second = (asyncio.create_task(actor.ask("play")) for _ in range(2))
        while not (len(groups) == 2 and "load" in groups[1].actor.calls):  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        may_load.set()
        return await second

    assert asyncio.run(main()) == "play"
    assert groups[1].actor.calls == ["begin", "load", "play"]  # type: ignore[attr-defined]


# ---- weights as arrays for Ray's object store ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_weights_keep_every_bit(dtype: torch.dtype) -> None:
    weights = {"a": torch.randn(3, 4).to(dtype), "b": torch.randn(4, 6).to(dtype).T, "c": torch.randn(()).to(dtype)}
    arrays = packed(weights)
    for array, _ in arrays.values():
        array.flags.writeable = False  # as Ray gives them back
    again = unpacked(arrays)
    assert again.keys() == weights.keys()
    for key, value in weights.items():
        assert again[key].dtype == dtype and torch.equal(again[key], value)
