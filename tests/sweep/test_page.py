"""Tables are made from what lies on the disk, again and again."""

import csv
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from troupe.runs.files import RunDirectoryError
from troupe.runs.fingerprint import evaluation_keys
from troupe.runs.run import RunReader
from troupe.sweep.claims import Claim
from troupe.sweep.page import write_tables
from troupe.sweep.record import error_file
from troupe.sweep.tables import latex, markdown


def test_a_sweep_can_be_moved_with_its_runs(disk: Any, tmp_path: Path) -> None:
    disk.sweep(tmp_path / "runs")
    disk.run(tmp_path / "runs" / "game" / "x", disk.config(0, 2), disk.scores(1, 5, 6))
    (tmp_path / "runs").rename(tmp_path / "elsewhere")
    _, rows = write_tables(tmp_path / "elsewhere" / "sweeps" / "s")
    assert [row["status"] for row in rows] == ["finished", "missing", "missing", "missing"]


def test_verdicts_on_claims_that_are_gone_are_removed(disk: Any, tmp_path: Path) -> None:
    sweep = disk.sweep(tmp_path)
    write_tables(sweep.folder)
    assert (sweep.folder / "verdicts.csv").is_file()
    replace(sweep, claims=[]).write()
    write_tables(sweep.folder)
    assert not (sweep.folder / "verdicts.csv").exists()


def test_the_tables_of_a_sweep(disk: Any, tmp_path: Path) -> None:
    sweep = disk.sweep(tmp_path)
    for seed, k, after, code in ((0, 2, 4, None), (1, 2, 6, "older"), (0, 4, 7, None)):
        disk.run(tmp_path / "game" / f"{seed}{k}", disk.config(seed, k), disk.scores(1, after, after), code)
    failed = error_file(sweep.folder, sweep.jobs[3].training)
    failed.parent.mkdir()
    failed.write_text("ValueError: no | way\n\nTraceback ...")

    page, rows = write_tables(sweep.folder)

    assert page == (sweep.folder / "table.md").read_text()
    with (sweep.folder / "runs.csv").open() as file:
        runs = list(csv.DictReader(file))
    assert [row["status"] for row in runs] == [row["status"] for row in rows]
    assert [row["status"] for row in runs] == ["finished", "finished", "finished", "failed"]
    assert [row["stale"] for row in runs] == ["", "code", "", ""]
    assert [row["after"] for row in runs] == ["0.4", "0.6", "0.7", ""]
    assert runs[3]["note"] == "ValueError: no | way"
    with (sweep.folder / "settings.csv").open() as file:
        a, b = csv.DictReader(file)
    assert (a["setting"], a["n"], a["stale"], float(a["after_mean"])) == ("a", "2", "1", pytest.approx(0.5))
    assert (b["n"], b["runs"], b["after_low"]) == ("1", "2", "")
    # Both seeds solve the same one of ten tasks before: SE sqrt(0.09 / 10), t(0.975, 1) = 12.706: wider than [0, 1].
    assert "| a | 2 | 1 | 0.100 (0.000 to 1.000) | 0.500 (" in page
    tex = (sweep.folder / "table.tex").read_text()
    assert r"{}a & 2 & 1 & 0.100 {\small [0.000, 1.000]} & 0.500 {\small [" in tex and "& env steps" not in tex
    assert tex.count(r"\\") == 3 and r"\begin{tabular}{llllll" in tex and "95 \\%" in tex
    claim = "| b beats a | success, trained | at least 0.05 | 0.300 | 1 | undecided | 1 of 2 pairs finished; "
    assert f"{claim}1 of 2 pairs hold a" in page
    assert "ValueError: no \\| way" in page


def test_columns_that_are_empty_throughout_are_left_out() -> None:
    assert markdown(["a", "b", "c"], [["1", "", ""], ["", "", "2"]]) == "| a | c |\n| --- | --- |\n| 1 |  |\n|  | 2 |\n"


def test_a_sweep_of_an_older_version_has_its_tables(old_run: Path) -> None:
    run = RunReader(old_run)
    job = {"setting": "two", "variant": "", "seed": 3, "overrides": ["x=1"], "evaluation": evaluation_keys(run.config)}
    folder = old_run.parent / "sweeps" / "s"
    folder.mkdir(parents=True)
    claim = Claim("c", "two", 0.1, metric="best", over_metric="before")
    content = {
        "name": "s",
        "question": "?",
        "runs": "../..",
        "evaluations": [],
        "verdicts": [asdict(claim)],
    }
    (folder / "sweep.json").write_text(json.dumps(content | {"jobs": [job | {"training": run.training_hash}]}))
    page, (row,) = write_tables(folder)
    assert (row["status"], row["stale"], row["after"], row["run"]) == ("finished", "code", 0.5, str(old_run))
    assert "| c | best | at least 0.1 | 0.500 | 1 | met | 1 of 1 pairs hold a stale run |" in page


def test_what_is_neither_run_nor_sweep_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"nothing is neither a run directory nor a sweep"):
        write_tables(tmp_path / "nothing")
    (tmp_path / "sweep.json").write_text('{"name": "s"}')
    with pytest.raises(RunDirectoryError, match=r"sweep\.json cannot be read: KeyError\('jobs'\)"):
        write_tables(tmp_path)


def test_without_matplotlib_the_page_says_what_to_install(
    disk: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = disk.sweep(tmp_path)
    path = disk.run(tmp_path / "game" / "0", disk.config(0, 2), disk.scores(1, 5, 6))
    disk.curve(path, {0: 0.1, 2: 0.4}, completions=100)
    monkeypatch.setattr("troupe.sweep.page.find_spec", lambda name: None)
    (sweep.folder / "curves.svg").write_text("of earlier figures")
    page, _ = write_tables(sweep.folder)
    assert page.endswith("There are no charts: matplotlib is missing (pip install -c constraints.txt '.[charts]').\n")
    assert "curves.svg" not in page and not (sweep.folder / "curves.svg").exists()


def test_signs_of_latex_are_escaped() -> None:
    text = latex((["a_b", "`c`"], [["50 %", r"x\y ~ <z>"]]), "R&D {1}", "t")
    assert r"{}a\_b & c \\" in text and r"\caption{R\&D \{1\}}" in text
    assert r"50 \% & x\textbackslash{}y \textasciitilde{} \textless{}z\textgreater{} \\" in text
