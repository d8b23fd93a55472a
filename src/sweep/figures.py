"""The charts of sweeps and tables, by matplotlib: learning curves, intervals beside published figures, and rewards
over training.  ``pip install -c constraints.txt '.[charts]'`` installs what this needs."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..runs.directory import write_atomic
from .measures import MEASURES, standardised
from .outcomes import Curve, Outcomes, common_budgets, mean_over_seeds, value_at
from .publication_results import TableResults
from .summary import SweepSummary

PUBLISHED = "the paper's, other models and tasks"
WIDTH, GAP = 9.0, 0.75
"""Of all charts, in inches; between two panels."""
PAPER = 4.5
"""In a PDF, so that on a paper's page letters are nearly as large as those of its footnotes."""
STYLE: dict[Any, Any] = {"svg.fonttype": "none", "svg.hashsalt": "troupe", "font.size": 9, "axes.spines.top": False}
STYLE |= {"axes.spines.right": False, "axes.titlesize": 9, "axes.titlelocation": "left", "axes.titleweight": "bold"}


def write_figure(figure: Figure, place: Path) -> None:
    """Write ``figure`` as SVG and PDF at ``place``, which has no suffix."""
    write_atomic(place.with_suffix(".svg"), svg(figure))
    figure.set_figwidth(PAPER)
    with mpl.rc_context(STYLE):
        figure.savefig(place.with_suffix(".pdf"), bbox_inches="tight")


