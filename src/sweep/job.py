"""One job of a sweep: a run is trained, or continued, unless there is one; then it is evaluated, by the sweep's
evaluations besides its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, redirect_stdout
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from ..errors import ConfigError, visible
from ..evaluation.request import EvalRequest, own_task_seed
from ..loop import TrainLoop
from ..models.learning.ranks import OtherRankError, current_ranks
from ..models.pools.checkpoint import CheckpointError
from ..runs.bounded import parse_yaml
from ..runs.directory import write_atomic
from ..runs.files import SEALED, SWAPPED, RunDirectoryError
from ..runs.fingerprint import code_hash, evaluation_keys, training_hash
from ..runs.index import best_match, readable_runs
from ..runs.lock import HeldError
from ..runs.run import RunReader
from ..setup.assembly import build
from ..setup.evaluation import TeamSource, build_conditions, run_conditions
from ..setup.evaluation_actors import ActorFactory
from ..setup.trust import Trust
from .launcher import ending_with
from .outcomes import Outcomes
from .record import SweepRecord, error_file


def evaluate_swapped(run: RunReader, sweep: SweepRecord) -> None:
    """Play the run's test tasks with each agent speaking with the other's last weights; writes ``swapped.json``: how
    much of the policies' skill belongs to their role.

    Tasks, seeds and sampling are those of the run's own ``eval/success``, so the two differ in nothing else.  Raises
    :class:`~troupe.errors.ConfigError` where the team is not two agents with a policy each.
    """
    _evaluate(run, SWAPPED, replace(_own_test(run), swap=True))


def evaluate_sealed(run: RunReader, sweep: SweepRecord) -> None:
    """Play test tasks that the sweep's own seed draws, with the last weights; writes ``sealed.json``."""
    assert sweep.sealed is not None  # the plan has the evaluation only with a seed
    _evaluate(run, SEALED, replace(_own_test(run), task_seed=sweep.sealed))


def _own_test(run: RunReader) -> EvalRequest:
    """The request that repeats the run's ``eval/success``."""
    return EvalRequest(
        checkpoint="last",
        split="test",
        tasks=run.config["loop"]["test_tasks"],
        samples=1,
        temperature=("own",),
        seed=run.config["seed"],
        task_seed=own_task_seed(run.config, "test"),
    )


def _evaluate(run: RunReader, file: str, request: EvalRequest) -> None:
    # The run has the training hash of the configuration that was composed here: what it names, the user named.
    conditions = build_conditions(request, TeamSource(run.config, run, Trust.of((), [run.config])))
    [result] = asyncio.run(run_conditions(request, conditions, ActorFactory(run.config["engine"])))
    origin = {"checkpoint": "last", "code": code_hash(run.config), "task_seed": request.task_seed}
    outcomes = Outcomes.of(map(asdict, result.samples[0])).packed()
    write_atomic(run.path / file, json.dumps(result.summary | origin | {"outcomes": outcomes}, indent=2) + "\n")


Evaluate = Callable[[RunReader, SweepRecord], None]
EVALUATIONS: dict[str, Evaluate] = {"swapped": evaluate_swapped, "sealed": evaluate_sealed}
"""By their names in ``evaluations`` of a sweep's yaml."""


