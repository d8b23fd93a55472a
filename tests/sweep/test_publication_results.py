"""Results of a table made by hand: its rows, verdicts, page, plot and files."""

import csv
import json
import math
import runpy
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from scipy import stats

from troupe.runs.files import RunDirectoryError
from troupe.sweep.measures import COSTS, MEASURES, METRICS
from troupe.sweep.outcomes import Outcomes
from troupe.sweep.page import has_charts, needed, table_page, write_results
from troupe.sweep.publication_file import PublishedRow, TableFile
from troupe.sweep.publication_results import ABSENT, APPEARS, UNDECIDED, UNTESTED, TableResults
from troupe.sweep.rows import TableRow
from troupe.sweep.tables import verdicts_cells
from troupe.sweep.teams import Cell, team_rows

ROOT = Path(__file__).parents[2]
SILENT = "the paper is silent"
SEEDS = (0, 1, 2, 3)
TABLE: dict[str, Any] = {
    "title": "Tables & chairs",
    "question": "Who wins?",
    "publication": "somebody",
    "settings": {"a": [], "b": []},
    "teams": {"mixed": {"setting": "a", "agents": {"<first>": "b"}, "seeds": "all"}},
    "sections": {"a": "section 5", "b": SILENT, "mixed": SILENT},
    "scales": {"laptop": {"seeds": 4}},
    "parts": {"here": {"experiment": "e", "scales": ["laptop"], "without": {}}},
    "rows": {
        "ours <a>": {"setting": "a", "paper": {"here": {"1.7B": 96}}},
        "b": {"setting": "b"},
        "put together": {"setting": "mixed"},
        "turns": {"setting": "a", "metric": "turns_after", "most": {"laptop": 4}},
        "other": {"not_tested": "it is not there", "paper": {"here": {"1.7B": 3}}},
    },
    "claims": [
        {"claim": "a beats b", "setting": "a", "over": "b", "at_least": 0.1, "low_above": 0.0, "paper": "96 to 5"},
        {"claim": "b beats a", "setting": "b", "over": "a", "at_least": 0.1, "low_above": 0.0},
        {"claim": "a is a bit better", "setting": "mixed", "over": "a", "at_least": 0.1, "low_above": 0.0},
        {"claim": "turns fall", "setting": "a", "metric": "turns_before", "over_metric": "turns_after"}
        | {"at_least": 0.5, "low_above": 0.0},
        {"claim": "they beat it", "not_tested": "it is not there"},
    ],
}


def row(setting: str, seed: int, wins: int, **more: Any) -> TableRow:
    """A run of 20 tasks, of which the first ``wins`` are solved."""
    outcomes = Outcomes("tasks", tuple(float(place < wins) for place in range(20)))
    result: TableRow = {"part": "here", "setting": setting, "variant": "", "seed": seed, "status": "finished"}
    result |= {"stale": "", "outcomes": {"after": outcomes}, "series": {"tool": [0.0, 1.0, 2.0]}, "note": ""}
    result |= dict.fromkeys([*METRICS, *COSTS, *MEASURES, "run"]) | {"after": wins / 20, "cpu_s": 36.0, "curve": []}
    return result | more


@pytest.fixture
def results(tmp_path: Path) -> TableResults:
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(TABLE, sort_keys=False))
    turns = [{"turns_before": 3.0 + seed / 10, "turns_after": 2.0} for seed in SEEDS]
    runs = [row("a", seed, 19, **turns[seed]) for seed in SEEDS] + [row("b", seed, 2) for seed in SEEDS]
    cells = [
        Cell("here", "mixed", "", seed, other, Outcomes("tasks", (1.0,) * 10 + (0.0,) * 10))
        for seed in SEEDS
        for other in SEEDS
    ]
    table = TableFile.read(str(tmp_path / "mine.yaml"))
    return TableResults(table, "laptop", SEEDS, (), runs, cells)


def test_verdicts(results: TableResults) -> None:
    verdicts = {one["claim"]: one for one in results.verdicts()}
    assert {claim: one["verdict"] for claim, one in verdicts.items()} == {
        "a beats b": APPEARS,
        "b beats a": ABSENT,
        "a is a bit better": ABSENT,
        "turns fall": APPEARS,
        "they beat it": UNTESTED,
    }
    assert verdicts["a beats b"]["difference"] == pytest.approx(0.85)
    assert verdicts["a is a bit better"]["difference"] == pytest.approx(0.5 - 0.95)
    assert verdicts["they beat it"]["why"] == "it is not there" and verdicts["a beats b"]["paper"] == "96 to 5"
    # Holm's correction over all eight tests of the table, not over the two of the claim.
    alone = replace(results, table=replace(results.table, claims=results.table.claims[:1])).verdicts()
    assert verdicts["a beats b"]["p_above"] > alone[0]["p_above"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [({"status": "missing", "after": None}, "3 of 4 pairs finished"), ({"outcomes": {}}, "the results by task are")],
)
def test_what_cannot_be_compared_is_not_tested(results: TableResults, changes: dict[str, Any], why: str) -> None:
    runs = [results.runs[0] | changes, *results.runs[1:]]
    verdict = replace(results, runs=runs).verdicts()[0]
    assert verdict["verdict"] == UNTESTED and why in verdict["why"]


