"""What a table would take on a laptop before any of its runs was measured there."""

from __future__ import annotations

from collections.abc import Sequence

from ..rows import SweepJob
from .gpu_hours import completions_of, evaluated_of
from .plan import PartPlan

SECONDS: dict[str, float] = {
    "sokoban_specialized": 0.0032,
    "code_collab_specialized": 0.0033,
    "writing_specialized": 0.0013,
}
"""By experiment, CPU seconds per completion at laptop scale: ``time/cpu_s`` over ``train/completions`` of one run of
three iterations with one thread (``loop.iterations=3 loop.completions=0 loop.validation_tasks=1 loop.test_tasks=1``) on
an x86 core, once.  Long answers, other processors and other numbers of candidates change it by a factor of two."""
ASSUMED = (
    "no run of them was measured here: CPU seconds per completion of short runs of the same worlds elsewhere; expect a "
    "factor of two either way"
)


def cpu_hours(plan: PartPlan, jobs: Sequence[SweepJob], scale: str) -> float | None:
    """Of ``jobs`` of a part; None at a scale, or for a world, that was not measured."""
    seconds = SECONDS.get(plan.part.experiment) if scale == "laptop" else None
    if seconds is None:
        return None
    configs = [plan.configs[job.training] for job in jobs]
    return sum(completions_of(config) + evaluated_of(config) for config in configs) * seconds / 3600
