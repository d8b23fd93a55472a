"""Teams that are put together of finished runs, and what they score: cells of a cross-play matrix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..runs.run import RunReader
from .measures import METRICS
from .outcomes import Outcomes, combined
from .plan import EVALUATION, PartPlan
from .publication_file import PlayedTeam
from .rows import SweepJob, TableRow
from .summary import StoredRun, stored_cells

Evaluate = Callable[[Sequence[Sequence[str]]], Generator[Outcomes]]
"""Plays the evaluations of these keys of ``troupe eval``, or finds them finished; their outcomes come in order."""
Place = tuple[str, int]
"""A setting and a seed."""
CellKey = tuple[str, str, str, int, int]
"""Part, team, variant, and the two seeds."""


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

    @property
    def key(self) -> CellKey:
        return self.part, self.team, self.variant, self.seed, self.other_seed

    def packed(self) -> dict[str, Any]:
        return vars(self) | {"outcomes": self.outcomes.packed() if self.outcomes else None}

    @classmethod
    def unpacked(cls, packed: Mapping[str, Any]) -> Cell:
        outcomes = packed["outcomes"]
        return cls(**{**packed, "outcomes": Outcomes.unpacked(outcomes) if outcomes else None})


def cells_of(plan: PartPlan) -> list[Cell]:
    """All cells of a part, none of them played."""
    variants = dict.fromkeys(job.variant for job in plan.record.jobs)
    return [
        Cell(plan.name, name, variant, seed, other, None)
        for name, team in plan.teams.items()
        for variant in variants
        for seed, other in _pairs(plan.record.jobs, team, variant)
    ]


def play_teams(plan: PartPlan, evaluate: Evaluate, say: Callable[[str], None]) -> Iterator[Cell]:
    """The cells of all teams of a part, in order; those whose runs are finished are played, unless they were before."""
    runs, stored, cells = _finished_runs(plan), _stored_cells(plan), cells_of(plan)
    counts = Counter((cell.team, cell.variant) for cell in cells)
    numbers = Counter[tuple[str, str]]()
    teams = [plan.teams[cell.team] for cell in cells]
    found = [
        [runs[cell.variant].get(place) for place in places_of(team, cell.seed, cell.other_seed)]
        for cell, team in zip(cells, teams, strict=True)
    ]
    words = [_words(plan, team, own) for team, own in zip(teams, found, strict=True)]
    with closing(evaluate([keys for keys in words if keys])) as played:
        for cell, own, keys in zip(cells, found, words, strict=True):
            of = cell.team, cell.variant
            numbers[of] += 1
            seeds = f"seeds {cell.seed} and {cell.other_seed}"
            place = f"{plan.name}, {cell.team}, team {numbers[of]} of {counts[of]}: {seeds}"
            gone = [run for run in own if isinstance(run, StoredRun)]
            outcomes = next(played) if keys else None
            if gone:  # nobody can play the team; the same runs may have been played before
                same = len({run.file for run in gone}) == 1 and len(gone) == len(own)
                outcomes = stored.get((gone[0].file, cell.key)) if same else None
                if outcomes is None:
                    say(f"{place}, not played: the run directory {gone[0].path} is gone")
            if outcomes is not None:
                say(f"{place}, success {outcomes.mean:.3f}")
            yield replace(cell, outcomes=outcomes)


def team_rows(cells: Sequence[Cell], teams: Mapping[str, PlayedTeam], runs: Sequence[TableRow]) -> list[TableRow]:
    """One row per team, variant and seed, as of a run: its success with the last weights is the mean over its cells,
    task by task.  A row of which a cell is missing has the status ``missing``.  It is stale as those of the ``runs``
    are that it is made of.
    """
    stale = {(row["part"], row["variant"], row["setting"], row["seed"]): row["stale"] for row in runs}
    groups: dict[tuple[str, str, str, int], list[Cell]] = {}
    for cell in cells:
        if cell.team in teams:
            groups.setdefault((cell.part, cell.team, cell.variant, cell.seed), []).append(cell)
    rows = []
    for (part, team, variant, seed), group in groups.items():
        places = [place for cell in group for place in places_of(teams[team], seed, cell.other_seed)]
        reasons = (stale.get((part, variant, *place), "") for place in places)
        words = dict.fromkeys(word for reason in reasons for word in reason.split(" and ") if word)
        row = {"part": part, "setting": team, "variant": variant, "seed": seed, "stale": " and ".join(words)}
        rows.append(row | _results(group))
    return rows


def _results(cells: Sequence[Cell]) -> TableRow:
    row: TableRow = {"outcomes": {}, **dict.fromkeys(METRICS)}
    played = [cell.outcomes for cell in cells if cell.outcomes is not None]
    if len(played) < len(cells):
        return row | {"status": "missing"}
    after = combined([(1 / len(played), outcomes) for outcomes in played])
    return row | {"status": "finished", "after": after.mean, "outcomes": {"after": after}}


def _finished_runs(plan: PartPlan) -> dict[str, dict[Place, RunReader | StoredRun]]:
    """By variant."""
    runs: dict[str, dict[Place, RunReader | StoredRun]] = {job.variant: {} for job in plan.record.jobs}
    for job, run in zip(plan.record.jobs, plan.record.best_runs(), strict=True):
        if run is not None:
            runs[job.variant][job.setting, job.seed] = run
    return runs


def _stored_cells(plan: PartPlan) -> dict[tuple[Path, CellKey], Outcomes]:
    """The cells in the summaries of runs that are gone, by file and key."""
    cells = [(file, Cell.unpacked(packed)) for file in plan.record.finished for packed in stored_cells(file)]
    return {(file, cell.key): cell.outcomes for file, cell in cells if cell.outcomes is not None}


def places_of(team: PlayedTeam, seed: int, other: int) -> list[Place]:
    """Those of the team's own run and of its partners'."""
    return [(team.setting, seed), *((setting, other) for setting in team.agents.values())]


def _pairs(jobs: Sequence[SweepJob], team: PlayedTeam, variant: str) -> Iterator[tuple[int, int]]:
    """The seeds of a team's own runs, each with those of its partners' runs."""
    seeds = [job.seed for job in jobs if job.setting == team.setting and job.variant == variant]
    for seed in seeds:
        for other in seeds if team.agents else [seed]:
            if team.seeds == "all" or (other == seed) == (team.seeds == "same"):
                yield seed, other


def _words(plan: PartPlan, team: PlayedTeam, runs: Sequence[RunReader | StoredRun | None]) -> list[str]:
    """The keys of ``troupe eval``; none where a run is missing or gone.  ``runs`` are the team's own and its
    partners'."""
    there = [run for run in runs if isinstance(run, RunReader)]
    if len(there) < len(runs):
        return []
    own, *partners = there
    words = [f"run={own.path}", *EVALUATION, *(plan.part.filled(key) for key in team.keys)]
    pairs = zip(team.agents, partners, strict=True)
    return words + [f"agents.{plan.part.filled(agent)}={run.path}@last" for agent, run in pairs]
