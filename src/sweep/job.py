"""One run of a sweep: trained unless it is there, then evaluated as the sweep asks."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import TracebackType

from omegaconf import DictConfig, OmegaConf

from ..reports.fingerprint import evaluation_keys, training_hash
from ..reports.run_directory import write_atomic
from ..reports.runs import Run, best_match, find_runs, read_config, read_run
from ..reports.sweep_record import SweepRecord, error_file
from ..train import build, train
from .swap import EVALUATIONS


@dataclass(frozen=True)
class JobRunner:
    """The task function that a Hydra launcher calls with each run's configuration, possibly on another machine.

    ``folder`` holds the sweep.  ``to_file``: what the run says goes to ``logs/TRAINING_HASH.txt`` there, because
    several runs would say it at once.  An error is written down, and raised for Hydra, which keeps it and goes on.
    """

    folder: Path
    rerun_stale: bool
    to_file: bool

    def __call__(self, cfg: DictConfig) -> str:
        """The run's directory."""
        config = read_config(OmegaConf.to_yaml(cfg, resolve=True))
        training = training_hash(config)
        record = SweepRecord.read(self.folder)
        with FailureNote(error_file(self.folder, training)), self._output(training):
            run = best_match(find_runs(record.runs), training, wanted := evaluation_keys(config))
            if run is None or (self.rerun_stale and run.stale(wanted)):
                run = self._train(cfg, record.runs, training)
            for name in record.owed(run):
                EVALUATIONS[name](run)
        return str(run.path)

    def _train(self, cfg: DictConfig, runs: Path, training: str) -> Run:
        # The hash tells apart runs of one sweep that start in the same second with the same name and seed.
        cfg.run_dir = str(runs / cfg.name / f"{datetime.now():%Y-%m-%d_%H-%M-%S}-{cfg.seed}-{training}")
        loop = build(cfg)
        train(loop)
        return read_run(loop.directory.path)

    @contextmanager
    def _output(self, training: str) -> Iterator[None]:
        if not self.to_file:
            yield
            return
        file = self.folder / "logs" / f"{training}.txt"
        file.parent.mkdir(exist_ok=True)
        with file.open("w", encoding="utf-8", buffering=1) as stream, redirect_stdout(stream):
            yield


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
