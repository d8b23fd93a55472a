"""Loggers: destinations of a run's metrics besides ``metrics.jsonl``."""

from __future__ import annotations

import importlib
import json
import logging
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_args, runtime_checkable

from ..errors import AbsentError, check_whole
from .directory import write_atomic
from .faults import Observers
from .files import METRICS
from .tables import LogTable

if TYPE_CHECKING:
    from lightning.fabric.loggers.csv_logs import CSVLogger as FabricCsvLogger

log = logging.getLogger(__name__)

WandbMode = Literal["auto", "online", "offline"]


class LoggerError(ValueError):
    """A logger that cannot be used or opened; the message names its key."""


class LoggerPackageError(LoggerError, AbsentError):
    """A logger whose package is not installed."""


class Logger(Protocol):
    """A back end.  Its constructor checks its options; nothing is written before :meth:`config`."""

    def config(self, folder: Path, config: Mapping[str, Any]) -> None:
        """Open the back end for the run in ``folder`` and record its resolved configuration."""

    def metrics(self, row: Mapping[str, float], step: int) -> None:
        """Record one flat row after ``step`` iterations."""

    def close(self) -> None:
        """Write the rest and close."""


@runtime_checkable
class TableLogger(Protocol):
    """A back end that takes tables, too."""

    def table(self, table: LogTable, step: int) -> None:
        """Record the ``table`` of what was played after ``step`` iterations."""


class Loggers:
    """All loggers of a run, by the name of their key under ``logger``; on other ranks than 0 there are none.

    A logger that raises once it is open does not end the run, see :class:`.observers.Observers`.
    """

    def __init__(self, loggers: Mapping[str, Logger], observers: Observers | None = None) -> None:
        self.loggers, self.observers = dict(loggers), observers or Observers()
        self._open = ExitStack()

    def config(self, folder: Path, config: Mapping[str, Any]) -> None:
        """Open every logger.  Raises :class:`LoggerError`, with those closed that were open, where one cannot be."""
        with ExitStack() as opened:
            for name, logger in self.loggers.items():
                logger.config(folder, config)
                opened.callback(self._run, name, logger.close)
            self._open = opened.pop_all()

    def metrics(self, row: Mapping[str, Any], step: int) -> None:
        """Record the numbers of ``row``, see :func:`scalars`."""
        numbers = scalars(row)
        for name, logger in self.loggers.items():
            self._run(name, logger.metrics, numbers, step)

    def table(self, make: Callable[[], LogTable], step: int) -> None:
        """Record the table that ``make`` makes, where a logger takes tables: episodes, training trees."""
        takers = {name: logger for name, logger in self.loggers.items() if isinstance(logger, TableLogger)}
        table = self.observers.run("logger", make) if takers else None
        if table is None:
            return
        for name, logger in takers.items():
            self._run(name, logger.table, table, step)

    def close(self) -> None:
        """Close every logger, also where one of them fails to."""
        self._open.close()

    def _run(self, name: str, call: Callable[..., None], *arguments: Any) -> None:
        self.observers.run(f"logger.{name}", call, *arguments)


