"""The counters of a run, which a checkpoint holds besides weights."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from .faults import WINDOW


@dataclass
class Progress:
    """The counters of the training loop.

    ``completions``, ``tokens`` and ``env_steps`` were spent on training; ``task_cost`` is the number of completions per
    task in the last iteration.  ``best`` is the highest success on validation, reached after ``best_iteration``.
    ``row`` holds the metrics of an iteration whose validation is not over, ``summary`` those of the evaluations so far
    and the totals of counters; ``wall_s`` and ``cpu_s`` (of this process, with its threads) count seconds over all
    sessions.  ``losses`` has the number of lost episodes and of all for each of the last iterations.  ``alarms`` is the
    state of the alarms, see :mod:`..diagnostics.alarms`.
    """

    iteration: int = 0
    completions: int = 0
    tokens: int = 0
    env_steps: int = 0
    task_cost: float = 0.0
    best: float = -1.0
    best_iteration: int | None = None
    wall_s: float = 0.0
    cpu_s: float = 0.0
    summary: dict[str, Any] = field(default_factory=dict)
    row: dict[str, Any] = field(default_factory=dict)
    losses: list[list[int]] = field(default_factory=list)
    alarms: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Self:
        """From a checkpoint's state, which has no counters at the run's start; those of older versions count no losses
        and no CPU time, and know no alarms.  Raises ``ValueError`` for other values than :meth:`state_dict` has.
        """
        if "iteration" not in state:
            return cls()
        state = {"losses": [], "cpu_s": 0.0, "alarms": {}, **state}
        for name, value in asdict(cls()).items():
            kind = int | float if isinstance(value, int | float) else type(value) if value is not None else int | None
            if not isinstance(state.get(name), kind):
                raise ValueError(f"state.json: {name} is {str(state.get(name, 'missing'))[:100]}")
        return cls(**{each.name: state[each.name] for each in fields(cls)})

    def state_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)

    def count(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """One more iteration, with the rollout's ``metrics``; returns its row."""
        self.iteration += 1
        self.completions += int(metrics["rollout/completions"])
        self.tokens += int(metrics["rollout/tokens"])
        self.env_steps += int(metrics["rollout/env_steps"])
        self.task_cost = metrics["rollout/completions"] / metrics["rollout/tasks"]
        return {"iteration": self.iteration, **metrics}

    def add_losses(self, lost: int, episodes: int) -> None:
        """Of an iteration that is complete."""
        self.losses = [*self.losses, [lost, episodes]][-WINDOW + 1 :]  # the next one makes a window of them

    @property
    def losses_before(self) -> tuple[int, int]:
        """Lost episodes and all, in the iterations of :attr:`losses`."""
        return sum(lost for lost, _ in self.losses), sum(episodes for _, episodes in self.losses)

    def add_counters(self, counters: Mapping[str, float]) -> None:
        """Add ``counters``, by metric, to the totals in the summary."""
        self.summary |= {key: self.summary.get(key, 0) + value for key, value in counters.items()}

    def clock(self) -> Callable[[], None]:
        """Sets the seconds, from those of earlier sessions on, to what they are when it is called."""
        start, cpu_start = time.perf_counter() - self.wall_s, time.process_time() - self.cpu_s

        def count() -> None:
            self.wall_s, self.cpu_s = time.perf_counter() - start, time.process_time() - cpu_start

        return count

    def totals(self) -> dict[str, Any]:
        """The summary of the run as it stands."""
        return self.summary | {
            "iterations": self.iteration,
            "train/completions": self.completions,
            "train/tokens": self.tokens,
            "train/env_steps": self.env_steps,
            "time/wall_s": self.wall_s,
            "time/cpu_s": self.cpu_s,
        }
