"""What a table would take on a laptop before any of its runs was measured there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..cost import by_setting, measured_runs, seconds_of
from ..rows import SweepJob
from .gpu_hours import completions_of, evaluated_of
from .plan import TablePlan

SECONDS: dict[str, float] = {
    "sokoban_specialized": 0.0032,
    "plan_path_specialized": 0.0037,
    "sudoku_specialized": 0.0026,
    "code_collab_specialized": 0.0033,
    "writing_specialized": 0.0013,
}
"""By experiment, CPU seconds per completion at laptop scale.  Of Plan-Path and Sudoku ``cpu_s`` of the committed runs
(docs/results: reproduction/role_swap_laptop.jsonl and turns_laptop.jsonl, 25 runs; summaries/learning_sudoku.jsonl, 9
runs) over their completions, evaluations at the most included.  Of the others ``time/cpu_s`` over
``train/completions`` of one run of three iterations with one thread (``loop.iterations=3 loop.completions=0
loop.validation_tasks=1 loop.test_tasks=1``) on an x86 core, once.  Long answers, other processors and other numbers of
candidates change it by a factor of two."""
ASSUMED = "CPU seconds per completion of the same worlds elsewhere; expect a factor of two either way"


@dataclass(frozen=True)
class Cost:
    """What the missing runs of a table take: ``hours`` of CPU by training hash, None where nothing was measured.
    ``assumed``: the parts, with their table, without a measured run here; ``unknown``: those that have no estimate.
    Evaluations of teams are not counted."""

    hours: Mapping[str, float | None] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    def __add__(self, other: Cost) -> Cost:
        """Runs that both have are counted once."""
        return Cost({**self.hours, **other.hours}, self.assumed + other.assumed, self.unknown + other.unknown)

    def __str__(self) -> str:
        known = [hours for hours in self.hours.values() if hours is not None]
        if self.unknown and not known:
            return "not known: no run was measured yet"
        total = f"{sum(known):.{1 if sum(known) >= 1 else 2}f} CPU-hours"
        without = f", without {', '.join(self.unknown)}, whose cost is not known" if self.unknown else ""
        if not self.assumed:
            return f"{total}{without}"
        return f"about {total} (no run was measured here of {', '.join(self.assumed)}: {ASSUMED}){without}"


def cost_of(plan: TablePlan, missing: Mapping[str, Sequence[SweepJob]]) -> Cost:
    """Of the jobs ``missing`` of each part: by runs of its setting, of its part, or by :data:`SECONDS`."""
    runs, result = measured_runs([part.record for part in plan.parts]), Cost()
    for part in plan.parts:
        known, jobs, name = by_setting([part.record], runs), missing[part.name], f"{plan.table.name} {part.name}"
        everything = [each for own in known.values() for each in own]
        rate = SECONDS.get(part.part.experiment) if plan.scale == "laptop" else None
        if everything:
            hours = {job.training: seconds_of(job, known.get(job.setting) or everything) / 3600 for job in jobs}
            result += Cost(hours)
        elif jobs and rate is not None:
            configs = {job.training: part.configs[job.training] for job in jobs}
            result += Cost(
                {
                    training: rate * (completions_of(own) + evaluated_of(own)) / 3600
                    for training, own in configs.items()
                },
                assumed=(name,),
            )
        elif jobs:
            result += Cost(dict.fromkeys((job.training for job in jobs), None), unknown=(name,))
    return result
