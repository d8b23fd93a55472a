"""The results of a table: its runs and teams, the estimates of its rows, the verdicts on its claims."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from ...evaluation.statistics import seeds_estimate
from ...runs.files import RunDirectoryError
from ...runs.index import is_run
from ...runs.run import Run
from ..measures import MEASURES, measures_of
from ..outcomes import mean_over_seeds
from ..rows import TableRow
from ..summary import packed_lines, packed_rows, shared_config, unpacked_rows, why_unread
from ..verdicts import Claim, judge
from .pairs import Team
from .plan import TablePlan
from .table import ReproductionTable, Row, Scale, TableClaim
from .teams import Cell, cells_of, places_of, team_rows

APPEARS, ABSENT, UNDECIDED, UNTESTED = "appears", "does not appear", "undecided", "not tested"
VERDICTS = {"met": APPEARS, "not met": ABSENT, "undecided": UNDECIDED}
"""A sweep's verdict to a table's; an undecided one without a test is *not tested*."""


@dataclass(frozen=True)
class TableResults:
    """What a table's page is made of.  ``runs`` are the rows of its runs (:func:`..rows.row_of`) with their part, their
    measures, and ``series``, each agent's rewards over training; ``words`` the overrides of the command line.
    """

    table: ReproductionTable
    scale: Scale
    seeds: tuple[int, ...]
    words: tuple[str, ...]
    runs: Sequence[TableRow]
    cells: Sequence[Cell] = ()

    @classmethod
    def of(cls, plan: TablePlan, played: Sequence[Cell], earlier: TableResults | None = None) -> TableResults:
        """Of the runs that are finished.  A cell that is not among the ``played`` ones, after an interrupt, is that of
        the table's ``earlier`` results where it still answers, or empty."""
        rows = [row | {"part": part.name} | _measures(row) for part in plan.parts for row in part.record.rows()]
        known = {cell.key: cell for cell in (earlier.answering(plan.table, rows) if earlier else ())}
        known |= {cell.key: cell for cell in played}
        cells = [known.get(cell.key, cell) for part in plan.parts for cell in cells_of(part)]
        return cls(plan.table, plan.scale, plan.seeds, plan.words, rows, cells)

    def answering(self, table: ReproductionTable, rows: Sequence[TableRow]) -> Iterator[Cell]:
        """The cells of teams that ``table`` still has, made of the runs that ``rows`` still have."""
        before, now = (
            {(row["part"], row["variant"], row["setting"], row["seed"]): (row["run"], row["code"]) for row in of}
            for of in (self.runs, rows)
        )
        for cell in self.cells:
            team = table.teams.get(cell.team)
            places = places_of(team, cell.seed, cell.other_seed) if team else []
            keys = [(cell.part, cell.variant, *place) for place in places]
            if keys and all(key in now and now[key] == before.get(key) for key in keys):
                yield cell

    @cached_property
    def rows(self) -> list[TableRow]:
        """Of runs and of teams."""
        return [*self.runs, *team_rows(self.cells, self.table.teams, self.runs)]

    # ---- the file ---------------------------------------------------------------------------------------------------

    def text(self) -> str:
        """JSON lines: the table, its runs, its cells; small enough to be committed."""
        head: dict[str, Any] = {"table": self.table.name, "scale": self.scale, "seeds": self.seeds, "words": self.words}
        head |= {"claims": [asdict(claim) for claim in self.table.claims], "config": shared_config(self.runs)}
        head |= {"teams": {name: asdict(team) for name, team in self.table.teams.items()}}
        lines: list[Mapping[str, Any]] = [head]
        lines += [{"run": _rounded(row)} for row in packed_rows(self.runs)]
        lines += [{"cell": cell.packed()} for cell in self.cells]
        return "".join(json.dumps(line) + "\n" for line in lines)

    @classmethod
    def read(cls, file: Path, own: ReproductionTable | None = None) -> TableResults:
        """Of the table that the file names, or of one's ``own``, which is not among Troupe's.

        Raises :class:`~troupe.runs.files.RunDirectoryError` for a file that :meth:`text` did not make, and where the
        table's teams, claims or thresholds are other ones by now: they are fixed before the runs.
        """
        results, claims, teams = _read(file, own)
        table = results.table
        changed = ["claims"] if [*map(_fixed, claims)] != [*map(_fixed, table.claims)] else []
        changed += ["teams"] if _changed(teams, table) else []
        if changed:
            text = f"the {changed[0]} of configs/reproduce/{table.name}.yaml are not those of the runs"
            raise RunDirectoryError(f"{file} is no summary of a table: {text}")
        return results

    @classmethod
    def earlier(cls, file: Path, own: ReproductionTable) -> TableResults:
        """Of the last time that the table ended, with whatever claims, without the cells of teams that changed.  Raises
        :class:`~troupe.runs.files.RunDirectoryError`."""
        results, _, teams = _read(file, own)
        changed = _changed(teams, own)
        return replace(results, cells=[cell for cell in results.cells if cell.team not in changed])

    # ---- what it says -----------------------------------------------------------------------------------------------

    def estimates(self) -> list[dict[str, Any]]:
        """One entry per row of the table, part and variant: mean over seeds, with its 95 % interval where there is one
        (:func:`..outcomes.mean_over_seeds`, and for measures over seeds alone), and the published figures.  A row that
        was not tested has the reason in ``why``.
        """
        entries = []
        for name, part in self.table.parts_at(self.scale).items():
            variants = dict.fromkeys(row["variant"] for row in self.runs if row["part"] == name)
            for variant in variants or [""]:
                for label, row in self.table.rows.items():
                    if row.not_tested and row.paper and name not in row.paper:
                        continue
                    reason = row.not_tested or self.table.reason_without(self.scale, part, row.setting)
                    section = row.section or self.table.sections.get(row.setting, "")
                    entry = {"part": name, "variant": variant, "row": label, "setting": row.setting}
                    entry |= {"metric": row.metric, "paper": dict(row.paper.get(name, {})), "section": section}
                    entry["most"] = row.most.get(self.scale)
                    entries.append(entry | self._estimate(row, name, variant, reason))
        return entries

    def estimate(self, name: str, part: str, variant: str) -> dict[str, Any]:
        """Of the setting or team ``name``: the success of its last weights, with the keys of :meth:`estimates`."""
        reason = self.table.reason_without(self.scale, self.table.parts[part], name)
        return self._estimate(Row(name), part, variant, reason)

    def _estimate(self, row: Row, part: str, variant: str, reason: str) -> dict[str, Any]:
        nothing: dict[str, Any] = {"mean": None, "low": None, "high": None, "n": 0, "of": len(self.seeds), "stale": 0}
        if reason:
            return nothing | {"of": 0, "why": reason}
        own = [
            one for one in self.rows if (one["part"], one["variant"], one["setting"]) == (part, variant, row.setting)
        ]
        finished = [one for one in own if one["status"] == "finished" and one.get(row.metric) is not None]
        values = [float(one[row.metric]) for one in finished]
        result = nothing | {"n": len(values), "of": len(own) or len(self.seeds)}
        result["stale"] = sum(bool(one["stale"]) for one in finished)
        result["why"] = "" if values else "no run is finished"
        if not values:
            return result
        result["mean"] = fmean(values)
        outcomes = [one["outcomes"].get(row.metric) for one in finished]
        estimate = None
        if row.metric in MEASURES:
            estimate = seeds_estimate(values)
        elif None not in outcomes:
            estimate = mean_over_seeds([one for one in outcomes if one is not None])
        low, high = estimate.interval if estimate else (None, None)
        return result | {"low": low, "high": high}

    def verdicts(self) -> list[TableRow]:
        """One row per claim, part and variant, as of a sweep (:func:`..verdicts.judge`), corrected over all of them;
        ``verdict`` is one of :data:`APPEARS`, :data:`ABSENT`, :data:`UNDECIDED` and :data:`UNTESTED`.
        """
        parts = self.table.parts_at(self.scale)
        tests, untested = [], []
        for claim in self.table.claims:
            about = [name for name in parts if not claim.parts or name in claim.parts]
            for name in about:
                reasons = [self.table.reason_without(self.scale, parts[name], s) for s in (claim.setting, claim.over)]
                if reason := claim.not_tested or next(filter(None, reasons), ""):
                    untested.append(_untested(claim, name, reason))
                else:
                    tests.append((claim, name))
        own = [_in_part(claim, name) for claim, name in tests]
        rows = [row | {"setting": _place(row["part"], row["setting"])} for row in self.rows]
        judged = judge(own, rows)
        variants = {name: {row["variant"] for row in self.runs if row["part"] == name} for name in parts}
        count = len(judged) // len(own) if own else 0
        entries = []
        for number, verdict in enumerate(judged):
            claim, name = tests[number // count]
            if verdict["variant"] in variants[name]:
                entries.append(_named(verdict) | {"part": name, "claim": claim.claim, "paper": claim.paper})
        return [*entries, *untested]


def _read(file: Path, own: ReproductionTable | None) -> tuple[TableResults, list[TableClaim], dict[str, Team]]:
    """The results in ``file``, and the claims and teams that its table had then."""
    try:
        head, *lines = (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())
        runs = unpacked_rows(head, packed_lines(head, lines))
        cells = [Cell.unpacked(line["cell"]) for line in lines if "cell" in line]
        table = own or ReproductionTable.read(head["table"])
        results = TableResults(table, head["scale"], tuple(head["seeds"]), tuple(head["words"]), runs, cells)
        teams = {name: Team(**team) for name, team in head.get("teams", {}).items()}
        return results, [TableClaim(**claim) for claim in head["claims"]], teams
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunDirectoryError(f"{file} is no summary of a table: {why_unread(error)}") from error


def _fixed(claim: TableClaim) -> Any:
    """What is fixed before the runs, as JSON has it: all but the paper's figures, which may be corrected."""
    return json.loads(json.dumps({key: value for key, value in asdict(claim).items() if key != "paper"}))


def _changed(teams: Mapping[str, Team], table: ReproductionTable) -> list[str]:
    """The names of those that the table no longer has, or not as they were."""
    now = {name: json.dumps(asdict(team)) for name, team in table.teams.items()}
    return [name for name, team in teams.items() if now.get(name) != json.dumps(asdict(team))]


def _measures(row: TableRow) -> dict[str, Any]:
    """Of a run whose directory is gone those in its row, if they are there."""
    if "series" in row:
        return {}
    if row["status"] != "finished" or not row["run"]:
        return dict.fromkeys(MEASURES) | {"series": {}}
    if not is_run(Path(row["run"])):
        note = "turns, rewards and seconds were not measured (the run directory is gone)"
        return dict.fromkeys(MEASURES) | {"series": {}, "note": "; ".join(filter(None, (row["note"], note)))}
    values, series = measures_of(Run(Path(row["run"])))
    return dict.fromkeys(MEASURES) | values | {"series": series}


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    series = {agent: [round(value, 4) for value in values] for agent, values in row["series"].items()}
    return row | {"series": series}


def _place(part: str, setting: str) -> str:
    return f"{part}: {setting}" if setting else ""


def _in_part(claim: TableClaim, part: str) -> Claim:
    own = Claim(**claim.tested)
    return replace(own, setting=_place(part, claim.setting), over=_place(part, claim.over))


def _named(verdict: TableRow) -> TableRow:
    """With the table's word, and the sweep's where it is another one."""
    word = VERDICTS[verdict["verdict"]]
    if verdict["verdict"] == "undecided" and verdict["p_above"] is None:
        word = UNTESTED
    return verdict | {"verdict": word}


def _untested(claim: TableClaim, part: str, reason: str) -> TableRow:
    figures = dict.fromkeys(("difference", "difference_low", "difference_high", "p_above", "p_below"))
    threshold = Claim(**claim.tested).threshold if claim.setting else ""
    row: TableRow = {"claim": claim.claim, "part": part, "metric": claim.metric, "variant": "", "threshold": threshold}
    return row | figures | {"n": 0, "verdict": UNTESTED, "why": reason, "paper": claim.paper}


def counted(verdicts: Iterable[TableRow]) -> dict[str, int]:
    """The number of each verdict."""
    counts = dict.fromkeys((APPEARS, ABSENT, UNDECIDED, UNTESTED), 0)
    for row in verdicts:
        counts[row["verdict"]] += 1
    return counts
