"""What only watches a run: display, loggers, diagnostics, report.  They may fail, and training goes on."""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from .faults import FaultPolicy

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class Observers:
    """Runs what watches a run.  A failure is counted, and the first one of each name is a warning with its place; with
    ``policy`` ``stop`` it is raised.
    """

    def __init__(self, policy: FaultPolicy = "drop") -> None:
        self.policy = policy
        self._warned: set[str] = set()
        self._failures: Counter[str] = Counter()

    def run(self, name: str, call: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T | None:
        """``call(*arguments)`` of the observer ``name``; None where it failed."""
        try:
            return call(*arguments, **keywords)
        except Exception as error:  # of a library, a terminal, a user's class: any kind
            if self.policy == "stop":
                raise
            self._failures[name.partition(".")[0]] += 1
            if name not in self._warned:
                self._warned.add(name)
                place = traceback.extract_tb(error.__traceback__)[-1]
                what = f"{name} failed: {type(error).__name__}: {error}"
                more = "the run goes on without it where it fails, and metrics.jsonl has everything"
                log.warning("%s; %s (%s:%s)", what, more, place.filename, place.lineno)
        return None

    def drain(self) -> Counter[str]:
        """How often observers have failed since the last call, by their names up to the first dot."""
        failures, self._failures = self._failures, Counter()
        return failures
