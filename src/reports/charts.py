"""Line charts as geometry: data in, paths in a box and labels in per cent out; a template draws them.

The box of a chart is 1000 wide and 1000 high.  The page stretches the box, but not the labels, which keep their size at
every width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

BOX = 1000
CUT = "An interval goes on beyond the axis."
Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """A line of points (x, y), x ascending, with an interval (x, low, high) per point in ``band``, or none.  One
    without a name is in no text.

    ``style`` is ``line``, ``faint``, ``dashed`` or ``dots``; ``colour`` a number of the page's palette.  Values that
    are not finite are gaps.
    """

    name: str
    points: Sequence[Point]
    colour: int = 0
    style: str = "line"
    band: Sequence[tuple[float, float, float]] = ()
    tag: str = ""
    """A class of the page's own for the shapes and the legend."""


@dataclass(frozen=True)
class Chart:
    """Series with their axes.

    With ``share`` the values are shares, labelled in per cent; with ``whole`` the y axis goes from 0 to 1.  ``note`` is
    a sentence below the chart.  The x axis starts at 0 and reaches at least ``x_end``; the y axis holds 0.
    """

    title: str
    series: Sequence[Series]
    note: str = ""
    share: bool = False
    whole: bool = False
    x_name: str = "iteration"
    x_end: float = 0


@dataclass
class Mark:
    """The shapes of one series as SVG path data, each "" where the series has none."""

    name: str
    colour: int
    style: str
    line: str = ""
    dots: str = ""
    band: str = ""
    whiskers: str = ""
    tag: str = ""


@dataclass
class Hit:
    """A strip of the chart, in per cent of its width, with the text of its tooltip, which opens to the right where
    ``rightwards`` is True."""

    left: float
    width: float
    tip: str
    rightwards: bool


@dataclass
class ChartDrawing:
    """A chart's shapes, the labels of its axes as (per cent from the left or from the top, text), and its strips."""

    title: str
    note: str
    marks: list[Mark] = field(default_factory=list)
    x_labels: list[tuple[float, str]] = field(default_factory=list)
    y_labels: list[tuple[float, str]] = field(default_factory=list)
    hits: list[Hit] = field(default_factory=list)
    description: str = ""


def draw(chart: Chart) -> ChartDrawing | None:
    """None where no series has a finite value."""
    lines = [line for line in map(_finite, chart.series) if line.points]
    if not lines:
        return None
    xs = [x for line in lines for x, _ in line.points]
    ys = [0.0, *_spread(lines)]
    x_ticks = [t for t in ticks(0, max([*xs, chart.x_end, 1]), 6) if t == int(t)]
    x_high = max([*xs, chart.x_end, 1])
    edges = [edge for line in lines for _, *span in line.band for edge in span]
    y_ticks = [0, 0.25, 0.5, 0.75, 1] if chart.whole else ticks(min(ys), max(ys), 4)
    low, high = y_ticks[0], y_ticks[-1]

    def at(x: float, y: float) -> str:
        return f"{x / x_high * BOX:.1f} {(high - min(max(y, low), high)) / (high - low) * BOX:.1f}"

    cut = edges and (min(edges) < low or max(edges) > high)
    drawing = ChartDrawing(chart.title, " ".join(filter(None, (chart.note, CUT if cut else ""))))
    drawing.x_labels = [(tick / x_high * 100, number(tick)) for tick in x_ticks if tick <= x_high]
    drawing.y_labels = [((high - t) / (high - low) * 100, _axis(t, chart.share)) for t in y_ticks]
    drawing.marks = [_mark(line, at) for line in lines]
    drawing.hits = _hits(chart, lines, x_high)
    drawing.description = "; ".join(_ends(line, chart.share) for line in lines if line.name)
    return drawing


def _spread(lines: Sequence[Series]) -> list[float]:
    """What the y axis must hold: all values, and of intervals as much as is not much wider than those."""
    ys = [y for line in lines for _, y in line.points]
    low, high = min(ys), max(ys)
    room = max(high - low, abs(low), abs(high))
    return ys + [min(max(edge, low - room), high + room) for line in lines for _, *span in line.band for edge in span]