@dataclass(frozen=True)
class JobRunner:
    """The task function that a Hydra launcher calls with each run's configuration, possibly on another machine.

    ``folder`` holds the sweep.  With ``to_file`` the output of the run goes to ``logs/TRAINING_HASH.txt`` there,
    because several runs would print at once, and a line says that it is done, of ``total`` runs.  ``train`` is the
    training command's function.  An error is written to a
    file, and raised for Hydra, which returns it and continues with the next job.
    """

    folder: Path
    rerun_stale: bool
    to_file: bool
    total: int
    train: Callable[[TrainLoop], object]
    local: bool = False
    """Whether the launcher's workers are children of this process."""
    sweep: int = field(default_factory=os.getpid)
    """The process that made this; a worker of its launcher gets it pickled."""

    def __call__(self, cfg: DictConfig) -> str:
        """The run's directory; "" where another process has this run."""
        config = parse_yaml(OmegaConf.to_yaml(cfg, resolve=True))
        training = training_hash(config)
        record = SweepRecord.read(self.folder)
        with ending_with(self.sweep, local=self.local), noting_failure(error_file(self.folder, training)):
            try:
                with self._output(training), _job_lock(record, config, training):
                    run = self._finished_run(cfg, record.runs, training, evaluation_keys(config))
                    for name in record.missing_evaluations(run):
                        EVALUATIONS[name](run, record)
            except HeldError as error:  # the sweep's own output, not the file, says why it ends without this run
                _print(f"{cfg.name}, seed {cfg.seed}: {error}; it is left to that")
                return ""
        if self.to_file:
            _print(f"run {HydraConfig.get().job.num + 1} of {self.total} is done: {cfg.name}, seed {cfg.seed}")
        return str(run.path)

    def _finished_run(self, cfg: DictConfig, runs: Path, training: str, evaluation: Mapping[str, Any]) -> RunReader:
        """An earlier run, or an interrupted one that is trained to its end, or a new one."""
        matching = [run for run in readable_runs(runs)[0] if run.training_hash == training]
        run = best_match(matching, training, evaluation)
        if run is not None and not self._too_stale(run, evaluation):
            return run
        interrupted = [run for run in matching if not run.finished and not self._too_stale(run, evaluation)]
        interrupted.sort(key=_progress)
        loop = None
        while interrupted and loop is None:
            furthest = interrupted.pop()
            loop = _resume(cfg, furthest, "the next one is tried" if interrupted else "the run begins anew")
        if loop is None:
            # Runs of one sweep may start in the same second with the same name and seed: they differ in the hash.
            cfg.run_dir = str(runs / cfg.name / f"{datetime.now():%Y-%m-%d_%H-%M-%S}-{cfg.seed}-{training}")
            loop = build(cfg)
        self.train(loop)
        return RunReader(loop.directory.path)

    def _too_stale(self, run: RunReader, evaluation: Mapping[str, Any]) -> bool:
        return self.rerun_stale and bool(run.stale(evaluation))

    @contextmanager
    def _output(self, training: str) -> Iterator[None]:
        if not self.to_file:
            yield
            return
        file = self.folder / "logs" / f"{training}.txt"
        file.parent.mkdir(exist_ok=True)
        with file.open("a", encoding="utf-8", buffering=1) as stream, redirect_stdout(stream):
            yield


def _resume(cfg: DictConfig, run: RunReader, alternative: str) -> TrainLoop | None:
    """``run`` at its last checkpoint, as ``resume=`` loads it; None where it cannot be continued, and the reason is
    printed with the ``alternative``.

    Of several processes all follow the first.  Raises :class:`..runs.lock.HeldError` where another process trains it.
    """
    cfg.resume = str(run.path)
    try:
        return build(cfg)
    except (CheckpointError, ConfigError, RunDirectoryError, HeldError, OtherRankError) as error:
        held, reason = current_ranks().from_first((isinstance(error, HeldError), " ".join(str(error).split())))
    finally:
        cfg.resume = None
    if held:
        raise HeldError(reason)
    _print(f"{run.path} cannot be continued, {alternative}: {reason}")
    return None


def _print(text: str) -> None:
    """Once, whatever the number of processes."""
    if current_ranks().first:
        print(visible(text), flush=True)


def _job_lock(record: SweepRecord, config: Mapping[str, Any], training: str) -> AbstractContextManager[object]:
    """The lock of the job, which keeps other sweeps from it, where one process trains alone.

    Processes that train together have only the lock of the run directory, which the first of them takes once all have
    met: with a lock per job, those that do not get it would continue with the next job, and wait there for the others.
    """
    strategy = config["strategy"]
    alone = strategy.get("devices") == 1 and strategy.get("num_nodes", 1) == 1
    return record.lock(training) if alone else nullcontext()


def _progress(run: RunReader) -> tuple[int, str]:
    """The iterations before its last checkpoint (0 without one), and its name, by which the newest comes last."""
    last = run.checkpoint("last").resolve().name
    return int(last.removeprefix("iteration_")) if last.startswith("iteration_") else 0, run.path.name


@contextmanager
def noting_failure(file: Path) -> Iterator[None]:
    """A context that writes an error which leaves it to ``file``, the message first; without an error there is no file.

    An interrupt is no error.
    """
    file.unlink(missing_ok=True)
    try:
        yield
    except Exception as error:
        message = " ".join(f"{type(error).__name__}: {error}".split())
        file.parent.mkdir(exist_ok=True)
        write_atomic(file, f"{message}\n\n{''.join(traceback.format_exception(error))}")
        raise
