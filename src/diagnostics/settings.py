"""The section ``diagnostics``: what is measured beside training, and where an alarm is raised."""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from ..errors import check_whole


@dataclass(frozen=True, kw_only=True)
class AlarmSettings:
    """Thresholds on medians over the last ``window`` iterations; 0 raises no such alarm.  ``docs/diagnostics.md`` says
    what each means, and where its value comes from.

    A gradient share, which is measured in some iterations only, is a median over the last ``measurements``; influence
    is pooled, and the upper end of its 95 % interval must lie below the threshold.  An
    iteration whose success is at least ``solved`` raises none of the alarms that a solved world would raise.

    Raises ``ValueError``, naming the key, for a value out of range.
    """

    window: int = 5
    measurements: int = 3
    solved: float = 0.9
    zero_variance: float = 0.98
    grad_norm: float = 1e-6
    entropy_ratio: float = 0.1
    truncated: float = 0.25
    length_ratio: float = 3.0
    gradient_share: float = 0.8
    excess_weight: float = 0.25
    influence: float = 0.05
    spread: float = 0.005
    mismatch_roundings: float = 8.0
    mismatch_ess_ratio: float = 0.8
    stale_ess_ratio: float = 0.5
    malformed: float = 0.5

    def __post_init__(self) -> None:
        for name in ("window", "measurements"):
            if not isinstance(value := getattr(self, name), int) or value < 1:
                raise ValueError(f"diagnostics.alarms.{name} must be a whole number of at least 1, got {value!r}")
        for each in fields(self):
            if not (value := getattr(self, each.name)) >= 0:
                raise ValueError(f"diagnostics.alarms.{each.name} must be at least 0, got {value!r}")


@dataclass(frozen=True, kw_only=True)
class TreeSettings:
    """Which training trees are kept in ``episodes/train_NNNNN.jsonl``: every ``every`` iterations, from the first on,
    those of the iteration's first ``tasks``, and those of ``watched`` validation tasks, the same each time, which are
    played for this alone and never learnt from.

    ``ratios``: with the learner's log-probabilities before and after the update.  ``pictures``: with the world's
    picture before and after each message, for which the kept trees are played once more.  ``max_mb`` (10^6 bytes)
    bounds all files of a run: where they exceed it, some between the others are removed, the newest never.

    Raises ``ValueError``, naming the key, for a value out of range.
    """

    every: int = 5
    tasks: int = 2
    watched: int = 1
    ratios: bool = True
    pictures: bool = True
    max_mb: int = 64

    def __post_init__(self) -> None:
        for name in ("every", "tasks", "watched"):
            check_whole(f"diagnostics.trees.{name}", getattr(self, name), 0)
        check_whole("diagnostics.trees.max_mb", self.max_mb, 1)
        for name in ("ratios", "pictures"):
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"diagnostics.trees.{name} must be true or false, got {getattr(self, name)!r}")


@dataclass(frozen=True, kw_only=True)
class DiagnosticsSettings:
    """``every`` so many iterations, from the first on, ``probe_tasks`` of the iteration's tasks are played once more
    for the influence of each agent's messages, and the gradient of each agent is measured where agents share a policy;
    0: never.

    Raises ``ValueError``, naming the key, for a value out of range.
    """

    enabled: bool = True
    every: int = 10
    probe_tasks: int = 2
    alarms: AlarmSettings = field(default_factory=AlarmSettings)
    trees: TreeSettings = field(default_factory=TreeSettings)

    def __post_init__(self) -> None:
        if not isinstance(self.enabled, bool):
            raise ValueError(f"diagnostics.enabled must be true or false, got {self.enabled!r}")
        for name in ("every", "probe_tasks"):
            if not isinstance(value := getattr(self, name), int) or value < 0:
                raise ValueError(f"diagnostics.{name} must be a whole number of at least 0, got {value!r}")


DEFAULT_DIAGNOSTICS = DiagnosticsSettings()