def svg(figure: Figure) -> str:
    """The same text for the same figure."""
    out = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(out, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


@contextmanager
def _panels(titles: Sequence[str], heights: Sequence[float]) -> Iterator[tuple[Figure, list[Axes]]]:
    """A context with a figure of one panel below the other, of so many inches."""
    with mpl.rc_context(STYLE):
        # No layout that is solved for: its last digits differ from one process to the next.
        figure = Figure((WIDTH, sum(heights) + GAP * (len(heights) - 1)))
        space = {"left": 0, "bottom": 0, "right": 0.75, "top": 1, "hspace": GAP / fmean(heights)}
        axes = figure.subplots(len(heights), squeeze=False, height_ratios=heights, gridspec_kw=space)[:, 0]
        for title, one in zip(titles, axes, strict=True):
            one.set_title(title)
        yield figure, list(axes)


def curves_figure(summary: SweepSummary) -> Figure | None:
    """Success on validation tasks over completions, a panel per variant: a thin line per run, a thick one for the mean
    over the seeds of a setting, with its 95 % interval; None where no run was validated twice.
    """
    if not (curves := curves_of(summary)):
        return None
    colours = {name: f"C{place}" for place, name in enumerate(dict.fromkeys(row["setting"] for row in summary.rows))}
    with _panels(list(curves), [2.4] * len(curves)) as (figure, axes):
        for panel, settings in zip(axes, curves.values(), strict=True):
            for name, own in settings.items():
                for curve in own:
                    line = [(point.completions, point.outcomes.mean) for point in curve]
                    panel.plot(*zip(*line, strict=True), color=colours[name], linewidth=0.8, alpha=0.45)
                about = f"{name}, {len(own)} seed{'s' if len(own) > 1 else ''}"
                panel.plot(*zip(*mean_line(own), strict=True), color=colours[name], linewidth=2.2, label=about)
                if band := mean_band(own):
                    budgets, low, high = zip(*band, strict=True)
                    panel.fill_between(budgets, low, high, color=colours[name], alpha=0.15, linewidth=0)
            panel.set(ylim=(0, 1), xlabel="completions of training", ylabel="success, validation")
            panel.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return figure


def curves_of(summary: SweepSummary) -> dict[str, dict[str, list[Curve]]]:
    """The curves of the finished runs that were validated twice at least, by variant and setting."""
    curves: dict[str, dict[str, list[Curve]]] = {}
    for row in summary.rows:
        if row["status"] == "finished" and len(row["curve"]) > 1:
            curves.setdefault(row["variant"], {}).setdefault(row["setting"], []).append(row["curve"])
    return curves


def mean_line(curves: Sequence[Curve]) -> list[tuple[float, float]]:
    """(Completions, success): the mean over seeds wherever one of them was validated, between the budgets that all of
    them have."""
    return [(budget, fmean(value.mean for value in values)) for budget, values in _at_budgets(curves)]


def mean_band(curves: Sequence[Curve]) -> list[tuple[float, float, float]]:
    """(Completions, low, high): the 95 % interval of :func:`mean_line`; none of one seed."""
    estimates = ((budget, mean_over_seeds(values)) for budget, values in _at_budgets(curves))
    return [(budget, *estimate.interval) for budget, estimate in estimates if estimate is not None]


def _at_budgets(curves: Sequence[Curve]) -> Iterator[tuple[float, list[Outcomes]]]:
    first = max(curve[0].completions for curve in curves)
    last = common_budgets(curves)["completions"]
    for budget in sorted(
        {point.completions for curve in curves for point in curve if first <= point.completions <= last}
    ):
        values = [value_at(curve, "completions", budget) for curve in curves]
        yield budget, [value for value in values if value]


def table_figure(results: TableResults) -> Figure | None:
    """The plot that the table's yaml names; None where no run has anything to draw."""
    return rewards(results) if results.table.figure == "rewards" else intervals(results)


def intervals(results: TableResults) -> Figure | None:
    """A panel per part and kind of figure, a line per row that was tested: the mean over seeds with its interval;
    published figures, where they are per cent of successes, as diamonds.
    """
    panels: dict[str, list[dict[str, Any]]] = {}
    for entry in (entry for entry in results.estimates() if entry["mean"] is not None):
        title = ", ".join(word for word in (entry["part"], entry["variant"], _kind(entry["metric"])) if word)
        panels.setdefault(title, []).append(entry)
    if not panels:
        return None
    with _panels(list(panels), [0.25 * len(own) + 0.2 for own in panels.values()]) as (figure, axes):
        for panel, own in zip(axes, panels.values(), strict=True):
            for place, entry in enumerate(own):
                if entry["low"] is not None:
                    panel.plot((entry["low"], entry["high"]), (place, place), color="C0")
                panel.plot(entry["mean"], place, "o", color="C0", label="ours, 95 % interval")
                published = entry["paper"].values() if entry["metric"] not in MEASURES else ()
                for share in published if results.table.unit == "%" else ():
                    if isinstance(share, int | float):
                        panel.plot(share / 100, place, "D", color="C1", fillstyle="none", label=PUBLISHED)
            panel.set_yticks(range(len(own)), [entry["row"] for entry in own])
            panel.set_ylim(len(own) - 0.5, -0.5)
            if own[0]["metric"] not in MEASURES:
                panel.set_xlim(-0.02, 1.02)
            panel.grid(axis="x", alpha=0.3)
        labels = {label: mark for one in axes for mark, label in zip(*one.get_legend_handles_labels(), strict=True)}
        below = (0.75, -0.35 / figure.get_figheight())
        figure.legend(labels.values(), labels.keys(), loc="upper right", bbox_to_anchor=below, ncols=2, frameon=False)
    return figure


def _kind(metric: str) -> str:
    """The figures that share an axis: turns before and after, rewards, seconds of one phase, successes."""
    if metric not in MEASURES:
        return "success"
    return {"role_reward": "standardised reward"}.get(kind := metric.rpartition("_")[0], kind)


def rewards(results: TableResults) -> Figure | None:
    """Of each part and setting a panel: each agent's reward per message over training, standardised per run, mean over
    seeds up to the last iteration that all of them have."""
    panels: dict[str, list[dict[str, list[float]]]] = {}
    for row in (row for row in results.runs if row["series"]):
        title = " ".join(word for word in (row["part"], row["variant"], row["setting"]) if word)
        panels.setdefault(title, []).append(row["series"])
    if not panels:
        return None
    with _panels(list(panels), [1.6] * len(panels)) as (figure, axes):
        for panel, runs in zip(axes, panels.values(), strict=True):
            length = min(len(values) for run in runs for values in run.values())
            for agent in runs[0]:
                columns = [standardised(run[agent])[:length] for run in runs if agent in run]
                panel.plot(range(1, length + 1), [fmean(one) for one in zip(*columns, strict=True)], label=agent)
            panel.set(xlabel="iteration", ylabel="standardised reward")
            panel.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False)
    return figure
