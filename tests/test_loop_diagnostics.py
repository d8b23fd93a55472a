"""What diagnostics add to iterations: their episodes beside the rollout, pictures of trees beside the next one."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig

from troupe.cli import train
from troupe.diagnostics import trees
from troupe.experience import Completion, Request
from troupe.loop import TrainLoop
from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.runs.run import RunReader

SMALL = [
    "experiment=sokoban_specialized",
    "loop.iterations=2",
    "loop.tasks_per_iteration=3",
    "loop.eval_every=50",
    "loop.validation_tasks=1",
    "loop.test_tasks=1",
    "env.horizon=1",
    "algorithm.sampler.k=2",
]
TOGETHER = 3 + 2 + 1
"""The first messages of the rollout, of the probe and of the watched task."""
Build = Callable[..., TrainLoop]


@pytest.fixture
def build(composed: Callable[..., DictConfig], tmp_path: Path) -> Build:
    """``build("key=value", ...)``: a small run, not begun."""
    return lambda *overrides: train.build(composed(*SMALL, f"run_dir={tmp_path / 'run'}", *overrides))


class InFlight:
    """Holds the requests of every engine until no further one comes; ``most`` have been held together."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = self.most = self.seen = 0
        self.generate = TorchEngine.generate
        flights = self

        async def generate(engine: TorchEngine, request: Request) -> list[Completion]:
            flights.seen += 1
            flights.now += 1
            flights.most = max(flights.most, flights.now)
            try:
                await flights.rest()
            finally:
                flights.now -= 1
            return await flights.generate(engine, request)

        monkeypatch.setattr(TorchEngine, "generate", generate)

    async def rest(self) -> None:
        seen, quiet = self.seen, 0
        while quiet < 50:
            await asyncio.sleep(0)
            quiet, seen = (quiet + 1 if seen == self.seen else 0), self.seen


async def one_iteration(loop: TrainLoop) -> dict[str, Any]:
    await loop.team.load_weights()
    try:
        return await loop.run_iteration()
    finally:
        await loop.team.close()


@pytest.mark.parametrize(("lockstep", "together"), [(False, TOGETHER), (True, 3)])
def test_the_probe_and_the_watched_are_in_flight_with_the_rollout(
    build: Build, monkeypatch: pytest.MonkeyPatch, lockstep: bool, together: int
) -> None:
    """In lockstep, where other rows of a batch change the last bits, they follow it."""
    loop, flights = build(f"loop.lockstep={lockstep}"), InFlight(monkeypatch)
    row = asyncio.run(one_iteration(loop))
    assert flights.most == together
    assert row["diagnostics/tool/influence_pairs"] == 2 and row["diagnostics/watched_completions"] > 0
    assert row["rollout/tasks"] == 3 and row["time/probe_s"] > 0


@pytest.mark.slow
def test_ahead_of_the_updates_they_begin_with_the_batch_of_their_iteration(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = ["loop.staleness=1", "loop.lockstep=false", "algorithm.objective.importance_cap=2"]
    loop, flights = build(*free, "diagnostics.every=1", "diagnostics.trees.every=1"), InFlight(monkeypatch)
    assert asyncio.run(loop.run())["status"] == "finished"
    assert flights.most >= 2 * TOGETHER  # and what the probe has begun of its continuations
    for row in RunReader(loop.directory.path).rows:
        assert row["diagnostics/probe_completions"] > 0 and row["diagnostics/watched_completions"] > 0


def test_an_interrupt_ends_what_is_played_beside(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, flights = build("loop.lockstep=false", "loop.test_tasks=1"), InFlight(monkeypatch)
    names: set[str] = set()

    async def interrupted() -> None:
        running = asyncio.ensure_future(loop.run())
        while flights.now < TOGETHER:
            await asyncio.sleep(0)
        names.update(task.get_name() for task in asyncio.all_tasks())
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert not [task for task in asyncio.all_tasks() if task.get_name().endswith(" episodes")]

    asyncio.run(interrupted())
    assert {"probe episodes", "watched episodes"} <= names
    assert json.loads((loop.directory.path / "summary.json").read_text())["status"] == "interrupted"


@pytest.mark.slow
def test_pictures_are_drawn_beside_the_next_rollout(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the first iteration are not ready before the second one's update; those of the last end with the run."""
    loop, draw = build("loop.lockstep=false", "diagnostics.trees.every=1"), trees.pictures
    noted: list[str] = []

    async def drawing(*arguments: Any) -> Any:
        while not loop.progress.iteration or (loop.progress.iteration == 1 and not loop.diagnostics.extra._begun):
            await asyncio.sleep(0)
        noted.append("drawn")
        return await draw(*arguments)

    monkeypatch.setattr(trees, "pictures", drawing)
    update = loop.team.update

    async def updating(*arguments: Any, **settings: Any) -> Any:
        noted.append("update")
        return await update(*arguments, **settings)

    loop.team.update = updating
    assert asyncio.run(asyncio.wait_for(loop.run(), 120))["status"] == "finished"
    assert noted == ["update", *["drawn"] * 3, "update", *["drawn"] * 3]
    run = RunReader(loop.directory.path)
    assert not run.problems and [len(run.tree_records(iteration)) for iteration in (0, 1)] == [3, 3]
    assert all(tree["pictures"] and not tree.get("problem") for tree in run.tree_records())
    sizes = [run.tree_files[iteration].path.stat().st_size for iteration in (0, 1)]
    assert run.rows[1]["diagnostics/trees_bytes"] in sizes  # both came to this row, which has the last


def test_trees_are_scored_beside_the_next_rollout_and_before_its_update(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scores of the first iteration end only when the second rollout has."""
    loop, score = build("loop.lockstep=false", "diagnostics.trees.every=1"), trees.TreeKeeper._score
    noted: list[str] = []

    async def scoring(*arguments: Any) -> None:
        while not loop.progress.iteration or (loop.progress.iteration == 1 and "time/rollout_s" not in loop.measured):
            await asyncio.sleep(0)
        await score(*arguments)
        noted.append("scored")

    monkeypatch.setattr(trees.TreeKeeper, "_score", scoring)
    update = loop.team.update

    async def updating(*arguments: Any, **settings: Any) -> Any:
        noted.append("update")
        return await update(*arguments, **settings)

    loop.team.update = updating
    assert asyncio.run(asyncio.wait_for(loop.run(), 120))["status"] == "finished"
    assert noted == ["update", "scored"] * 2
    assert [len(RunReader(loop.directory.path).tree_records(iteration)) for iteration in (0, 1)] == [3, 3]


@pytest.mark.slow
def test_pictures_that_fail_end_no_run(
    build: Build, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def failing(*arguments: Any) -> Any:
        raise ZeroDivisionError("no picture")

    monkeypatch.setattr(trees, "pictures", failing)
    loop = build("loop.lockstep=false", "loop.iterations=1")
    summary = train.train(loop)
    assert summary["status"] == "finished" and summary["faults/diagnostics"] == 1
    assert "diagnostics failed: ZeroDivisionError: no picture" in caplog.text
    caplog.clear()