def test_large_but_not_surely_is_undecided(results: TableResults) -> None:
    runs = [row("a", 0, 20), row("a", 1, 4), row("b", 0, 2), row("b", 1, 2)]
    verdict = replace(results, runs=runs, cells=()).verdicts()[0]
    assert (verdict["verdict"], verdict["why"]) == (UNDECIDED, "large, but not surely")


def test_estimates(results: TableResults) -> None:
    entries = {one["row"]: one for one in results.estimates()}
    assert entries["ours <a>"]["mean"] == pytest.approx(0.95) and entries["ours <a>"]["low"] < 0.95
    assert entries["ours <a>"]["paper"] == {"1.7B": 96} and entries["ours <a>"]["section"] == "section 5"
    assert (entries["put together"]["mean"], entries["put together"]["n"]) == (0.5, 4)
    assert entries["turns"]["mean"] == 2.0 and entries["turns"]["low"] is None  # seeds that agree
    assert entries["other"]["mean"] is None and entries["other"]["why"] == "it is not there"


def test_a_team_without_one_of_its_runs_has_no_success(results: TableResults) -> None:
    cells = [replace(results.cells[0], outcomes=None), *results.cells[1:]]
    rows = {one["seed"]: one for one in team_rows(cells, results.table.teams, results.runs)}
    assert (rows[0]["status"], rows[0]["after"]) == ("missing", None)
    assert (rows[1]["status"], rows[1]["after"]) == ("finished", 0.5)


def test_files_of_what_is_not_there_any_more_are_removed(results: TableResults, tmp_path: Path) -> None:
    write_results(results, tmp_path)
    assert (tmp_path / "verdicts.csv").is_file()
    write_results(replace(results, cells=(), table=replace(results.table, claims=())), tmp_path)
    names = {path.name for path in tmp_path.iterdir() if path.name != "mine.yaml"}
    assert names - {"plot.svg", "plot.pdf"} == {"table.md", "table.tex", "table.csv", "summary.jsonl"}


def test_a_team_of_a_stale_run_is_stale(results: TableResults) -> None:
    runs = [one | ({"stale": "code"} if (one["setting"], one["seed"]) == ("b", 2) else {}) for one in results.runs]
    stale = replace(results, runs=runs)
    assert [one["stale"] for one in stale.rows if one["setting"] == "mixed"] == ["code"] * 4, "each plays with that one"
    alone = replace(stale, cells=[cell for cell in stale.cells if cell.seed == cell.other_seed])
    assert [one["stale"] for one in alone.rows if one["setting"] == "mixed"] == ["", "", "code", ""]
    verdict = {one["claim"]: one for one in alone.verdicts()}["a is a bit better"]
    assert "1 of 4 pairs hold a stale run" in verdict["why"]


def test_a_team_that_is_another_one_by_now_is_refused(results: TableResults, tmp_path: Path) -> None:
    runs = [one | {"config": {}, "overrides": ""} for one in results.runs]
    file = tmp_path / "summary.jsonl"
    file.write_text(replace(results, runs=runs).text())
    assert TableResults.read(file, results.table).verdicts() == results.verdicts()
    team = replace(results.table.teams["mixed"], keys=["swap=true"])
    with pytest.raises(RunDirectoryError, match=r"the teams of .* are not those of the runs"):
        TableResults.read(file, replace(results.table, teams={"mixed": team}))


def test_the_summary_gives_the_same_page(results: TableResults, tmp_path: Path) -> None:
    page = write_results(results, tmp_path / "out")
    again = TableResults.read(tmp_path / "out" / "summary.jsonl", results.table)
    figure = "plot.svg" if has_charts() else ""
    assert page.startswith(table_page(again, figure)) and page == (tmp_path / "out" / "table.md").read_text()
    assert "| here | ours <a> | success, trained | 0.950 (" in page and "1.7B: 96" in page
    assert "not tested: it is not there" in page
    assert "| here | turns | turns per episode, trained, at most 4 | 2.000 |" in page
    assert f"{APPEARS}: 2; {ABSENT}: 2; {UNDECIDED}: 0; {UNTESTED}: 1." in page
    assert "| seed 0 | 0.500 | 0.500 | 0.500 | 0.500 |" in page
    with (tmp_path / "out" / "table.csv").open() as file:
        assert [one["row"] for one in csv.DictReader(file)] == list(TABLE["rows"])


def test_thresholds_that_were_changed_after_the_runs_are_refused(results: TableResults, tmp_path: Path) -> None:
    file = tmp_path / "summary.jsonl"
    head, *lines = results.text().splitlines()
    content = json.loads(head)
    content["claims"][0]["at_least"] = 0.01
    file.write_text("\n".join([json.dumps(content), *lines]))
    with pytest.raises(RunDirectoryError, match="are not those of the runs"):
        TableResults.read(file, results.table)
    for text in ("", "{}\n", "no json"):
        file.write_text(text)
        with pytest.raises(RunDirectoryError, match=r"summary.jsonl is no summary of a sweep or a table"):
            TableResults.read(file)


