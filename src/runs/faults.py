"""What a run does where something outside of the policies fails, what only watches it included: display, loggers,
diagnostics, report.  ``docs/reliability.md`` lists them all.
"""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, ParamSpec, TypeVar

from ..errors import LostEpisodesError, Share, check_fields
from ..experience import Failure

FaultPolicy = Literal["drop", "stop"]
WINDOW = 20
"""Iterations over which the share of lost episodes is taken."""


@dataclass(frozen=True)
class FaultSettings:
    """The section ``faults``: by kind ``drop`` (go on without it, and count it) or ``stop``.  ``logger`` is for all
    that only watches a run.

    A run stops, too, once more than ``max_lost_share`` of its episodes are lost, over its last :data:`WINDOW`
    iterations in training, in an evaluation over its own episodes; and where nothing is left.  Raises ``ValueError``,
    naming the key, for other values.
    """

    world: FaultPolicy = "drop"
    sandbox: FaultPolicy = "drop"
    engine: FaultPolicy = "drop"
    logger: FaultPolicy = "drop"
    max_lost_share: Share = 0.05

    def __post_init__(self) -> None:
        check_fields(self, "faults.")

    def raise_if_stopping(self, failure: Failure) -> None:
        """Raise the exception of ``failure``, as it came, where its kind stops the run; :class:`LostEpisodesError`
        where another process has it."""
        if getattr(self, failure.kind) == "stop":
            raise failure.error or LostEpisodesError(
                f"an episode is lost, with faults.{failure.kind}=stop: {failure.message}"
            )

    def check(self, failures: Sequence[Failure], episodes: int, lost_before: int = 0, episodes_before: int = 0) -> None:
        """Raise :class:`LostEpisodesError` where too many of ``episodes``, and of those before, are lost."""
        lost, total = lost_before + len(failures), episodes_before + episodes
        if failures and (lost > self.max_lost_share * total or len(failures) == episodes):
            raise LostEpisodesError(
                f"{lost} of {total} episodes are lost, with faults.max_lost_share={self.max_lost_share:g}; the first: "
                f"{failures[0].message}"
            )


DEFAULT_FAULTS = FaultSettings()


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