def _mark(line: Series, at: Callable[[float, float], str]) -> Mark:
    """``at``: from data to "x y" in the box."""
    mark = Mark(line.name, line.colour, line.style, tag=line.tag)
    points = [at(x, y) for x, y in line.points]
    if line.style != "dots":
        mark.line = "M" + " L".join(points)
    if line.style == "dots" or (line.style == "line" and len(points) <= 40):
        mark.dots = " ".join(f"M{point} h0" for point in points)
    if line.style == "dots":
        mark.whiskers = " ".join(f"M{at(x, low)} L{at(x, high)}" for x, low, high in line.band)
    elif line.band:
        stretches = _unbroken(line)
        mark.band = " ".join(_area(edges, at) for edges in stretches if len(edges) > 1)
        alone = [edges[0] for edges in stretches if len(edges) == 1]  # an area without width
        mark.whiskers = " ".join(f"M{at(x, low)} L{at(x, high)}" for x, low, high in alone)
    return mark


def _area(band: Sequence[tuple[float, float, float]], at: Callable[[float, float], str]) -> str:
    upper, lower = [at(x, high) for x, _, high in band], [at(x, low) for x, low, _ in reversed(band)]
    return "M" + " L".join(upper + lower) + " Z"


def _unbroken(line: Series) -> list[list[tuple[float, float, float]]]:
    """The stretches of the band without a point that has no interval."""
    spans, stretches = {x: (x, low, high) for x, low, high in line.band}, [list[tuple[float, float, float]]()]
    for x, _ in line.points:
        if x in spans:
            stretches[-1].append(spans[x])
        else:
            stretches.append([])
    return [stretch for stretch in stretches if stretch]


def _finite(series: Series) -> Series:
    points = [point for point in series.points if all(map(_drawable, point))]
    band = [edge for edge in series.band if all(map(_drawable, edge))]
    return replace(series, points=points, band=band)


def _drawable(value: float) -> bool:
    """Whether it is finite, and its distance from others, too."""
    return abs(value) < 1e300


def _hits(chart: Chart, series: Sequence[Series], x_high: float, max_strips: int = 150) -> list[Hit]:
    """At most ``max_strips`` strips, each around an x where some series has a value."""
    xs = sorted({x for line in series for x, _ in line.points})
    xs = xs[:: max(1, -(-len(xs) // max_strips))]
    edges = [0.0, *((a + b) / 2 for a, b in pairwise(xs)), x_high]
    values = [(line.name, dict(line.points), {x: span for x, *span in line.band}) for line in series if line.name]
    hits = []
    for x, (left, right) in zip(xs, pairwise(edges), strict=True):
        lines = [f"{chart.x_name} {number(x)}"]
        for name, points, spans in values:
            if x in points:
                span = [_value(edge, chart.share) for edge in spans.get(x, ())]
                lines.append(f"{name}: {_value(points[x], chart.share)}{f' ({span[0]} to {span[1]})' if span else ''}")
        hits.append(Hit(left / x_high * 100, (right - left) / x_high * 100, "\n".join(lines), x < x_high / 2))
    return hits


def _ends(line: Series, share: bool) -> str:
    return f"{line.name} from {_value(line.points[0][1], share)} to {_value(line.points[-1][1], share)}"


def _axis(value: float, share: bool) -> str:
    text = percent(value).replace(".0 %", " %") if share else number(value)
    return text.replace("-", "−") if value < 0 else text


def _value(value: float, share: bool) -> str:
    return percent(value) if share else number(value)


def ticks(low: float, high: float, count: int) -> list[float]:
    """About ``count`` round numbers that enclose [low, high]."""
    if high <= low:
        high = low + 1
    rough = (high - low) / count
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [index * step for index in range(first, last + 1)]


def percent(share: float) -> str:
    """0.915 -> ``91.5 %``."""
    return f"{share * 100:.1f} %"


def number(value: float) -> str:
    """Three significant digits in few characters: ``8,344``, ``59.2k``, ``0.0026``, ``3.4e-9``."""
    size = abs(value)
    if size == 0:
        return "0"
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if size >= limit:
            return f"{value / (1e3 if unit == 'k' else limit):.3g}{unit}"
    if size < 1e-4:
        return f"{value:.1e}".replace("e-0", "e-")
    return f"{value:,.0f}" if size >= 1000 else f"{value:.3g}"
