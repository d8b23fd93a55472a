"""Settings compared pair by pair on the same test tasks: seed by seed, task by task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import fmean

import numpy as np

from ..evaluation.comparison import PairedComparison, Results, compare
from ..evaluation.statistics import SHARE, hierarchical_estimate, holm, t_interval
from ..runs.run import RunReader
from ..runs.tables import PlainTable
from .charts import number, percent
from .grouping import Setting
from .values import score_of

MOST_SETTINGS = 5
"""Up to so many each is compared with each, beyond that with the first alone."""
NOTE = (
    "The same test tasks after training, subtracted seed by seed and task by task; 95 % interval of a hierarchical "
    "bootstrap over seeds and tasks, of one seed of a bootstrap over tasks. p: two-sided, of no difference, corrected "
    "by Holm for all differences here."
)


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
class Difference:
    """Success of ``second`` less that of ``first`` on the test tasks in common, over the seeds that both have; ``p`` of
    ``compared`` is corrected by Holm for all differences of the page.  None where nothing can be compared; ``note``
    says why, or what was left out.
    """

    first: str
    second: str
    compared: PairedComparison | None
    note: str = ""


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
        arrays = [np.array(list(each.values()), dtype=np.float64) for each in results]
        whole = all(each.size and not np.isnan(each).all() for each in arrays)
        estimate = hierarchical_estimate(arrays, crossed=crossed) if whole else None
        span = estimate.interval if estimate else t_interval(values, SHARE)
        if not whole:
            lacking = ", ".join(run.path.name for (run, _), each in zip(scored, arrays, strict=True) if not each.size)
            notes.append(f"interval over seeds alone: test episodes are missing ({lacking})")
    return Success(name, values, fmean(values), span, tuple(notes))


def differences(settings: Sequence[Setting]) -> list[Difference]:
    """Of each pair of ``settings`` of one group, or of its first with each other, where they are many."""
    groups: dict[str, list[Setting]] = {}
    for setting in settings:
        groups.setdefault(setting.group, []).append(setting)
    rows = [_difference(*pair) for own in groups.values() for pair in _pairs(own)]
    adjusted = iter(holm([row.compared.p for row in rows if row.compared and row.compared.p is not None]))
    return [
        replace(row, compared=replace(row.compared, p=next(adjusted)))
        if row.compared and row.compared.p is not None
        else row
        for row in rows
    ]


def differences_table(rows: Sequence[Difference]) -> PlainTable:
    """One line per pair; differences in points."""
    heads = ("difference", "points", "95 % interval", "of", "to", "seeds", "tasks", "p", "left out")
    lines = []
    for row in rows:
        name, compared = f"{row.second} less {row.first}", row.compared
        if compared is None:
            lines.append([name, "not compared", *[""] * 6, row.note])
            continue
        low, high = map(signed, compared.interval)
        figures = [signed(compared.difference), f"{low} to {high}", percent(compared.first), percent(compared.second)]
        counts = [str(compared.seeds), str(compared.tasks), "" if compared.p is None else number(compared.p)]
        lines.append([name, *figures, *counts, row.note])
    return PlainTable("Paired differences, task by task", heads, lines, NOTE)


def _pairs(settings: Sequence[Setting]) -> list[tuple[Setting, Setting]]:
    if len(settings) <= MOST_SETTINGS:
        return list(combinations(settings, 2))
    return [(settings[0], other) for other in settings[1:]]


def _difference(first: Setting, second: Setting) -> Difference:
    names = (first.name, second.name)
    if not (pairs := _runs(first, second)):
        return Difference(*names, None, "no seed in common")
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
            common.append(({task: a[task] for task in tasks}, {task: b[task] for task in tasks}))
    compared, note = compare(common), "; ".join(notes)
    return Difference(*names, compared, note or ("" if compared else "all episodes are lost"))


def _runs(first: Setting, second: Setting) -> list[tuple[object, RunReader, RunReader]]:
    """(Seed, run, run) of the seeds that both have; two single runs are a pair whatever their seeds."""
    if len(first.runs) == len(second.runs) == 1:
        a, b = first.runs[0], second.runs[0]
        seeds = dict.fromkeys(str(run.config.get("seed", "?")) for run in (a, b))
        return [(" and ".join(seeds), a, b)]
    others = second.by_seed
    return [(seed, run, others[seed]) for seed, run in first.by_seed.items() if seed in others]


def _results(run: RunReader, prefix: str = "eval") -> Results:
    """Of the test after training, or before it (``eval_before``); none where the run has no such episodes."""
    files = [file for file in run.episode_files.values() if file.split == "test" and file.iteration is not None]
    chosen = [file for file in files if (file.iteration == 0) == (prefix == "eval_before")]
    episodes = chosen[-1].episodes if chosen else []
    return {str(e["task_id"]): None if e.get("lost") else float(bool(e["success"])) for e in episodes}


def signed(share: float) -> str:
    """0.117 -> ``+11.7``, percentage points."""
    return f"{share * 100:+.1f}".replace("-", "−")
