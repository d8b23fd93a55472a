"""One run of a sweep: trained, or trained to its end, unless it is there; then evaluated as the sweep asks."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ..errors import ConfigError
from ..loop import TrainLoop
from ..models.checkpoint import CheckpointError
from ..models.ranks import OtherRankError, current_ranks
from ..runs.directory import RunDirectoryError, write_atomic
from ..runs.fingerprint import evaluation_keys, training_hash
from ..runs.lock import HeldError
from ..runs.run import Run, best_match, find_runs, read_config, read_run
from ..setup.build import build
from .record import SweepRecord, error_file
from .swap import EVALUATIONS


@dataclass(frozen=True)
class JobRunner:
    """The task function that a Hydra launcher calls with each run's configuration, possibly on another machine.

    ``folder`` holds the sweep.  ``to_file``: what the run prints goes to ``logs/TRAINING_HASH.txt`` there, because
    several runs would print at once.  ``train`` is the training command's function.  An error is written down, and
    raised for Hydra, which keeps it and goes on.
    """

    folder: Path
    rerun_stale: bool
    to_file: bool
    train: Callable[[TrainLoop], object]

    def __call__(self, cfg: DictConfig) -> str:
        """The run's directory; "" where another process is at this run, which is left to it."""
        config = read_config(OmegaConf.to_yaml(cfg, resolve=True))
        training = training_hash(config)
        record = SweepRecord.read(self.folder)
        with FailureNote(error_file(self.folder, training)), self._output(training):
            try:
                with _claimed(record, config, training):
                    run = self._trained(cfg, record.runs, training, evaluation_keys(config))
                    for name in record.owed(run):
                        EVALUATIONS[name](run)
            except HeldError as error:
                _say(f"{cfg.name}, seed {cfg.seed}: {error}; it is left to that")
                return ""
        return str(run.path)

    def _trained(self, cfg: DictConfig, runs: Path, training: str, wanted: Mapping[str, Any]) -> Run:
        """A finished run: one that is there, one that was begun and goes on, or a new one."""
        there = [run for run in find_runs(runs) if run.training == training]
        run = best_match(there, training, wanted)
        if run is not None and not self._refused(run, wanted):
            return run
        begun = sorted((run for run in there if not run.finished and not self._refused(run, wanted)), key=_reached)
        loop = None
        while begun and loop is None:
            furthest = begun.pop()
            loop = _continued(cfg, furthest, "the next one is tried" if begun else "the run begins anew")
        if loop is None:
            # The hash tells apart runs of one sweep that start in the same second with the same name and seed.
            cfg.run_dir = str(runs / cfg.name / f"{datetime.now():%Y-%m-%d_%H-%M-%S}-{cfg.seed}-{training}")
            loop = build(cfg)
        self.train(loop)
        return read_run(loop.directory.path)

    def _refused(self, run: Run, wanted: Mapping[str, Any]) -> bool:
        return self.rerun_stale and bool(run.stale(wanted))

    @contextmanager
    def _output(self, training: str) -> Iterator[None]:
        if not self.to_file:
            yield
            return
        file = self.folder / "logs" / f"{training}.txt"
        file.parent.mkdir(exist_ok=True)
        with file.open("a", encoding="utf-8", buffering=1) as stream, redirect_stdout(stream):
            yield


def _continued(cfg: DictConfig, run: Run, otherwise: str) -> TrainLoop | None:
    """``run`` at its last checkpoint, as ``resume=`` finds it; None where it cannot go on, having said why, and what
    comes ``otherwise``.

    Of several processes all do what the first finds out.  Raises :class:`.reports.lock.HeldError` where another process
    trains it.
    """
    cfg.resume = str(run.path)
    try:
        return build(cfg)
    except (CheckpointError, ConfigError, RunDirectoryError, HeldError, OtherRankError) as error:
        held, why = current_ranks().from_first((isinstance(error, HeldError), " ".join(str(error).split())))
    finally:
        cfg.resume = None
    if held:
        raise HeldError(why)
    _say(f"{run.path} cannot be continued, {otherwise}: {why}")
    return None


def _say(text: str) -> None:
    if current_ranks().first:
        print(text, flush=True)


def _claimed(record: SweepRecord, config: Mapping[str, Any], training: str) -> AbstractContextManager[object]:
    """The training, for this process alone.

    Several that train together have only the lock of the run directory, which the first takes once they have met: one
    that went on to the next job by itself would meet them there.
    """
    strategy = config["strategy"]
    alone = strategy.get("devices") == 1 and strategy.get("num_nodes", 1) == 1
    return record.claimed(training) if alone else nullcontext()


def _reached(run: Run) -> tuple[int, str]:
    """The iterations up to its last checkpoint (0: there is none), and its name, by which the newest comes last."""
    last = (run.path / "checkpoints" / "last").resolve().name
    return int(last.removeprefix("iteration_")) if last.startswith("iteration_") else 0, run.path.name


@dataclass(frozen=True)
class FailureNote:
    """A context that leaves the error which ended it in ``file``, the message first; without one, no file.

    An interrupt is no failure and leaves none.
    """

    file: Path

    def __enter__(self) -> None:
        self.file.unlink(missing_ok=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            message = " ".join(f"{type(error).__name__}: {error}".split())
            self.file.parent.mkdir(exist_ok=True)
            write_atomic(self.file, f"{message}\n\n{''.join(traceback.format_exception(error))}")
