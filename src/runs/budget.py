"""How long a run trains: its settings, and how many iterations, tasks and completions are left."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

from ..errors import Natural, Positive, check_fields
from .faults import DEFAULT_FAULTS, FaultSettings
from .progress import Progress


@dataclass(frozen=True)
class Budget:
    """``iterations`` in total, of ``tasks_per_iteration`` each; a run ends earlier once about ``completions`` (0: no
    bound) were generated for training.

    How many tasks the bound still allows is estimated by what a task has cost in the last iteration.
    """

    iterations: int
    tasks_per_iteration: int
    completions: int

    def exhausted(self, iteration: int, completions: int) -> bool:
        """Whether all iterations are done after ``iteration`` of them, or all completions generated after
        ``completions`` of them.
        """
        return iteration >= self.iterations or 0 < self.completions <= completions

    def tasks_within_budget(self, progress: Progress) -> int:
        """How many tasks the bound on completions still allows; ``sys.maxsize`` without a bound, and before the first
        iteration, whose cost is unknown.
        """
        if not self.completions or not progress.task_cost:
            return sys.maxsize
        return round((self.completions - progress.completions) / progress.task_cost)

    def next_tasks(self, progress: Progress) -> int:
        """How many tasks the next iteration plays: at least one."""
        return max(1, min(self.tasks_per_iteration, self.tasks_within_budget(progress)))

    def tasks_ahead(self, progress: Progress, batch: int, begun: int, staleness: int) -> int:
        """How many tasks of ``batch`` are begun now, where ``begun`` others are not learnt from yet, and the tasks of
        the present iteration and of ``staleness`` further ones may be under way; 0: none.
        """
        if begun and (batch > progress.iteration + staleness or batch >= self.iterations):
            return 0
        if not begun:
            return self.next_tasks(progress)
        if self.completions and not progress.task_cost:  # what a task costs is not known yet
            return 0
        return max(0, min(self.tasks_per_iteration, self.tasks_within_budget(progress) - begun))

    def expected_iterations(self, progress: Progress) -> int:
        """How many iterations the run will have."""
        left = math.ceil(max(0, self.tasks_within_budget(progress)) / self.tasks_per_iteration)
        return min(self.iterations, progress.iteration + left)


@dataclass(frozen=True)
class LoopSettings:
    """How long a run trains, and how often it evaluates.

    ``iterations`` in total, of ``tasks_per_iteration`` training tasks; the run ends early once about ``completions``
    (0: no bound) were generated for training, and its last iteration plays only the tasks that this bound still
    allows.  Every ``eval_every`` iterations ``validation_tasks`` are played, with ``validate_first`` also before the
    first; before and after training ``test_tasks``.  ``task_seed`` draws both from their splits.
    ``lockstep`` is for the engines: they decode in common rounds, so that a seed fixes the run.

    With ``staleness`` n > 0 the tasks of the next n iterations are played while policies learn, and no message is
    learnt from more than n updates of its policy after the one that sampled it; 0: exactly on-policy.  ``in_flight`` is
    for the engines, too: they load new weights between two tokens, instead of between two completions.
    """

    iterations: Natural
    tasks_per_iteration: Positive
    completions: Natural
    eval_every: Positive
    validation_tasks: Positive
    test_tasks: Positive
    lockstep: bool = True
    task_seed: Natural = 0
    validate_first: bool = False
    staleness: Natural = 0
    in_flight: bool = False

    def __post_init__(self) -> None:
        check_fields(self, "loop.")

    @property
    def budget(self) -> Budget:
        return Budget(self.iterations, self.tasks_per_iteration, self.completions)


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """What a configuration says of training.  ``rebuilds``: how often the run goes on with new actors where one is lost
    with what only it held.
    """

    loop: LoopSettings
    seed: int
    faults: FaultSettings = DEFAULT_FAULTS
    rebuilds: int = 0
