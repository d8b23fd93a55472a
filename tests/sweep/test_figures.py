"""The charts, by what is in their axes."""

import subprocess
from dataclasses import replace
from pathlib import Path
from shutil import which
from typing import Any
from xml.etree import ElementTree

import pytest

from troupe.sweep.outcomes import Curve, Outcomes, Point
from troupe.sweep.page import write_tables
from troupe.sweep.publication_results import TableResults
from troupe.sweep.summary import SweepSummary

pytest.importorskip("matplotlib", reason="the charts need it")
from troupe.sweep.figures import curves_figure, mean_line, svg, table_figure

RESULTS = Path(__file__).parents[2] / "docs" / "results" / "reproduction"


def curve(*points: tuple[float, float]) -> Curve:
    """Of completions and success."""
    return [Point(i, spent, 0, 0, Outcomes("x", (success,))) for i, (spent, success) in enumerate(points)]


FIRST, SECOND = curve((0, 0.0), (100, 0.5), (200, 1.0)), curve((0, 0.2), (160, 0.6))


def row(setting: str, own: Curve, variant: str = "", status: str = "finished") -> dict[str, Any]:
    return {"setting": setting, "variant": variant, "status": status, "curve": own}


def test_the_mean_goes_as_far_as_every_seed() -> None:
    # The second at 100: 0.2 + 0.4 * 100 / 160 = 0.45; the first at 160: 0.8.
    assert mean_line([FIRST, SECOND]) == [
        pytest.approx((0, 0.1)),
        pytest.approx((100, 0.475)),
        pytest.approx((160, 0.7)),
    ]
    late = curve((50, 0.0), (150, 1.0))  # not validated before training
    assert mean_line([FIRST, late]) == [
        pytest.approx((50, 0.125)),
        pytest.approx((100, 0.5)),
        pytest.approx((150, 0.875)),
    ]
    assert mean_line([curve((0, 0.0), (10, 1.0)), curve((20, 0.0), (30, 1.0))]) == []


def test_a_line_per_seed_and_one_for_their_mean() -> None:
    rows = [row("a", FIRST), row("a", SECOND), row("b", FIRST), row("b", FIRST, status="failed")]
    rows += [row("b", SECOND, "k=1")]
    figure = curves_figure(SweepSummary("s", "", (), None, tuple(rows)))
    assert figure is not None
    first, second = figure.axes
    lines = [[*zip(*line.get_data(), strict=True)] for line in first.lines]
    assert lines[:2] == [[(p.completions, p.outcomes.mean) for p in own] for own in (FIRST, SECOND)]
    assert lines[2] == [pytest.approx(point) for point in mean_line([FIRST, SECOND])] and len(lines) == 5
    assert [text.get_text() for text in first.get_legend().get_texts()] == ["a, 2 seeds", "b, 1 seed"]
    (band,) = first.collections  # of the setting with two seeds
    low, high = (end(band.get_paths()[0].vertices[:, 1]) for end in (min, max))
    assert low < min(y for _, y in lines[2]) and high > max(y for _, y in lines[2]) and not second.collections
    assert second.get_title(loc="left") == "k=1"
    assert second.lines[0].get_color() == first.lines[3].get_color() != first.lines[0].get_color()
    assert svg(figure) == svg(figure) and ElementTree.fromstring(svg(figure)).tag.endswith("svg")


def test_without_two_validations_there_is_no_figure(disk: Any, tmp_path: Path) -> None:
    assert curves_figure(SweepSummary("s", "", (), None, (row("a", FIRST[:1]), row("a", [])))) is None
    sweep = disk.sweep(tmp_path)
    path = disk.run(tmp_path / "game" / "0", disk.config(0, 2), disk.scores(1, 5, 6))
    disk.curve(path, {0: 0.1, 2: 0.4}, completions=100)
    page, _ = write_tables(sweep.folder)
    assert "](curves.svg)" in page and (sweep.folder / "curves.pdf").read_bytes().startswith(b"%PDF")
    disk.curve(path, {4: 0.1}, completions=100)
    for number in (0, 2):
        (path / "episodes" / f"validation_{number:05d}.jsonl").unlink()
    page, _ = write_tables(sweep.folder)
    assert "curves.svg" not in page and not [*sweep.folder.glob("curves.*")]


@pytest.mark.skipif(which("pdflatex") is None, reason="LaTeX is not installed")
def test_table_and_figure_compile_in_a_paper_and_fit(disk: Any, tmp_path: Path) -> None:
    sweep = disk.sweep(tmp_path)
    for seed in (0, 1):
        path = disk.run(tmp_path / "game" / str(seed), disk.config(seed, 2), disk.scores(1, 5, 6))
        disk.curve(path, {0: 0.1, 2: 0.4}, completions=100)
    write_tables(sweep.folder)
    head = r"\documentclass{article}\usepackage{booktabs,graphicx}\begin{document}\setlength{\textwidth}{3in}"
    (sweep.folder / "paper.tex").write_text(
        head + r"\hsize=3in\input{table}\includegraphics[width=\linewidth]{curves.pdf}\end{document}"
    )
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper"]
    done = subprocess.run(command, cwd=sweep.folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "curves.pdf>" in done.stdout.replace("\n", ""), done.stdout
    assert "Overfull" not in done.stdout


def test_committed_tables_are_drawn() -> None:
    """Each row with its interval, each agent's rewards."""
    results = TableResults.read(RESULTS / "role_swap_laptop.jsonl")
    plot = table_figure(results)
    assert plot is not None
    entries = [one for one in results.estimates() if one["mean"] is not None]
    dots = [line for panel in plot.axes for line in panel.lines if line.get_label().startswith("ours")]
    assert [float(line.get_xdata()[0]) for line in dots] == [one["mean"] for one in entries]
    rewards = table_figure(TableResults.read(RESULTS / "turns_laptop.jsonl"))
    assert rewards is not None and {line.get_label() for line in rewards.axes[0].lines} == {"tool", "plan"}
    empty = replace(results, runs=(), cells=())
    assert table_figure(empty) is None
