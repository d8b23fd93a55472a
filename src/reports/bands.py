"""The curves of settings: the mean over seeds, with its interval as a band."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from math import inf
from statistics import fmean

from ..evaluation.statistics import ANY, SHARE, t_interval
from ..runs.run import RunReader
from .charts import Chart, ChartDrawing, Series, draw
from .curves import agents_of, of_each, policies_of, sentence
from .grouping import Setting
from .values import numeric

AMOUNT = (0.0, inf)
"""The bounds of what is never negative."""
SIGNED = ("reward", "loss", "excess_weight")
"""What may be negative."""
COLOURS = 7
"""The page's colours; beyond them settings are dashed."""

Axis = Callable[[RunReader], dict[int, float]]
"""Of a run: x by iteration."""


def tag(place: int) -> str:
    """The class of what belongs to the setting ``place``."""
    return f"s{place}" if place < COLOURS else f"s{place} dashed"


def iterations(run: RunReader) -> dict[int, float]:
    return {0: 0.0} | {row["iteration"]: float(row["iteration"]) for row in run.rows}


def completions(run: RunReader) -> dict[int, float]:
    """The completions that training had cost by the end of each iteration; nothing where a row does not say."""
    counts = [row.get("rollout/completions") for row in run.rows]
    if not all(map(numeric, counts)):
        return {}
    totals = accumulate(float(count) for count in counts if numeric(count))
    return {0: 0.0} | {row["iteration"]: total for row, total in zip(run.rows, totals, strict=True)}


def learning_curves(settings: Sequence[Setting]) -> list[ChartDrawing]:
    """Success on validation tasks by iteration and by completions."""
    note = (
        "Mean over the seeds that have the point; the band is its 95 % interval over seeds (Student's t). "
        "Where all seeds agree, or one alone has the point, there is none."
    )
    axes = (
        ("Success on validation tasks, by iteration", "iteration", iterations),
        ("Success on validation tasks, by completions of training", "completions", completions),
    )
    drawings = []
    for title, name, axis in axes:
        lines = _lines(settings, "eval/success", axis, True)
        starts = [start for setting, line in zip(settings, lines, strict=True) if (start := _start(setting, line))]
        dashed = "Dashed: from success on the test tasks before training." if starts else ""
        text = " ".join(filter(None, [note, dashed]))
        drawings.append(draw(Chart(title, [*starts, *lines], text, share=True, whole=True, x_name=name)))
    return [drawing for drawing in drawings if drawing]


def _start(setting: Setting, line: Series) -> Series | None:
    """From success before training, on test tasks, to the first point of ``line``, where that has none at the start."""
    before = [value for run in setting.runs if numeric(value := run.summary.get("eval_before/success"))]
    if not before or not line.points or not line.points[0][0]:
        return None
    return Series("", [(0.0, fmean(before)), line.points[0]], line.colour, "dashed", tag=line.tag)


def metric_curves(settings: Sequence[Setting]) -> list[ChartDrawing]:
    """Turns, and what a run's own report shows of each agent and of each policy, by iteration."""
    runs = [run for setting in settings for run in setting.runs]
    agents, policies = (_union(names(run) for run in runs) for names in (agents_of, policies_of))
    charts: list[tuple[str, str, bool]] = [
        ("rollout/best_of_k_success", "Best of K, in training", True),
        ("rollout/success", "Success in training", True),
        ("rollout/turns", "Turns per episode, in training", False),
        ("eval/turns", "Turns per episode, on validation tasks", False),
        *(
            (form.replace("{}", name), f"{name}: {uncapitalised(title)}", share)
            for form, title, share, names in of_each(agents, policies)
            for name in names
        ),
        ("rollout/tokens_per_s", "Generated tokens per second", False),
    ]
    end = max((row["iteration"] for run in runs for row in run.rows), default=0)
    drawings = (
        draw(Chart(title, _lines(settings, key, iterations, share), sentence(title), share, x_end=end))
        for key, title, share in charts
    )
    return [drawing for drawing in drawings if drawing]


def uncapitalised(title: str) -> str:
    """``Loss`` -> ``loss``; an abbreviation, ``KL to the reference``, stays."""
    return title if title[1:2].isupper() else title[0].lower() + title[1:]


def _lines(settings: Sequence[Setting], key: str, axis: Axis, share: bool) -> list[Series]:
    return [_line(setting, place, key, axis, share) for place, setting in enumerate(settings)]


def _line(setting: Setting, place: int, key: str, axis: Axis, share: bool) -> Series:
    """One point per iteration: the means of x and of the metric ``key`` over the runs that have both; the band is cut
    to what the metric can be."""
    signed = key.endswith(SIGNED)
    bounds = ANY if signed else SHARE if share else AMOUNT
    by_iteration: dict[int, list[tuple[float, float]]] = {}
    for run in setting.runs:
        xs = axis(run)
        values = [(i, value) for i, value in run.values(key) if numeric(value)]
        if key == "eval/success" and numeric(before := run.summary.get("validation_before/success")):
            values.insert(0, (0, before))
        for i, value in values:
            if i in xs:
                by_iteration.setdefault(i, []).append((xs[i], value))
    points, band = [], []
    for i in sorted(by_iteration):
        x, mean = (fmean(column) for column in zip(*by_iteration[i], strict=True))
        points.append((x, mean))
        if span := t_interval([value for _, value in by_iteration[i]], bounds):
            band.append((x, *span))
    return Series(setting.name, points, place % COLOURS, band=band, tag=tag(place))


def _union(names: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(name for each in names for name in each))
