"""Callbacks: their events in a real run, an end by validation, errors, and a run that goes on."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from omegaconf import DictConfig

from troupe.api.training import train
from troupe.errors import ConfigError
from troupe.experience import Episode
from troupe.loop import TrainLoop
from troupe.models.learning.ranks import Ranks
from troupe.runs.callbacks import Callback, Callbacks, EarlyStop
from troupe.runs.progress import Progress
from troupe.runs.run import RunReader
from troupe.setup.assembly import build

SMALL = ("experiment=sokoban_specialized", "loop.iterations=3", "loop.tasks_per_iteration=2", "loop.eval_every=2")
SMALL += ("loop.validation_tasks=2", "loop.test_tasks=2", "env.horizon=1", "algorithm.sampler.k=2")
HERE = "tests.runs.test_callbacks"
Make = Callable[..., TrainLoop]


class Recorder(Callback):
    """Notes every event; may fail at one, or stop after an iteration."""

    def __init__(self, fails: str = "", last: int = 99) -> None:
        self.fails, self.last = fails, last
        self.events: list[str] = []

    def on_start(self, run: Any) -> None:
        self._note("start", run)

    def on_iteration_start(self, run: Any) -> None:
        self._note("begin", run)

    def on_rollout_end(self, run: Any, episodes: Sequence[Episode]) -> None:
        assert episodes
        self._note("rollout", run)

    def on_update_end(self, run: Any, row: dict[str, Any]) -> None:
        assert "train/tool/loss" in row and set(run.team.policies) == {"tool", "plan"}
        self._note("update", run)

    def on_iteration_end(self, run: Any, row: dict[str, Any]) -> None:
        row["mine/validated"] = int("eval/success" in row)
        self._note("end", run)
        self.stop = run.progress.iteration >= self.last

    def on_end(self, run: Any, summary: Mapping[str, Any]) -> None:
        assert summary["status"] == RunReader(run.directory.path).summary["status"] == "finished"
        self._note("over", run)

    def _note(self, event: str, run: Any) -> None:
        self.events.append(f"{event} {run.progress.iteration}")
        if self.events[-1] == self.fails:
            raise OSError("a full disk")

    def state_dict(self) -> dict[str, Any]:
        return {"events": self.events}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.events = [*state["events"]]


@pytest.fixture
def make(composed: Callable[..., DictConfig], tmp_path: Path) -> Make:
    def new(*overrides: str) -> TrainLoop:
        return build(composed(*SMALL, f"run_dir={tmp_path / 'run'}", *overrides))

    return new


def recorder(loop: TrainLoop) -> Recorder:
    callback = loop.tell.callbacks["mine"]
    assert isinstance(callback, Recorder)
    return callback


MINE = f"+callbacks.mine._target_={HERE}.Recorder"
ALL = ["start 0"]
for number in range(3):
    ALL += [f"begin {number}", f"rollout {number}", f"update {number + 1}", f"end {number + 1}"]
ALL += ["over 3"]


def test_a_run_tells_of_every_event_and_writes_what_is_added(make: Make) -> None:
    train(loop := make(MINE))
    assert recorder(loop).events == ALL
    assert [row["mine/validated"] for row in RunReader(loop.directory.path).rows] == [0, 1, 1]


@pytest.mark.slow
def test_an_error_names_the_callback_and_the_run_goes_on(make: Make, composed: Callable[..., DictConfig]) -> None:
    loop = make(MINE, "+callbacks.mine.fails=end 2")
    with pytest.raises(OSError, match="a full disk") as failure:
        train(loop)
    assert failure.value.__notes__ == ["in callbacks.mine, on_iteration_end, after 2 iterations"]
    assert "callbacks.mine" in RunReader(loop.directory.path).summary["error"]
    again = build(composed(f"resume={loop.directory.path}", f"trust=[{HERE}]", "++callbacks.mine.fails=none"))
    train(again)
    twice = ALL.index("end 2")
    assert recorder(again).events == [*ALL[: twice + 1], "start 2", *ALL[twice:]]


def test_a_callback_ends_the_run_with_its_last_evaluations(make: Make) -> None:
    train(loop := make(MINE, "+callbacks.mine.last=1"))
    run = RunReader(loop.directory.path)
    assert len(run.rows) == 1 and run.finished and run.summary["stopped_by"] == "callbacks.mine"
    assert recorder(loop).events[-1] == "over 1"


def test_what_is_no_callback_is_refused(make: Make) -> None:
    with pytest.raises(ConfigError, match=r"^callbacks\.mine\._target_=.* a Progress cannot stand here"):
        make("+callbacks.mine._target_=troupe.runs.progress.Progress")


@pytest.mark.parametrize("patience", [0, True, 1.5])
def test_early_stop_refuses_its_patience(make: Make, patience: object) -> None:
    with pytest.raises(ConfigError, match=r"^callbacks\.early_stop\.patience must be a whole number"):
        make("callbacks=early_stop", f"callbacks.early_stop.patience={patience}")


def test_early_stop_counts_validations_without_a_new_best() -> None:
    def ended(callbacks: Callbacks, iteration: int, best: int, *, validated: bool = True) -> bool:
        run: Any = SimpleNamespace(progress=Progress(iteration=iteration, best_iteration=best))
        callbacks("on_iteration_end", run, {"eval/success": 0.5} if validated else {})
        return bool(callbacks.stopped_by)

    first = Callbacks({"early_stop": EarlyStop(2)}, Ranks())
    assert [ended(first, n, b) for n, b in ((2, 2), (4, 2), (6, 6), (8, 6))] == [False] * 4
    assert not ended(first, 9, 6, validated=False)
    second = Callbacks({"early_stop": EarlyStop(2), "new": EarlyStop(9)}, Ranks())  # another process goes on
    second.load_state_dict(first.state_dict() | {"gone": {}})
    assert ended(second, 10, 6)
