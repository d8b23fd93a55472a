"""Where a run writes and shows what it does: its directory, its loggers, the console."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..experience import Failure
from ..kernels.memory import UpdateMemoryError
from .callbacks import Callbacks
from .directory import RunDirectory
from .display import Display
from .faults import Observers
from .loggers import Loggers
from .metrics import fault_metrics, prefixed
from .progress import Progress

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunOutput:
    """All that only watches a run gets what it writes from here."""

    directory: RunDirectory
    loggers: Loggers
    display: Display
    callbacks: Callbacks

    @property
    def observers(self) -> Observers:
        return self.loggers.observers

    def count_faults(self, progress: Progress, failures: Sequence[Failure]) -> dict[str, float]:
        """Metrics of lost episodes, and of observers that failed since the last call; added to the totals."""
        counts = fault_metrics(failures, self.observers.drain())
        progress.add_counters(counts)
        return counts

    def row(self, row: Mapping[str, Any], iteration: int) -> None:
        """Write the metrics of an iteration."""
        self.directory.metrics(row)
        self.loggers.metrics(row, iteration)

    def summary(self, summary: Mapping[str, Any], logged: Mapping[str, Any], iteration: int) -> None:
        """Write the summary as it stands; loggers get ``logged``."""
        self.directory.summary(summary)
        self.loggers.metrics(logged, iteration)

    def count_last(self, progress: Progress, drain: Callable[[], Mapping[str, float]]) -> None:
        """Add what was counted since the last row to the totals, at a run's end; ``drain`` gives that of engines."""
        try:
            progress.add_counters(drain())
        except Exception as error:  # whatever it is, the summary and the checkpoint matter more
            log.warning("what the engines have counted last is lost: %s", _describe(error))
        self.count_faults(progress, [])
        if isinstance(sys.exception(), UpdateMemoryError):
            progress.add_counters({"faults/oom_stops": 1})

    def end(self, progress: Progress, status: str, alarms: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Write the metrics of an unfinished validation, and the summary, which is returned; in an exception's handling
        with its description.
        """
        summary = progress.totals() | {"status": status, "alarms": alarms}
        if self.callbacks.stopped_by:
            summary["stopped_by"] = f"callbacks.{self.callbacks.stopped_by}"
        if status == "failed":
            summary["error"] = _describe(sys.exception())
        if progress.row:
            self.row(progress.row, progress.iteration)
        self.summary(summary, prefixed("summary", summary), progress.iteration)
        return summary


def _describe(error: BaseException | None) -> str:
    return "; ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])])
