"""The section ``diagnostics``: what is measured beside training, and where an alarm is raised."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..errors import Natural, NotNegative, Positive, check_fields


@dataclass(frozen=True, kw_only=True)
class AlarmSettings:
    """Thresholds on medians over the last ``window`` iterations; 0 raises no such alarm.  ``docs/diagnostics.md`` says
    what each means, and where its value comes from.

    A gradient share, which is measured in some iterations only, is a median over the last ``measurements``; influence
    is pooled, and the upper end of its 95 % interval must lie below the threshold.  An
    iteration whose success is at least ``solved`` raises none of the alarms that a solved world would raise.

    Raises ``ValueError``, naming the key, for a value out of range.
    """

    window: Positive = 5
    measurements: Positive = 3
    solved: NotNegative = 0.9
    zero_variance: NotNegative = 0.98
    grad_norm: NotNegative = 1e-6
    entropy_ratio: NotNegative = 0.1
    truncated: NotNegative = 0.25
    length_ratio: NotNegative = 3.0
    gradient_share: NotNegative = 0.8
    excess_weight: NotNegative = 0.25
    influence: NotNegative = 0.05
    spread: NotNegative = 0.005
    mismatch_roundings: NotNegative = 8.0
    mismatch_ess_ratio: NotNegative = 0.8
    stale_ess_ratio: NotNegative = 0.5
    malformed: NotNegative = 0.5

    def __post_init__(self) -> None:
        check_fields(self, "diagnostics.alarms.")


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

    every: Natural = 5
    tasks: Natural = 2
    watched: Natural = 1
    ratios: bool = True
    pictures: bool = True
    max_mb: Positive = 64

    def __post_init__(self) -> None:
        check_fields(self, "diagnostics.trees.")


@dataclass(frozen=True, kw_only=True)
class DiagnosticsSettings:
    """``every`` so many iterations, from the first on, ``probe_tasks`` of the iteration's tasks are played once more
    for the influence of each agent's messages, and the gradient of each agent is measured where agents share a policy;
    0: never.

    Raises ``ValueError``, naming the key, for a value out of range.
    """

    enabled: bool = True
    every: Natural = 10
    probe_tasks: Natural = 2
    alarms: AlarmSettings = field(default_factory=AlarmSettings)
    trees: TreeSettings = field(default_factory=TreeSettings)

    def __post_init__(self) -> None:
        check_fields(self, "diagnostics.")