def scalars(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row of metrics under its own keys; an interval becomes ``KEY_low`` and ``KEY_high``."""
    numbers: dict[str, float] = {}
    for key, value in row.items():
        if isinstance(value, int | float):
            numbers[key] = value
        elif isinstance(value, list | tuple) and len(value) == 2:
            numbers |= scalars({f"{key}_low": value[0], f"{key}_high": value[1]})
    return numbers


class CsvLogger:
    """``csv/version_N/metrics.csv`` by Lightning's CSV logger; a continued run gets the next N, so nothing is lost."""

    def __init__(self) -> None:
        self._logger: FabricCsvLogger

    def config(self, folder: Path, config: Mapping[str, Any]) -> None:
        from lightning.fabric.loggers.csv_logs import CSVLogger as FabricCsvLogger  # which takes seconds

        self._logger = FabricCsvLogger(folder, name="csv", flush_logs_every_n_steps=1)
        _ = self._logger.experiment  # makes the folder

    def metrics(self, row: Mapping[str, float], step: int) -> None:
        self._logger.log_metrics(dict(row), step)

    def close(self) -> None:
        self._logger.finalize("")


class TensorBoardLogger:
    """Event files in ``tensorboard/`` by Lightning's TensorBoard logger; the configuration is a text there.

    A continued run writes on there, and TensorBoard drops what an earlier session logged after the checkpoint.

    Raises :class:`LoggerError` where the extra ``[tensorboard]`` is not installed.
    """

    def __init__(self) -> None:
        _imported("tensorboard")

    def config(self, folder: Path, config: Mapping[str, Any]) -> None:
        from lightning.fabric.loggers.tensorboard import TensorBoardLogger as FabricTensorBoardLogger

        next_step = _iterations(folder) + 1
        purge_step = next_step if next_step > 1 else None
        self._logger = FabricTensorBoardLogger(folder, name="tensorboard", version="", purge_step=purge_step)
        lines = json.dumps(config, indent=2).splitlines()
        self._logger.experiment.add_text("config", "\n".join(f"    {line}" for line in lines))  # Markdown's code block

    def metrics(self, row: Mapping[str, float], step: int) -> None:
        self._logger.log_metrics(row, step)

    def close(self) -> None:
        self._logger.finalize("")


class WandbLogger:
    """A run of Weights & Biases, its files in ``wandb/``.

    Tables are W&B's tables: of each the first ``episodes`` episodes (0: none).

    ``group`` and ``tags`` are those of the run there.  Its id is in ``wandb/run_id``, so that a continued run is the
    same run of W&B.  Charts are over ``iteration``: W&B's own steps cannot go back to a checkpoint.

    ``mode`` ``auto`` is online where a key is known to W&B (``WANDB_API_KEY`` or ``wandb login``) and offline
    elsewhere; the variable ``WANDB_MODE`` decides before that.  Raises :class:`LoggerError` where the extra
    ``[wandb]`` is not installed, the mode is unknown, or W&B refuses to start.
    """

    def __init__(
        self,
        project: str,
        name: str,
        mode: WandbMode = "auto",
        group: str | None = None,
        tags: Sequence[str] = (),
        episodes: int = 20,
    ) -> None:
        if mode not in get_args(WandbMode):
            raise LoggerError(f"logger.wandb.mode={mode} is unknown. Known: {', '.join(get_args(WandbMode))}")
        check_whole("logger.wandb.episodes", episodes, 0, error=LoggerError)
        self._wandb = _imported("wandb")
        self.project, self.name, self.mode, self.group, self.tags = project, name, mode, group, tuple(tags)
        self.episodes = episodes

    def config(self, folder: Path, config: Mapping[str, Any]) -> None:
        quiet = self._wandb.Settings(silent=True, console="off")  # it would write into the live panel
        mode: str | None = self.mode
        file = folder / "wandb" / "run_id"
        resume = "allow" if file.exists() else None  # the run of that id, or where it never went online a new one
        try:
            if mode == "auto":
                mode = None if "WANDB_MODE" in os.environ or self._wandb.login(prompt=False) else "offline"
            if mode == "offline":
                log.warning("logger.wandb is offline; later: wandb sync %s", folder / "wandb" / "offline-run-*")
            self._run = self._wandb.init(
                project=self.project,
                name=self.name,
                group=self.group,
                tags=self.tags,
                id=_run_id(file),
                resume=resume,
                dir=folder,
                config=dict(config),
                mode=mode,
                settings=quiet,
            )
        except self._wandb.errors.Error as error:
            raise LoggerError(f"logger.wandb cannot be opened: {error}") from error
        self._run.define_metric("*", step_metric="iteration")

    def metrics(self, row: Mapping[str, float], step: int) -> None:
        self._run.log({"iteration": step, **row})

    def table(self, table: LogTable, step: int) -> None:
        if self.episodes:
            shown = table.head(self.episodes)
            content = self._wandb.Table(columns=list(shown.columns), data=list(map(list, shown.rows)))
            self._run.log({"iteration": step, table.name: content})

    def close(self) -> None:
        self._run.finish()


class TrackioLogger:
    """A run of Trackio on this machine: ``trackio show --project PROJECT`` opens its page.

    Its name ends with the id in ``trackio/run_id``, so that a continued run is the same run there.  Raises
    :class:`LoggerError` where the extra ``[trackio]`` is not installed.
    """

    def __init__(self, project: str, name: str, group: str | None = None) -> None:
        self._trackio = _imported("trackio")
        self.project, self.name, self.group = project, name, group

    def config(self, folder: Path, config: Mapping[str, Any]) -> None:
        self._run = self._trackio.init(
            project=self.project,
            name=f"{self.name}-{_run_id(folder / 'trackio' / 'run_id')}",
            group=self.group,
            config=dict(config),
            resume="allow",
            embed=False,
            auto_log_cpu=False,
            auto_log_gpu=False,
        )

    def metrics(self, row: Mapping[str, float], step: int) -> None:
        self._run.log(dict(row), step=step)

    def close(self) -> None:
        self._run.finish()


def _run_id(file: Path) -> str:
    """The id in ``file``; where there is no file, a new one, which is written there."""
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        write_atomic(file, secrets.token_hex(4))
    return file.read_text()


def _iterations(folder: Path) -> int:
    """How many rows of metrics the run in ``folder`` has."""
    file = folder / METRICS
    return len(file.read_text().splitlines()) if file.exists() else 0


def _imported(package: str) -> ModuleType:
    """The package behind ``logger=PACKAGE``, which the extra of the same name installs."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise LoggerPackageError(
            f"logger.{package} needs the extra [{package}], and {error.name} is not installed: "
            f".venv/bin/pip install -c constraints.txt -e '.[{package}]'"
        ) from error
