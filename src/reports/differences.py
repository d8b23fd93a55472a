"""Settings compared pair by pair on the same test tasks: seed by seed, task by task."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

from ..errors import number_of
from ..evaluation.comparison import Results, compare
from ..evaluation.statistics import DIFFERENCE, SHARE, hierarchical_estimate, holm, t_interval
from ..runs.run import RunReader
from .charts import Chart, ChartDrawing, Series, draw, percent
from .grouping import Setting
from .values import episodes_of, score_of

MOST_SETTINGS = 5
"""Up to so many each is compared with each, beyond that with the first alone."""
MOST_WHISKERS = 60
"""Tasks whose intervals are drawn; of more they would cover each other."""
NEUTRAL = 7
"""The number of the page's colour for what is neither side's."""

Pairs = Mapping[str, tuple[float | None, float | None]]
"""The success of each task in two settings; None where its episode was lost."""


@dataclass(frozen=True)
class Success:
    """Success of a setting on the test tasks: of each of its ``seeds``, ``mean``, and its 95 % ``interval``, cut to
    [0, 1]: over seeds and tasks, of one seed Wilson's; None where it is not known.  ``name``: before or after training;
    ``notes``: what is not as in other rows.
    """

    name: str
    seeds: tuple[float, ...]
    mean: float
    interval: tuple[float, float] | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class TaskDifference:
    """Mean success on a task over ``seeds``, in both settings; ``interval``: of the difference, over seeds."""

    task_id: str
    first: float
    second: float
    seeds: int
    interval: tuple[float, float] | None

    @property
    def difference(self) -> float:
        return self.second - self.first

    @property
    def magnitude(self) -> float:
        return abs(self.difference)


@dataclass(frozen=True)
class Difference:
    """Success of ``second`` less that of ``first`` on ``tasks`` test tasks in common, over ``seeds`` pairs of runs,
    with its 95 % interval: over seeds and tasks, of one seed over tasks.  ``p`` is two-sided, corrected by Holm for all
    differences of the page.

    Where nothing can be compared, ``problem`` says why, and there are no figures.  ``note``: what was left out.
    """

    first: str
    second: str
    problem: str = ""
    note: str = ""
    seeds: int = 0
    tasks: int = 0
    means: tuple[float, float] = (0.0, 0.0)
    mean: float = 0.0
    interval: tuple[float, float] = (0.0, 0.0)
    p: float | None = None
    by_task: Sequence[TaskDifference] = ()
    chart: ChartDrawing | None = None
    colours: tuple[int, int] = (0, 0)
    counts: dict[str, int] = field(default_factory=dict)
    """Tasks on which the first is better, neither, and the second."""

    @property
    def whiskers(self) -> bool:
        """Whether the chart shows intervals of tasks."""
        return self.chart is not None and any(mark.whiskers for mark in self.chart.marks)


def success_of(setting: Setting, prefix: str, name: str) -> Success | None:
    """``prefix`` is ``eval_before`` or ``eval``; None where no run has it."""
    scored = [(run, score) for run in setting.runs if (score := score_of(run, prefix))]
    values = tuple(float(score.success) for _, score in scored)
    if not values:
        return None
    notes = []
    if len(values) < len(setting.runs):
        notes.append(f"{len(values)} of {len(setting.runs)} seeds")
    if any(score.counted for _, score in scored):
        notes.append("counted from episodes/, which summary.json lacks")
    if len(values) == 1:
        span = scored[0][1].interval
    else:
        results = [_results(run, prefix) for run, _ in scored]
        crossed = len({tuple(each) for each in results}) == 1
        arrays = [_array(each.values()) for each in results]
        whole = all(each.size and not np.isnan(each).all() for each in arrays)
        estimate = hierarchical_estimate(arrays, crossed=crossed) if whole else None
        span = estimate.interval if estimate else t_interval(values, SHARE)
        if not whole:
            lacking = ", ".join(run.path.name for (run, _), each in zip(scored, arrays, strict=True) if not each.size)
            notes.append(f"interval over seeds alone: test episodes are missing ({lacking})")
    return Success(name, values, fmean(values), span, tuple(notes))


def differences(settings: Sequence[Setting], colours: Sequence[int]) -> list[Difference]:
    """Of each pair of ``settings`` of one group, or of its first with each other, where they are many."""
    groups: dict[str, list[int]] = {}
    for place, setting in enumerate(settings):
        groups.setdefault(setting.group, []).append(place)
    pairs = [pair for own in groups.values() for pair in _compared(own)]
    rows = [_difference(settings[i], settings[j], (colours[i], colours[j])) for i, j in pairs]
    tested = [row.p for row in rows if row.p is not None]
    adjusted = iter(holm(tested))
    return [row if row.p is None else replace(row, p=next(adjusted)) for row in rows]


def _compared(places: Sequence[int]) -> list[tuple[int, int]]:
    if len(places) <= MOST_SETTINGS:
        return list(combinations(places, 2))
    return [(places[0], place) for place in places[1:]]


def _difference(first: Setting, second: Setting, colours: tuple[int, int]) -> Difference:
    names = (first.name, second.name)
    pairs = _pairs(first, second)
    if not pairs:
        return Difference(*names, problem="no seed in common", colours=colours)
    common, notes = [], []
    for seed, one, other in pairs:
        a, b = _results(one), _results(other)
        tasks = [task for task in a if task in b]
        missing = next((run for run, results in ((one, a), (other, b)) if not results), None)
        if missing is not None:
            notes.append(f"seed {seed} is left out: {missing.path.name} has no test episodes after training")
        elif not tasks:
            notes.append(f"seed {seed} is left out: the test tasks are others")
        else:
            if len(tasks) < max(len(a), len(b)):
                notes.append(f"seed {seed}: {len(tasks)} of {max(len(a), len(b))} tasks in common")
            common.append({task: (a[task], b[task]) for task in tasks})
    compared = compare(
        [({t: a for t, (a, _) in each.items()}, {t: b for t, (_, b) in each.items()}) for each in common]
    )
    if compared is None:
        return Difference(*names, problem="; ".join(notes) or "all episodes are lost", colours=colours)
    by_task = _by_task(common)
    counts = {
        "first": sum(task.difference < 0 for task in by_task),
        "neither": sum(task.difference == 0 for task in by_task),
        "second": sum(task.difference > 0 for task in by_task),
    }
    return Difference(
        *names,
        note="; ".join(notes),
        seeds=compared.seeds,
        tasks=compared.tasks,
        means=(compared.first, compared.second),
        mean=compared.difference,
        interval=compared.interval,
        p=compared.p,
        by_task=by_task,
        chart=_chart(names, by_task, colours),
        colours=colours,
        counts=counts,
    )


def _pairs(first: Setting, second: Setting) -> list[tuple[object, RunReader, RunReader]]:
    """(Seed, run, run) of the seeds that both have; two single runs are a pair whatever their seeds."""
    if len(first.runs) == len(second.runs) == 1:
        a, b = first.runs[0], second.runs[0]
        seeds = dict.fromkeys(str(run.config.get("seed", "?")) for run in (a, b))
        return [(" and ".join(seeds), a, b)]
    others = second.by_seed
    return [(seed, run, others[seed]) for seed, run in first.by_seed.items() if seed in others]


def _results(run: RunReader, prefix: str = "eval") -> Results:
    """Of the test after training, or before it; none where the run has no such episodes."""
    file = episodes_of(run, prefix)
    return {str(e["task_id"]): None if e.get("lost") else bool(e["success"]) for e in file.episodes} if file else {}


def _array(results: Iterable[float | None]) -> NDArray[np.float64]:
    return np.array([np.nan if value is None else float(value) for value in results])


def _by_task(pairs: Sequence[Pairs]) -> list[TaskDifference]:
    """From the task on which the first is most ahead to the one on which the second is, without lost ones."""
    rows, both = [], [{task: pair for task, pair in each.items() if None not in pair} for each in pairs]
    for task in dict.fromkeys(task for each in both for task in each):
        known = [(float(bool(a)), float(bool(b))) for each in both if task in each for a, b in [each[task]]]
        first, second = (fmean(each[side] for each in known) for side in (0, 1))
        span = t_interval([b - a for a, b in known], DIFFERENCE)
        rows.append(TaskDifference(task, first, second, len(known), span))
    return sorted(rows, key=lambda row: row.difference)


def _chart(names: tuple[str, str], by_task: Sequence[TaskDifference], colours: tuple[int, int]) -> ChartDrawing | None:
    """One dot per task, in the order of their differences, with its interval."""
    one, other = (f"{name} is better" for name in names)
    signs = {-1: (one, colours[0]), 0: ("neither", NEUTRAL), 1: (other, colours[1])}
    series = []
    for sign, (name, colour) in signs.items():
        places = [(x, task) for x, task in enumerate(by_task, 1) if np.sign(task.difference) == sign]
        spans = [(x, *t.interval) for x, t in places if t.interval]
        points = [(float(x), task.difference) for x, task in places]
        series.append(Series(name, points, colour, "dots", spans if len(by_task) <= MOST_WHISKERS else []))
    drawing = draw(Chart("", series, share=True, x_name="task", y_range=(-1.0, 1.0)))
    if drawing is None:
        return None
    step = max(1, -(-len(by_task) // 150))
    for hit, task in zip(drawing.hits, by_task[::step], strict=False):
        hit.tip = (
            f"{task.task_id}\n{names[0]}: {percent(task.first)}\n{names[1]}: {percent(task.second)}\n"
            f"difference {signed(task.difference)} points{f', {task.seeds} seeds' if task.seeds > 1 else ''}"
        )
    lowest, highest = signed(by_task[0].difference), signed(by_task[-1].difference)
    drawing.description = f"{number_of(len(by_task), 'task')}, from {lowest} to {highest} points"
    return drawing


def signed(share: float) -> str:
    """0.117 -> ``+11.7``, percentage points."""
    return f"{share * 100:+.1f}".replace("-", "−")
