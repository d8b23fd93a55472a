"""From a table to one sweep per part, with every run composed and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from ...errors import ConfigError, nearest
from ...setup.instantiation import call
from ..measures import MEASURES
from ..plan import plan_file
from ..record import SweepRecord
from ..rows import METRICS
from ..verdicts import Claim
from .options import ReproduceOptions
from .pairs import Team
from .table import Part, ReproductionTable, Scale
from .team_checks import check_teams


@dataclass(frozen=True)
class PartPlan:
    """The sweep of one part, the teams that are made of its runs, and each run's configuration, by training hash."""

    name: str
    part: Part
    record: SweepRecord
    teams: Mapping[str, Team]
    configs: Mapping[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class TablePlan:
    """A table at a scale.  ``words`` are the overrides of the command line: the table's own are replaced by them."""

    table: ReproductionTable
    scale: Scale
    folder: Path
    seeds: tuple[int, ...]
    words: tuple[str, ...]
    parts: Sequence[PartPlan]


def plan_table(options: ReproduceOptions, table: ReproductionTable, words: Sequence[str]) -> TablePlan:
    """Raises :class:`~troupe.errors.ConfigError`, naming the setting, for a run that cannot be composed."""
    for label, row in table.rows.items():
        _check_metric(table, f"rows.{label}", row.metric)
    for claim in (claim for claim in table.claims if claim.setting):
        for metric in (claim.metric, claim.over_metric or claim.metric):
            _check_metric(table, f"claim '{claim.claim}'", metric)
        call(f"table={table.name}", Claim, **claim.tested)
    seeds = options.seeds_of(table)
    # Figures that are not the protocol's take no place of the protocol's.
    own = f"-{sha256(' '.join(sorted(words)).encode()).hexdigest()[:8]}" if words else ""
    folder = Path(options.runs, "reproduce", table.name, f"{options.scale}{own}")
    parts = []
    for name, part in table.parts_at(options.scale).items():
        configs = dict[str, dict[str, Any]]()
        record = plan_file(options.of_sweep(table), words, options.file(table, part), configs)
        teams = table.teams_at(options.scale, part)
        by_setting = {job.setting: configs[job.training] for job in record.jobs}
        try:
            with options.of_sweep(table).configurations():
                check_teams(part, teams, by_setting)
        except ConfigError as error:
            raise ConfigError(f"table={table.name}: parts.{name}: {error}") from error
        record = replace(record, folder=folder / "parts" / name, name=f"{table.name}, {name}")
        parts.append(PartPlan(name, part, record, teams, configs))
    return TablePlan(table, options.scale, folder, seeds, tuple(words), parts)


def _check_metric(table: ReproductionTable, key: str, metric: str) -> None:
    """Raise :class:`ConfigError`: a table has no figures at equal budgets, and would say of others that no run is
    finished."""
    if metric not in (known := [*METRICS, *MEASURES]):
        raise ConfigError(f"table={table.name}: {key}: metric={metric} is unknown{nearest(metric, known)}")
