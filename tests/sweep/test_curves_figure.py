"""The figure of learning curves, read back as XML."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from troupe.sweep.curve import Curve, Point
from troupe.sweep.curves_figure import HEAD, HEIGHT, LEFT, RIGHT, WIDTH, curves_figure, mean_line
from troupe.sweep.outcomes import Outcomes
from troupe.sweep.summary import SweepSummary
from troupe.sweep.tables import write_tables


def curve(*points: tuple[float, float]) -> Curve:
    """Of completions and success."""
    return [Point(i, spent, 0, 0, Outcomes("x", (success,))) for i, (spent, success) in enumerate(points)]


FIRST, SECOND = curve((0, 0.0), (100, 0.5), (200, 1.0)), curve((0, 0.2), (160, 0.6))


def row(setting: str, own: Curve, variant: str = "", status: str = "finished") -> dict[str, Any]:
    return {"setting": setting, "variant": variant, "status": status, "curve": own}


def polylines(svg: str, kind: str) -> list[list[tuple[float, float]]]:
    """Those of a class, as completions and success of a panel that goes up to 200 completions."""
    lines = [each for each in ElementTree.fromstring(svg).iter() if each.get("class") == kind]
    across, bottom = (WIDTH - RIGHT - LEFT) / 200, HEAD + HEIGHT
    points = [[tuple(map(float, point.split(","))) for point in each.get("points", "").split()] for each in lines]
    return [[((x - LEFT) / across, (bottom - y) / HEIGHT) for x, y in line] for line in points]


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
    rows = [row("a", FIRST), row("a", SECOND), row("b <c>", FIRST), row("b <c>", FIRST, status="failed")]
    svg = curves_figure(SweepSummary("s", "", (), None, tuple(rows)))
    one, two = polylines(svg, "c0")
    assert one == [pytest.approx((p.completions, p.outcomes.mean), abs=0.06) for p in FIRST]
    assert two == [pytest.approx((p.completions, p.outcomes.mean), abs=0.06) for p in SECOND]
    mean, legend = polylines(svg, "c0 mean")
    assert mean == [pytest.approx(point, abs=0.06) for point in mean_line([FIRST, SECOND])] and len(legend) == 2
    assert len(polylines(svg, "c1")) == 1
    words = [
        each.text for each in ElementTree.fromstring(svg).iter() if each.text and each.tag.endswith(("text", "le"))
    ]
    assert {"0%", "100%", "0", "200", "a, 2 seeds", "b <c>, 1 seed", "b <c>"} <= set(words)


def test_a_setting_has_its_colour_in_every_variant() -> None:
    rows = [row(f"s{i}", FIRST, "k=1") for i in range(8)] + [row("s7", FIRST, "k=2"), row("s1", FIRST, "k=2")]
    root = ElementTree.fromstring(curves_figure(SweepSummary("s", "", (), None, tuple(rows))))
    lines = [(each.get("class"), each.get("stroke-dasharray")) for each in root.iter() if each.tag.endswith("polyline")]
    own = [line for line in lines if line[0] in ("c0", "c1")]
    assert own == [("c0", None), ("c1", None), ("c0", "4 3"), ("c1", "4 3"), ("c1", "4 3"), ("c1", None)]


def test_without_two_validations_there_is_no_figure(disk: Any, tmp_path: Path) -> None:
    assert curves_figure(SweepSummary("s", "", (), None, (row("a", FIRST[:1]), row("a", [])))) == ""
    sweep = disk.sweep(tmp_path)
    path = disk.run(tmp_path / "game" / "0", disk.config(0, 2), disk.scores(1, 5, 6))
    page, _ = write_tables(sweep.folder)
    assert "curves.svg" not in page and not (sweep.folder / "curves.svg").exists()
    disk.curve(path, {0: 0.1, 2: 0.4}, completions=100)
    page, _ = write_tables(sweep.folder)
    assert "](curves.svg)" in page and (sweep.folder / "curves.svg").read_text().startswith("<svg")
