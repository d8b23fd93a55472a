"""The plot of a table as SVG, without a library: intervals beside published figures, or rewards over training."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ..drawing import drawing, label, nice_ticks
from ..measures import MEASURES, standardised

if TYPE_CHECKING:
    from .results import TableResults

WIDTH, LABELS, RIGHT, LINE, HEAD = 860, 400, 24, 20, 30
"""Of the drawing, of its labels, of the margin on the right; the height of a row, of a heading."""
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
STYLE = """<style>
text{font:12px system-ui,sans-serif;fill:#1a1f2b}.faint{fill:#5b6472}.grid{stroke:#d5d9e0}
.ours{stroke:#3949ab;fill:#3949ab}
.paper{stroke:#b3541e;fill:none;stroke-width:1.6}.second{stroke:#0f766e;fill:none}.first{stroke:#3949ab;fill:none}
@media(prefers-color-scheme:dark){text{fill:#e6e9ef}.faint{fill:#a3acba}.grid{stroke:#3a4150}
.ours{stroke:#9fa8ff;fill:#9fa8ff}.paper{stroke:#f0a070}.first{stroke:#9fa8ff}.second{stroke:#5cc9bd}}
</style>"""


def figure_of(results: TableResults) -> str:
    """SVG; "" where no run has anything to draw."""
    return rewards(results) if results.table.figure == "rewards" else intervals(results)


def intervals(results: TableResults) -> str:
    """A panel per part and kind of figure, a line per row that was tested: mean and interval as a dot with whiskers;
    published figures, where they are per cent of successes, as diamonds.
    """
    entries = [entry for entry in results.estimates() if entry["mean"] is not None]
    if not entries:
        return ""
    panels: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for entry in entries:
        panels.setdefault((entry["part"], entry["variant"], _kind(entry["metric"])), []).append(entry)
    body, y = [], HEAD
    for (part, variant, kind), own in panels.items():
        bottom = y + LINE * len(own) + 6
        ticks = SHARES if kind == "success" else nice_ticks(_values(own))
        body += [label(8, y, ", ".join(word for word in (part, variant, kind) if word), bold=True)]
        body += _axis(ticks, y, bottom, kind == "success")
        for number, entry in enumerate(own, 1):
            body += _interval(entry, y + LINE * number, ticks, kind == "success" and results.table.unit == "%")
        y = bottom + LINE + 8
    body += _legend(y - 4, any('class="paper"' in shape for shape in body))
    return drawing(results.table.title, WIDTH, y + 12, STYLE, body)


def _kind(metric: str) -> str:
    """The figures that share an axis: turns before and after, rewards, seconds of one phase, successes."""
    if metric not in MEASURES:
        return "success"
    return {"role_reward": "standardised reward"}.get(kind := metric.rpartition("_")[0], kind)


def _values(entries: Sequence[Mapping[str, Any]]) -> list[float]:
    return [entry[key] for entry in entries for key in ("mean", "low", "high") if entry[key] is not None]


def _interval(entry: Mapping[str, Any], y: float, ticks: Sequence[float], published: bool) -> list[str]:
    low, high = ticks[0], ticks[-1]
    shapes, at = [label(20, y, entry["row"])], _scale(ticks)
    if entry["low"] is not None:
        left, right = (at(min(max(entry[key], low), high)) for key in ("low", "high"))
        shapes.append(f'<path class="ours" d="M{left:.1f} {y - 4}H{right:.1f}" stroke-width="2"/>')
    title = f"<title>{escape(entry['row'])}: {entry['mean']:.3f}</title>"
    shapes.append(f'<circle class="ours" cx="{at(entry["mean"]):.1f}" cy="{y - 4}" r="4">{title}</circle>')
    for name, value in entry["paper"].items() if published else ():
        if isinstance(value, int | float):
            title = f"<title>{escape(f'paper, {name}: {value}')}</title>"
            shapes.append(f'<path class="paper" d="M{at(value / 100):.1f} {y - 9}l5 5l-5 5l-5 -5z">{title}</path>')
    return shapes


def rewards(results: TableResults) -> str:
    """Of each part and setting a panel: each agent's reward per message over training, standardised per run, mean over
    seeds up to the last iteration that all of them have."""
    panels = []
    for part, variant, setting in dict.fromkeys((r["part"], r["variant"], r["setting"]) for r in results.runs):
        own = [r for r in results.runs if (r["part"], r["variant"], r["setting"]) == (part, variant, setting)]
        runs = [r["series"] for r in own if r["series"]]
        if runs:
            panels.append((" ".join(word for word in (part, variant, setting) if word), _mean_series(runs)))
    if not panels:
        return ""
    body, y, height = [], HEAD, 150
    for title, series in panels:
        body.append(label(8, y, title, bold=True))
        body += _curves(series, y + 10, height)
        y += height + 60
    return drawing(f"{results.table.title}: standardised rewards", WIDTH, y, STYLE, body)


def _mean_series(runs: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, list[float]]:
    length = min(len(values) for run in runs for values in run.values())
    agents = list(runs[0])
    columns = {agent: [standardised(run[agent])[:length] for run in runs if agent in run] for agent in agents}
    return {agent: [fmean(column) for column in zip(*values, strict=True)] for agent, values in columns.items()}


def _curves(series: Mapping[str, Sequence[float]], top: float, height: float) -> list[str]:
    values = [value for line in series.values() for value in line]
    low, high = min([*values, -1.0]), max([*values, 1.0])
    left, right = 60.0, WIDTH - RIGHT - 120.0
    shapes = []
    for tick in (low, 0.0, high):
        y = top + (high - tick) / (high - low) * height
        shapes.append(f'<path class="grid" d="M{left} {y:.1f}H{right}"/>{label(12, y + 4, f"{tick:.1f}", faint=True)}')
    for number, (agent, line) in enumerate(series.items()):
        span = max(1, len(line) - 1)
        points = " ".join(
            f"{left + place / span * (right - left):.1f},{top + (high - value) / (high - low) * height:.1f}"
            for place, value in enumerate(line)
        )
        dash = f' stroke-dasharray="{2 + 3 * (number // 2)}"' if number > 1 else ""
        kind = ("first", "second")[number % 2]
        shapes.append(f'<polyline class="{kind}" stroke-width="2"{dash} points="{points}"/>')
        y = top + 14 + 16 * number
        shapes.append(
            f'<path class="{kind}" stroke-width="2"{dash} d="M{right + 8} {y - 4}h18"/>{label(right + 32, y, agent)}'
        )
    length = max(map(len, series.values()))
    shapes.append(label(left, top + height + 18, "iteration 1", faint=True))
    shapes.append(label(right - 70, top + height + 18, f"iteration {length}", faint=True))
    return shapes


def _scale(ticks: Sequence[float]) -> Callable[[float], float]:
    return lambda value: LABELS + (value - ticks[0]) / (ticks[-1] - ticks[0]) * (WIDTH - LABELS - RIGHT)


def _axis(ticks: Sequence[float], top: float, bottom: float, shares: bool) -> list[str]:
    at, shapes = _scale(ticks), []
    for value in ticks:
        shapes.append(f'<path class="grid" d="M{at(value):.1f} {top + 4}V{bottom}"/>')
        shapes.append(label(at(value) - 10, top, f"{value:.0%}" if shares else f"{value:.4g}", faint=True))
    return shapes


def _legend(y: float, published: bool) -> list[str]:
    shapes = [
        f'<circle class="ours" cx="{LABELS}" cy="{y - 4}" r="4"/>',
        label(LABELS + 10, y, "ours, 95 % interval"),
    ]
    if published:
        shapes.append(f'<path class="paper" d="M{LABELS + 170} {y - 9}l5 5l-5 5l-5 -5z"/>')
        shapes.append(label(LABELS + 182, y, "the paper's, other models and tasks"))
    return shapes
