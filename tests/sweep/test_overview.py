"""What the page about a sweep shows."""

from pathlib import Path
from typing import Any

import pytest

from troupe.runs.files import RunDirectoryError
from troupe.sweep.overview import Overview, Sweep


@pytest.fixture
def root(tmp_path: Path, disk: Any) -> Path:
    """The sweep of two settings and two seeds, of which b, seed 1, is not finished."""
    disk.sweep(tmp_path)
    for k, seed, wins in ((2, 0, 2), (2, 1, 3), (4, 0, 8)):
        disk.run(tmp_path / "game" / f"{k}-{seed}", disk.config(seed, k), disk.scores(1, wins, wins))
    disk.run(tmp_path / "game" / "4-1", disk.config(1, 4), {"status": "interrupted"})
    return tmp_path


def test_settings_tables_and_what_is_missing(root: Path) -> None:
    overview = Overview.of_sweep(root / "sweeps" / "s")
    assert (overview.name, overview.question) == ("s", "Is b better?")
    names = {setting: [path.name for path in paths] for setting, paths in overview.settings.items()}
    assert names == {"a": ["2-0", "2-1"], "b": ["4-0", "4-1"]}
    assert overview.problems == ["The run of setting b, seed 1, is not finished."]
    assert [table.title for table in overview.tables] == ["Settings", "Verdicts"]
    claim = overview.tables[1].lines[0]
    assert claim[0] == "b beats a" and "undecided" in claim and "1 of 2 pairs finished" in claim
    assert [line[:2] for line in overview.tables[0].lines] == [["a", "2"], ["b", "1 of 2"]]


def test_a_sweep_as_tables_and_in_a_notebook(root: Path) -> None:
    sweep = Sweep(root / "sweeps" / "s")
    assert list(sweep.runs["status"]) == ["finished", "finished", "finished", "missing"]
    assert list(sweep.settings["setting"]) == ["a", "b"] and list(sweep.settings["n"]) == [2, 1]
    assert list(sweep.verdicts["verdict"]) == ["undecided"]
    page = sweep._repr_html_()
    assert "Is b better?" in page and page.count("<table>") == 2
    file = root / "sweeps" / "s" / "sweep.json"
    file.write_text(file.read_text().replace("Is b better?", "<script>"))
    assert "<script>" not in Sweep(file.parent)._repr_html_()


def test_a_damaged_run_is_named_and_left_out(root: Path) -> None:
    (root / "game" / "2-1" / "summary.json").write_text('{"status": ')
    (root / "game" / "4-1" / "config.yaml").write_text("seed: 1\n")
    overview = Overview.of_sweep(root / "sweeps" / "s")
    assert len(overview.problems) == 4
    assert "2-1: summary.json is not whole JSON" in overview.problems[0]
    assert "4-1: config.yaml has no 'loop'. It is left out." in overview.problems[1]
    assert overview.problems[2:] == [f"The run of setting {name}, seed 1, is missing." for name in "ab"]
    assert [len(paths) for paths in overview.settings.values()] == [1, 1]


def test_a_folder_without_a_sweep(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="neither a run directory nor a sweep"):
        Overview.of_sweep(tmp_path)
