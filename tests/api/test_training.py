"""How ``train`` ends where an actor is lost: pools that fail as those of a cluster do, on a real run."""

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from troupe.api import training
from troupe.cluster.actors import LostActorError
from troupe.loop import TrainLoop
from troupe.models.pools.team import Team
from troupe.setup.assembly import build

SMALL = (
    *("experiment=sokoban_single", "loop.iterations=1", "loop.tasks_per_iteration=1", "algorithm.sampler.k=2"),
    *("loop.validation_tasks=1", "loop.test_tasks=1", "env.horizon=1", "threads=1"),
)


@pytest.fixture
def loop(composed: Callable[..., Any], tmp_path: Path) -> TrainLoop:
    """Not begun; it may be rebuilt twice."""
    made = build(composed(*SMALL, f"run_dir={tmp_path / 'run'}"))
    made.rebuilds = 2
    return made


@pytest.mark.slow
def test_an_actor_that_is_lost_before_the_first_checkpoint_is_written_is_replaced(
    loop: TrainLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed, close = [], loop.team.close

    async def closing() -> None:
        closed.append(True)
        await close()

    monkeypatch.setattr(loop.checkpoints, "write", lost)
    monkeypatch.setattr(loop.team, "close", closing)
    assert training.train(loop)["status"] == "finished"
    assert closed and status(loop) == "finished"


def status(loop: TrainLoop) -> str:
    found: str = json.loads((loop.directory.path / "summary.json").read_text())["status"]
    return found


def lost(*_: object, **__: object) -> Any:
    raise LostActorError("pool tool: a process, or its node, has ended")


def no_rebuild(path: Path) -> TrainLoop:
    raise AssertionError(f"{path} was to be rebuilt")


def test_an_interrupt_is_not_lost_with_a_pool(
    loop: TrainLoop, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def interrupted() -> None:
        loop.checkpoints.write = lost  # type: ignore[method-assign]
        raise asyncio.CancelledError

    loop._begin = interrupted  # type: ignore[method-assign]
    monkeypatch.setattr(training, "reassemble", no_rebuild)
    with caplog.at_level(logging.WARNING), pytest.raises(KeyboardInterrupt):
        training.train(loop)
    assert status(loop) == "interrupted" and "no checkpoint at the interrupt" in caplog.text


def test_an_interrupt_during_an_update_is_not_lost_with_a_pool(
    loop: TrainLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def update(*_: object, **__: object) -> Any:
        runs = [task for task in asyncio.all_tasks() if "_run_until_signal" in repr(task.get_coro())]
        assert len(runs) == 1 and runs[0].cancel()
        await asyncio.sleep(0)  # in which the run is cancelled, and goes on
        lost()

    monkeypatch.setattr(Team, "update", update)
    monkeypatch.setattr(training, "reassemble", no_rebuild)
    with pytest.raises(KeyboardInterrupt):
        training.train(loop)
    assert status(loop) == "interrupted"


@pytest.mark.parametrize("losses", [pytest.param(2, marks=pytest.mark.slow), 3])
def test_a_rebuild_in_which_an_actor_is_lost_is_tried_again(
    loop: TrainLoop, losses: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real, tried = training.reassemble, []

    def reassemble(path: Path) -> TrainLoop:
        tried.append(path)
        return real(path) if len(tried) == losses else lost()

    monkeypatch.setattr(loop, "_begin", lost)
    monkeypatch.setattr(training, "reassemble", reassemble)
    if losses == 2:
        training.train(loop)
        assert status(loop) == "finished"
    else:  # more than loop.rebuilds
        with pytest.raises(LostActorError):
            training.train(loop)
    assert len(tried) == 2 and "the run goes on from its last checkpoint" in capsys.readouterr().out
