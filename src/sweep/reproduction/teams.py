"""Teams that are put together of finished runs, and what they score: cells of a cross-play matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...evaluation.records import EvaluationRecord
from ...runs.index import best_match, readable_runs
from ...runs.run import Run
from ..outcomes import Outcomes, combined
from ..rows import METRICS, SweepJob, TableRow
from .plan import PartPlan
from .table import Team

Evaluate = Callable[[Sequence[str]], EvaluationRecord]
"""Plays the evaluation of these keys of ``troupe eval``, or finds it finished."""
Place = tuple[str, int]
"""A setting and a seed."""


@dataclass(frozen=True)
class Cell:
    """The team ``team`` of the run of ``seed``, with agents of the run of ``other_seed``; ``outcomes`` is None where a
    run is missing, or it was not played yet.
    """

    part: str
    team: str
    variant: str
    seed: int
    other_seed: int
    outcomes: Outcomes | None

    def packed(self) -> dict[str, Any]:
        return vars(self) | {"outcomes": self.outcomes.packed() if self.outcomes else None}

    @classmethod
    def unpacked(cls, packed: Mapping[str, Any]) -> Cell:
        outcomes = packed["outcomes"]
        return cls(**{**packed, "outcomes": Outcomes.unpacked(outcomes) if outcomes else None})


def play_teams(plan: PartPlan, evaluate: Evaluate, say: Callable[[str], None]) -> list[Cell]:
    """The cells of all teams of a part; those whose runs are finished are played, unless they were before."""
    runs = _finished_runs(plan)
    cells = []
    for name, team in plan.teams.items():
        for variant in dict.fromkeys(job.variant for job in plan.record.jobs):
            wanted = list(_pairs(plan.record.jobs, team, variant))
            for number, (seed, other) in enumerate(wanted, 1):
                words = _words(plan, team, seed, other, runs[variant])
                outcomes = _outcomes(evaluate(words)) if words is not None else None
                cells.append(Cell(plan.name, name, variant, seed, other, outcomes))
                if outcomes is not None:
                    place = f"{plan.name}, {name}, team {number} of {len(wanted)}"
                    say(f"{place}: seeds {seed} and {other}, success {outcomes.mean:.3f}")
    return cells


def team_cells(plan: PartPlan) -> int:
    """The number of cells of a part."""
    variants = dict.fromkeys(job.variant for job in plan.record.jobs)
    return sum(
        len(list(_pairs(plan.record.jobs, team, variant))) for team in plan.teams.values() for variant in variants
    )


def team_rows(cells: Sequence[Cell], teams: Mapping[str, Team]) -> list[TableRow]:
    """One row per team, variant and seed, as of a run: its success with the last weights is the mean over its cells,
    task by task.  A row of which a cell is missing has the status ``missing``.
    """
    groups: dict[tuple[str, str, str, int], list[Cell]] = {}
    for cell in cells:
        if cell.team in teams:
            groups.setdefault((cell.part, cell.team, cell.variant, cell.seed), []).append(cell)
    return [_row(*key, group) for key, group in groups.items()]


def _row(part: str, team: str, variant: str, seed: int, cells: Sequence[Cell]) -> TableRow:
    row: TableRow = {"part": part, "setting": team, "variant": variant, "seed": seed, "stale": "", "outcomes": {}}
    row |= dict.fromkeys([*METRICS, *(f"{name}_{end}" for name in METRICS for end in ("low", "high"))])
    played = [cell.outcomes for cell in cells if cell.outcomes is not None]
    if len(played) < len(cells):
        return row | {"status": "missing"}
    after = combined([(1 / len(played), outcomes) for outcomes in played])
    return row | {"status": "finished", "after": after.mean, "outcomes": {"after": after}}


def _finished_runs(plan: PartPlan) -> dict[str, dict[Place, Run]]:
    """By variant."""
    known, _ = readable_runs(plan.record.runs)
    runs: dict[str, dict[Place, Run]] = {job.variant: {} for job in plan.record.jobs}
    for job in plan.record.jobs:
        if (run := best_match(known, job.training, job.evaluation)) is not None:
            runs[job.variant][job.setting, job.seed] = run
    return runs


def _pairs(jobs: Sequence[SweepJob], team: Team, variant: str) -> Iterator[tuple[int, int]]:
    """The seeds of a team's own runs, each with those of its partners' runs."""
    seeds = [job.seed for job in jobs if job.setting == team.setting and job.variant == variant]
    for seed in seeds:
        for other in seeds if team.agents else [seed]:
            if team.seeds == "all" or (other == seed) == (team.seeds == "same"):
                yield seed, other


def _words(plan: PartPlan, team: Team, seed: int, other: int, runs: Mapping[Place, Run]) -> list[str] | None:
    """The keys of ``troupe eval``; None where a run is not finished."""
    places = {agent: (setting, other) for agent, setting in team.agents.items()}
    if any(place not in runs for place in [(team.setting, seed), *places.values()]):
        return None
    own = runs[team.setting, seed].path
    words = [f"run={own}", "checkpoint=last", "temperature=own", *(plan.part.filled(key) for key in team.keys)]
    return words + [f"agents.{plan.part.filled(agent)}={runs[place].path}@last" for agent, place in places.items()]


def _outcomes(evaluation: EvaluationRecord) -> Outcomes:
    rows = [row for row in evaluation.rows() if row["condition"] == next(iter(evaluation.conditions))]
    return Outcomes.of(rows)
