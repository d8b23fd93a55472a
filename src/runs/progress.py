"""The counters of a run, which a checkpoint holds besides weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self


@dataclass
class Progress:
    """The counters of the training loop.

    ``completions``, ``tokens`` and ``env_steps`` were spent on training; ``task_cost`` is the number of completions per
    task in the last iteration.  ``best`` is the highest success on validation, reached after ``best_iteration``.
    ``row`` holds the metrics of an iteration whose validation is not over, ``summary`` those of the evaluations so far
    and the totals of the engines' counters; ``wall_s`` counts seconds over all sessions.
    """

    iteration: int = 0
    completions: int = 0
    tokens: int = 0
    env_steps: int = 0
    task_cost: float = 0.0
    best: float = -1.0
    best_iteration: int | None = None
    wall_s: float = 0.0
    summary: dict[str, Any] = field(default_factory=dict)
    row: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Self:
        """From a checkpoint's state."""
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

    def add_engine_counters(self, counters: Mapping[str, float]) -> None:
        """Add ``counters``, by metric, to the totals in the summary."""
        self.summary |= {key: self.summary.get(key, 0) + value for key, value in counters.items()}

    def totals(self) -> dict[str, Any]:
        """The summary of the run as it stands."""
        return self.summary | {
            "iterations": self.iteration,
            "train/completions": self.completions,
            "train/tokens": self.tokens,
            "train/env_steps": self.env_steps,
            "time/wall_s": self.wall_s,
        }