def test_other_overrides_are_said(results: TableResults) -> None:
    page = table_page(replace(results, words=("loop.completions=10",)))
    assert "with other overrides than the table's: `loop.completions=10`" in page


def test_missing_seeds_are_said(results: TableResults) -> None:
    assert "scale `laptop`, 4 seeds (0, 1, 2, 3)." in table_page(results)
    assert "scale `laptop`, 2 of 4 seeds (1, 3)." in table_page(replace(results, seeds=(1, 3)))
    assert "scale `laptop`, 5 seeds (0, 1, 2, 3, 4)." in table_page(replace(results, seeds=(*SEEDS, 4)))


def test_groups_that_are_the_same_runs_are_compared_once() -> None:
    """With one turn, groups by agent and turn are those by agent, and groups by turn are one per task."""
    verdicts = TableResults.read(ROOT / "docs/results/reproduction/grouping_smollm2.jsonl").verdicts()
    assert [row["claim"] for row in verdicts if row["p_above"] is not None] == [
        "one prompt per group beats one turn a group"
    ]
    assert all("the same runs" in row["why"] for row in verdicts if row["verdict"] == UNTESTED) and len(verdicts) == 3


def test_the_difference_that_a_decision_takes_is_said(results: TableResults) -> None:
    tests = 2 * sum(one["p_above"] is not None for one in results.verdicts())
    errors = stats.t.isf(0.05 / (tests / 2), 3)  # at most one hypothesis of a claim is true
    assert (
        f"With 4 seeds and {tests} tests, the first decision takes a difference of {errors:.1f} standard"
        in table_page(results)
    )
    frozen = TableResults.read(ROOT / "docs/results/reproduction/frozen_partner_laptop.jsonl").verdicts()
    assert needed(frozen).startswith("With 3 seeds and 36 tests, the first decision takes a difference of 13 standard")
    assert needed([row for row in frozen if row["p_above"] is None]) == ""


def test_a_difference_of_logarithms_is_a_ratio_too() -> None:
    results = TableResults.read(ROOT / "docs/results/reproduction/latency_laptop.jsonl")
    heads, lines = verdicts_cells(results.verdicts())
    for line, row in zip(lines, results.verdicts(), strict=True):
        difference = line[heads.index("difference")]
        ratio, low, high = (math.exp(row[key]) for key in ("difference", "difference_low", "difference_high"))
        assert difference.endswith(f"; ratio {ratio:.3f} ({low:.3f} to {high:.3f})")


def test_a_table_of_ones_own_is_kept_apart_and_shown_as_a_grid(results: TableResults, tmp_path: Path) -> None:
    names = {"own, together": "a", "own, apart": "mixed", "joint, together": "b"}
    table = replace(results.table, rows={name: PublishedRow(setting) for name, setting in names.items()})
    grid = runpy.run_path(str(ROOT / "docs/generators/make_results.py"))["grid"]
    head, _, own, joint = grid(replace(results, table=table)).splitlines()
    assert head == "| world | a message is paid | together | apart |"
    assert own.startswith("| here | own | 0.950 (") and "| 0.500 (" in own
    assert joint.startswith("| here | joint | 0.100 (") and joint.endswith("| – |")
    write_results(results, folder := tmp_path / "runs" / "reproduce" / "mine" / "laptop")
    (tmp_path / "tables").mkdir()
    file = runpy.run_path(str(ROOT / "docs/generators/keep_results.py"))["keep"](folder, tmp_path)
    assert file == tmp_path / "tables" / "mine_laptop.jsonl"
    assert TableResults.read(file, results.table).verdicts() == results.verdicts()


@pytest.mark.slow
def test_the_committed_page_is_that_of_the_summaries() -> None:
    files = runpy.run_path(str(ROOT / "docs/generators/make_reproduction.py"))["files"]
    for file, text in files().items():
        assert file.read_text(encoding="utf-8") == text, "run `make results`"


def test_a_table_without_a_summary_has_no_verdict_on_the_page(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs/results", tmp_path / "results", ignore=shutil.ignore_patterns("reproduction"))
    pytest.importorskip("matplotlib", reason="the charts need it")
    files = runpy.run_path(str(ROOT / "docs/generators/make_reproduction.py"))["files"]
    (page,) = files(tmp_path).values()
    results = page.partition("## Results")[2]
    assert not any(f"| {word} |" in results for word in (APPEARS, ABSENT, UNDECIDED, UNTESTED))
    why = "cannot be tested at this scale: the lexicon of three steps has no words for the value of a failed test"
    assert f"| details help more than levels |  | {why} |" in results
    assert "Table `turns`: not tested yet." in results and "not tested: Troupe does not have MARFT" in results
