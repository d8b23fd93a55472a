"""A committed table as its page shows it."""

import shutil
from pathlib import Path

from troupe.sweep.reproduction.cross_play import matrices
from troupe.sweep.reproduction.overview import TableOverview
from troupe.sweep.reproduction.results import TableResults

SUMMARY = Path(__file__).parents[3] / "docs/results/reproduction/role_swap_laptop.jsonl"


def test_cross_play_is_a_table_of_the_page(tmp_path: Path) -> None:
    folder = tmp_path / "role_swap" / "laptop"
    folder.mkdir(parents=True)
    shutil.copy(SUMMARY, folder / "summary.jsonl")
    overview = TableOverview.of(folder)
    shown = {table.title.removeprefix("Cross-play, "): table for table in overview.tables[2:]}
    cells = dict(matrices(TableResults.read(SUMMARY)))
    assert not overview.problems and len(cells) >= 5 and shown.keys() == cells.keys()
    table = shown["plan_path, specialized, partners of shared weights"]
    assert (table.heads, table.lines) == cells["plan_path, specialized, partners of shared weights"]
    assert table.heads == ["", *(f"partner {seed}" for seed in range(5))] and len(table.lines) == 5
    assert list(overview.plots) == ["Ours beside the paper's", "Cross-play by regimes and seeds"]
    assert all(plot.startswith("<svg") and "<style>" not in plot for plot in overview.plots.values())
