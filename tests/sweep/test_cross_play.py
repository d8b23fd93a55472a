"""A cross-play matrix of a table made by hand: its teams, its cells by regime and seed, its drawing."""

from dataclasses import replace
from typing import Any

import pytest

from troupe.errors import ConfigError
from troupe.sweep.cross_play import matrices
from troupe.sweep.measures import COSTS, MEASURES, METRICS
from troupe.sweep.outcomes import Outcomes
from troupe.sweep.page import table_page
from troupe.sweep.publication_file import SILENT, PlayedTeam, TableFile, cross_name
from troupe.sweep.publication_results import TableResults
from troupe.sweep.rows import TableRow
from troupe.sweep.teams import Cell, places_of

SEEDS = (0, 1)
TABLE: dict[str, Any] = {
    "title": "T",
    "question": "?",
    "publication": "none",
    "settings": {"own": [], "shared": [], "first alone": [], "second alone": [], "single": []},
    "teams": {
        "own, other seeds": {"setting": "own", "agents": {"<first>": "own"}, "seeds": "others"},
        "own, exchanged": {"setting": "own", "keys": ["swap=true"]},
    },
    "cross_play": {
        "own weights": {"first": "own", "second": "own"},
        "shared weights": {"first": "shared", "second": "shared"},
        "alone": {"first": "first alone", "second": "second alone"},
        "one agent": {"first": "single", "second": "single", "pair": False},
    },
    "sections": dict.fromkeys(
        ("own", "shared", "first alone", "second alone", "single", "own, other seeds", "own, exchanged"), SILENT
    ),
    "scales": {"laptop": {"seeds": 2}},
    "parts": {"here": {"experiment": "e", "scales": ["laptop"]}},
    "rows": {"own": {"setting": "own"}},
}
OWN, SHARED, ALONE, SINGLE = TABLE["cross_play"]


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


def test_each_pair_of_regimes_is_a_team() -> None:
    """One that the table has under a name of its own is not played twice."""
    table = TableFile.of("t", TABLE)
    assert len(table.teams) == 2 + 4 * 4 - 1 and cross_name(OWN, OWN) not in table.teams
    assert table.teams[cross_name(OWN, SHARED)] == PlayedTeam("own", {"<first>": "shared"}, "all")
    assert table.teams[cross_name(SHARED, SHARED)] == PlayedTeam("shared", {"<first>": "shared"}, "others")
    assert table.teams[cross_name(ALONE, ALONE)] == PlayedTeam("second alone", {"<first>": "first alone"}, "all")
    # A single agent has no team of its own: it is a guest in that of its partner, or of the first regime.
    assert table.teams[cross_name(SINGLE, ALONE)] == PlayedTeam("first alone", {"<second>": "single"}, "all")
    assert table.teams[cross_name(ALONE, SINGLE)] == PlayedTeam("second alone", {"<first>": "single"}, "all")
    both = table.teams[cross_name(SINGLE, SINGLE)]
    assert both == PlayedTeam("own", {"<first>": "single", "<second>": "single"}, "same")
    assert places_of(both, 1, 1) == [("own", 1), ("single", 1), ("single", 1)]
    assert table.sections[cross_name(OWN, SHARED)] == SILENT


@pytest.mark.parametrize(
    ("regimes", "named"),
    [
        ({"a": {"first": "own", "second": "owm"}}, r"cross_play.a: setting: 'owm' is unknown; did you mean own\?"),
        ({"a": {"first": "single", "second": "single", "pair": False}}, "cross_play needs a regime whose runs are"),
        ({"a": {"first": "own", "secnd": "own"}}, r"cross_play.a.secnd is an unknown key; did you mean second\?"),
        ({"a": {"first": "own"}}, r"cross_play\.a\.second is missing"),
    ],
)
def test_a_mistake_is_named(regimes: dict[str, Any], named: str) -> None:
    with pytest.raises((ConfigError, TypeError), match=named):
        TableFile.of("t", TABLE | {"cross_play": regimes})


def test_the_matrix_of_regimes(results: TableResults) -> None:
    pages = {title: cells for title, _, cells in matrices(results)}
    heads, lines = pages["here, by regime"]
    assert heads == ["second agent", *(f"first: {name}" for name in TABLE["cross_play"])]
    assert [line[0] for line in lines] == list(TABLE["cross_play"])
    assert lines[0][1].startswith("0.900") and "; other seeds 0.300" in lines[0][1]
    assert lines[2][3].startswith("0.300") and "other seeds" not in lines[2][3]
    assert all(text.startswith("0.300") for text in lines[3][1:])
    assert list(pages) == ["here, by regime", "here, own, other seeds"]


def test_what_was_not_played_is_an_empty_cell(results: TableResults) -> None:
    kept = [cell for cell in results.cells if cell.team != cross_name(SHARED, ALONE)]
    gone = [replace(cell, outcomes=None) for cell in results.cells if cell not in kept]
    (_, _, (_, lines)), *_ = matrices(replace(results, cells=[*kept, *gone]))
    assert lines[1][3] == "–" and lines[1][1].startswith("0.300")
    assert not matrices(replace(results, cells=(), runs=[row | {"status": "missing"} for row in results.runs]))


def test_the_page_has_a_line_for_all_cells(results: TableResults) -> None:
    assert "cross-play by regime" in table_page(results) and cross_name(OWN, SHARED) not in table_page(results)
    without = replace(results, table=replace(results.table, cross_play={}))
    assert matrices(without)[0][0] != "here, by regime"


def test_role_swap_has_all_regimes() -> None:
    """Its roles and single agents are the runs of the table ``ablation``: none of them is trained twice."""
    table, ablation = TableFile.read("role_swap"), TableFile.read("ablation")
    assert list(table.cross_play) == ["own weights", "shared weights", "adapters", "trained alone", "a single agent"]
    for name in ("one agent", "first agent alone", "second agent alone"):
        assert table.settings[name] == ablation.settings[name]
    assert table.settings["specialized"] == ablation.settings["trained together"]
    assert table.scales["laptop"].overrides == ablation.scales["laptop"].overrides
