"""Charts as geometry, by hand."""

import math

import pytest

from troupe.reports.charts import Chart, Series, draw, number, percent, ticks


def test_a_line_fills_its_box() -> None:
    line = Series("a", [(0, 0.0), (5, 1.0), (10, 2.0)])
    drawing = draw(Chart("t", [line]))
    assert drawing is not None
    (mark,) = drawing.marks
    assert mark.line == "M0.0 1000.0 L500.0 500.0 L1000.0 0.0"
    assert mark.dots == "M0.0 1000.0 h0 M500.0 500.0 h0 M1000.0 0.0 h0"
    assert drawing.y_labels == [(100.0, "0"), (75.0, "0.5"), (50.0, "1"), (25.0, "1.5"), (0.0, "2")]
    assert drawing.x_labels == [(tick * 10, str(tick)) for tick in (0, 2, 4, 6, 8, 10)]
    assert drawing.description == "a from 0 to 2"


def test_bands_and_whiskers_of_a_whole_share() -> None:
    band = Series("v", [(1, 0.5), (2, 0.75)], band=[(1, 0.25, 0.75), (2, 0.5, 1.0)])
    dots = Series("d", [(0, 0.25)], style="dots", band=[(0, 0.0, 0.5)])
    drawing = draw(Chart("t", [band, dots], share=True, whole=True, x_end=4))
    assert drawing is not None
    v, d = drawing.marks
    assert v.band == "M250.0 250.0 L500.0 0.0 L500.0 500.0 L250.0 750.0 Z"
    assert (d.whiskers, d.line) == ("M0.0 1000.0 L0.0 500.0", "")
    assert [text for _, text in drawing.y_labels] == ["0 %", "25 %", "50 %", "75 %", "100 %"]
    assert [hit.tip for hit in drawing.hits] == [
        "iteration 0\nd: 25.0 % (0.0 % to 50.0 %)",
        "iteration 1\nv: 50.0 % (25.0 % to 75.0 %)",
        "iteration 2\nv: 75.0 % (50.0 % to 100.0 %)",
    ]


def test_a_band_of_one_point_is_a_line() -> None:
    band = [(1, 0.25, 0.75), (3, 0.5, 1.0), (4, 0.5, 1.0)]
    drawing = draw(Chart("t", [Series("v", [(x, 0.5) for x in (1, 2, 3, 4)], band=band)], whole=True))
    assert drawing is not None
    assert drawing.marks[0].whiskers == "M250.0 750.0 L250.0 250.0"
    assert drawing.marks[0].band == "M750.0 0.0 L1000.0 0.0 L1000.0 500.0 L750.0 500.0 Z"


def test_a_wide_band_does_not_flatten_the_means() -> None:
    points, band = [(1, 100.0), (2, 200.0)], [(1, -4000.0, 4200.0), (2, 150.0, 250.0)]
    wide = draw(Chart("t", [Series("v", points, band=band)], "A note."))
    assert wide is not None and [text for _, text in wide.y_labels] == ["−200", "0", "200", "400"]
    assert wide.note == "A note. An interval goes on beyond the axis."
    assert wide.hits[0].tip.endswith("4,200)")  # the whole interval
    narrow = draw(Chart("t", [Series("v", points, band=[(1, 50.0, 150.0)])], "A note."))
    assert narrow is not None and narrow.note == "A note."


def test_strips_cover_the_whole_width_and_are_bounded() -> None:
    drawing = draw(Chart("t", [Series("a", [(x, float(x)) for x in range(1000)])]))
    assert drawing is not None
    assert len(drawing.hits) <= 150
    assert sum(hit.width for hit in drawing.hits) == pytest.approx(100)
    assert drawing.marks[0].line.count("L") == 999
    assert drawing.marks[0].dots == ""


def test_what_is_not_finite_is_left_out() -> None:
    points = [(1, 1.0), (2, math.nan), (3, math.inf), (3, 1.7e308), (3, -1.7e308), (4, 2.0)]
    drawing = draw(Chart("t", [Series("a", points), Series("b", [])]))
    assert drawing is not None
    assert [mark.name for mark in drawing.marks] == ["a"]
    assert drawing.marks[0].line == "M250.0 500.0 L1000.0 0.0"
    assert draw(Chart("t", [Series("a", [(1, math.nan)])])) is None
    assert draw(Chart("t", [])) is None


@pytest.mark.parametrize(
    ("low", "high", "count", "expected"),
    [
        (0, 1, 4, [0, 0.5, 1]),
        (0, 0, 4, [0, 0.5, 1]),
        (-0.013, 0.0002, 4, [-0.015, -0.01, -0.005, 0, 0.005]),
        (0, 97, 6, [0, 20, 40, 60, 80, 100]),
        (0, 4e-9, 4, [0, 1e-9, 2e-9, 3e-9, 4e-9]),
    ],
)
def test_ticks_are_round_and_enclose(low: float, high: float, count: int, expected: list[float]) -> None:
    assert ticks(low, high, count) == pytest.approx(expected, abs=1e-15)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (8344, "8,344"), (59226, "59.2k"), (2.5e6, "2.5M"), (7e9, "7G"), (-0.01, "-0.01"), (3.4e-9, "3.4e-9")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert number(value) == text


def test_percent() -> None:
    assert [percent(share) for share in (0, 0.915, 1)] == ["0.0 %", "91.5 %", "100.0 %"]
