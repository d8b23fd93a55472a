"""Teams of partners of other seeds on the page of a table."""

from dataclasses import replace

import pytest

from troupe.sweep.cross_play import matrices
from troupe.sweep.measures import COSTS, MEASURES, METRICS
from troupe.sweep.outcomes import Outcomes
from troupe.sweep.page import table_page
from troupe.sweep.publication_file import SILENT, TableFile
from troupe.sweep.publication_results import TableResults
from troupe.sweep.rows import TableRow
from troupe.sweep.teams import Cell

SEEDS = (0, 1)
TABLE = {
    "title": "T",
    "question": "?",
    "publication": "none",
    "settings": {"own": [], "shared": []},
    "teams": {
        "own, other seeds": {"setting": "own", "agents": {"<first>": "own"}, "seeds": "others"},
        "own, shared partners": {"setting": "own", "agents": {"<first>": "shared"}, "seeds": "all"},
        "own, exchanged": {"setting": "own", "keys": ["swap=true"]},
    },
    "sections": dict.fromkeys(("own", "shared", "own, other seeds", "own, shared partners", "own, exchanged"), SILENT),
    "scales": {"laptop": {"seeds": 2}},
    "parts": {"here": {"experiment": "e", "scales": ["laptop"]}},
    "rows": {"own": {"setting": "own"}},
}


def run(setting: str, seed: int, share: float) -> TableRow:
    wins = Outcomes("tasks", tuple(float(place < 10 * share) for place in range(10)))
    row: TableRow = {"part": "here", "setting": setting, "variant": "", "seed": seed, "status": "finished"}
    row |= {"stale": "", "outcomes": {"after": wins}, "series": {}, "note": ""}
    return row | dict.fromkeys([*METRICS, *COSTS, *MEASURES, "run"]) | {"after": share, "curve": []}


@pytest.fixture
def results() -> TableResults:
    """Every cell was played, with a success of 0.3; of runs it is 0.9."""
    table = TableFile.of("t", TABLE)
    cells = []
    for name, team in table.teams.items():
        for seed in SEEDS:
            for other in SEEDS:
                if {"same": seed == other, "others": seed != other, "all": True}[team.seeds]:
                    cells.append(Cell("here", name, "", seed, other, Outcomes("tasks", (1.0,) * 3 + (0.0,) * 7)))
    runs = [run(setting, seed, 0.9) for setting in table.settings for seed in SEEDS]
    return TableResults(table, "laptop", SEEDS, (), runs, cells)


def test_seeds_are_paired_with_seeds(results: TableResults) -> None:
    pages = dict(matrices(results))
    assert list(pages) == ["here, own, other seeds", "here, own, shared partners"]
    heads, lines = pages["here, own, other seeds"]
    assert heads == ["", "partner 0", "partner 1"]
    assert lines == [["seed 0", "0.900", "0.300"], ["seed 1", "0.300", "0.900"]]  # a seed beside itself is the run
    assert pages["here, own, shared partners"][1] == [["seed 0", *["0.300"] * 2], ["seed 1", *["0.300"] * 2]]
    assert "here, own, other seeds: success by seed" in table_page(results)


def test_what_was_not_played_is_in_no_matrix(results: TableResults) -> None:
    gone = [replace(cell, outcomes=None) for cell in results.cells]
    assert not matrices(replace(results, cells=gone))
