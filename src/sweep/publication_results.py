"""The results of a table: its runs and teams, the estimates of its rows, the verdicts on its claims."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..runs.files import RunDirectoryError
from ..runs.index import is_run
from ..runs.run import RunReader
from .claims import Claim
from .measures import MEASURES, measures_of
from .plan import TablePlan
from .publication_file import PlayedTeam, PublishedRow, Scale, TableFile
from .rows import TableRow, estimated
from .summary import lines_of, naming, read_summary
from .teams import Cell, cells_of, team_rows
from .verdicts import judge

APPEARS, ABSENT, UNDECIDED, UNTESTED = "appears", "does not appear", "undecided", "not tested"
VERDICTS = {"met": APPEARS, "not met": ABSENT}
"""A sweep's verdict to a table's; an undecided one without a test is *not tested*."""


@dataclass(frozen=True)
class TableResults:
    """What a table's page is made of.  ``runs`` are the rows of its runs (:func:`.rows.row_of`) with their part, their
    measures, and ``series``, each agent's rewards over training; ``words`` the overrides of the command line.
    """

    table: TableFile
    scale: Scale
    seeds: tuple[int, ...]
    words: tuple[str, ...]
    runs: Sequence[TableRow]
    cells: Sequence[Cell] = ()

    @classmethod
    def of(cls, plan: TablePlan, played: Sequence[Cell]) -> TableResults:
        """Of the runs that are finished; a cell that is not among the ``played`` ones, after an interrupt, is empty."""
        rows = [row | {"part": part.name} | _measures(row) for part in plan.parts for row in part.record.rows()]
        known = {cell.key: cell for cell in played}
        cells = [known.get(cell.key, cell) for part in plan.parts for cell in cells_of(part)]
        return cls(plan.table, plan.scale, plan.seeds, plan.words, rows, cells)

    @cached_property
    def rows(self) -> list[TableRow]:
        """Of runs and of teams."""
        return [*self.runs, *team_rows(self.cells, self.table.teams, self.runs)]

    # ---- the file ---------------------------------------------------------------------------------------------------

    def text(self) -> str:
        """JSON lines: the table, its runs, its cells; small enough to be committed."""
        head: dict[str, Any] = {"table": self.table.name, "scale": self.scale, "seeds": self.seeds, "words": self.words}
        head |= {"claims": [asdict(claim) for claim in self.table.claims]}
        head |= {"teams": {name: asdict(team) for name, team in self.table.teams.items()}}
        return lines_of(head, [*map(_rounded, self.runs)], [cell.packed() for cell in self.cells])

    @classmethod
    def read(cls, file: Path, own: TableFile | None = None) -> TableResults:
        """Of the table that the file names, or of one's ``own``, which is not among Troupe's.

        Raises :class:`~troupe.runs.files.RunDirectoryError` for a file that :meth:`text` did not make, and where the
        table's teams, claims or thresholds are other ones by now: they are fixed before the runs.
        """
        with naming(file):
            head, runs, packed = read_summary(file)
            table = own or TableFile.read(head["table"])
            claims = [asdict(Claim(**claim)) for claim in head["claims"]]
            teams = {name: asdict(PlayedTeam(**team)) for name, team in head.get("teams", {}).items()}
            cells = [Cell.unpacked(cell) for cell in packed]
            results = cls(table, head["scale"], tuple(head["seeds"]), tuple(head["words"]), runs, cells)
        changed = ["claims"] if _fixed(claims) != _fixed(map(asdict, table.claims)) else []
        changed += ["teams"] if any(_plain(team) != _plain(_team(table, name)) for name, team in teams.items()) else []
        if changed:
            text = f"the {changed[0]} of configs/reproduce/{table.name}.yaml are not those of the runs"
            raise RunDirectoryError(f"{file} is no summary of a table: {text}")
        return results

    # ---- what it says -----------------------------------------------------------------------------------------------

    def estimates(self) -> list[dict[str, Any]]:
        """One entry per row of the table, part and variant: mean over seeds, with its 95 % interval where there is one
        (:func:`.rows.estimated`), and the published figures.  A row that was not tested has the reason in ``why``.
        """
        entries = []
        for part, variant in dict.fromkeys((row["part"], row["variant"]) for row in self.runs):
            for label, row in self.table.rows.items():
                if row.not_tested and row.paper and part not in row.paper:
                    continue
                reason = row.not_tested or self.table.reason_without(self.scale, self.table.parts[part], row.setting)
                section = row.section or self.table.sections.get(row.setting, "")
                entry = {"part": part, "variant": variant, "row": label, "setting": row.setting}
                entry |= {"metric": row.metric, "paper": dict(row.paper.get(part, {})), "section": section}
                entry["most"] = row.most.get(self.scale)
                entries.append(entry | self._estimate(row, part, variant, reason))
        return entries

    def estimate(self, name: str, part: str, variant: str) -> dict[str, Any]:
        """Of the setting or team ``name``: the success of its last weights, with the keys of :meth:`estimates`."""
        reason = self.table.reason_without(self.scale, self.table.parts[part], name)
        return self._estimate(PublishedRow(name), part, variant, reason)

    def _estimate(self, row: PublishedRow, part: str, variant: str, reason: str) -> dict[str, Any]:
        own = [
            one for one in self.rows if (one["part"], one["variant"], one["setting"]) == (part, variant, row.setting)
        ]
        result = estimated([] if reason else own, row.metric)
        result["of"] = 0 if reason else len(own) or len(self.seeds)
        return result | {"why": reason or ("" if result["n"] else "no run is finished")}

    def verdicts(self) -> list[TableRow]:
        """One row per claim, part and variant, as of a sweep (:func:`.claims.judge`), corrected over all of them;
        ``verdict`` is one of :data:`APPEARS`, :data:`ABSENT`, :data:`UNDECIDED` and :data:`UNTESTED`.
        """
        parts = self.table.parts_at(self.scale)

        def reason(claim: Claim, part: str) -> str:
            reasons = (self.table.reason_without(self.scale, parts[part], name) for name in (claim.setting, claim.over))
            return next(filter(None, reasons), "")

        verdicts = judge(self.table.claims, self.rows, reason)
        undecided = [UNTESTED if row["p_above"] is None else UNDECIDED for row in verdicts]
        words = [VERDICTS.get(row["verdict"], word) for row, word in zip(verdicts, undecided, strict=True)]
        return [row | {"verdict": word} for row, word in zip(verdicts, words, strict=True)]


def _team(table: TableFile, name: str) -> dict[str, Any] | None:
    return asdict(table.teams[name]) if name in table.teams else None


def _plain(content: Any) -> Any:
    """As JSON has it."""
    return json.loads(json.dumps(content))


def _fixed(claims: Iterable[dict[str, Any]]) -> Any:
    """What is fixed before the runs: all but the paper's figures, which may be corrected."""
    return _plain([claim | {"paper": ""} for claim in claims])


def _measures(row: TableRow) -> dict[str, Any]:
    """Of a run whose directory is gone those in its row, if they are there."""
    if "series" in row:
        return {}
    if row["status"] != "finished" or not row["run"]:
        return dict.fromkeys(MEASURES) | {"series": {}}
    if not is_run(Path(row["run"])):
        note = "turns, rewards and seconds were not measured (the run directory is gone)"
        return dict.fromkeys(MEASURES) | {"series": {}, "note": "; ".join(filter(None, (row["note"], note)))}
    values, series = measures_of(RunReader(Path(row["run"])))
    return dict.fromkeys(MEASURES) | values | {"series": series}


def _rounded(row: TableRow) -> TableRow:
    series = {agent: [round(value, 4) for value in values] for agent, values in row["series"].items()}
    return row | {"series": series}


def counted(verdicts: Iterable[TableRow]) -> dict[str, int]:
    """The number of each verdict."""
    counts = dict.fromkeys((APPEARS, ABSENT, UNDECIDED, UNTESTED), 0)
    for row in verdicts:
        counts[row["verdict"]] += 1
    return counts
