"""What the missing runs of a sweep will cost, by what earlier runs have cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ..runs.index import readable_runs
from .record import SweepRecord
from .rows import SweepJob
from .stored import stored_runs

BUDGET = "loop.completions="


@dataclass(frozen=True)
class SettingCost:
    """``runs`` of a setting are missing, and will take ``hours`` of CPU time in all; None where nothing was measured.
    ``own``: measured on runs of this setting, not on those of others.
    """

    setting: str
    runs: int
    hours: float | None
    own: bool


Measured = tuple[float, float]
"""The CPU seconds per completion of a run, and its completions; the seconds are those of evaluations, too."""


def measured_runs(records: Sequence[SweepRecord]) -> dict[str, Measured]:
    """By training hash, of the runs of ``records``, finished or not, and of those in their summaries ``finished``."""
    wanted = {job.training for record in records for job in record.jobs}
    spent: dict[str, tuple[Any, Any]] = {}
    for run in (run for file in {file for record in records for file in record.finished} for run in stored_runs(file)):
        spent[run.training_hash] = run.row.get("cpu_s"), run.row.get("completions")
    adopted = {job: own for record in records for job, (own, _) in record.adopted.items()}
    spent |= {job: spent[own] for job, own in adopted.items() if own in spent}
    for each in (run for folder in {record.runs for record in records} for run in readable_runs(folder)[0]):
        spent[each.training_hash] = each.summary.get("time/cpu_s"), each.summary.get("train/completions")
    return {
        training: (seconds / completions, completions)
        for training, (seconds, completions) in spent.items()
        if training in wanted and seconds and completions
    }


def measured(records: Sequence[SweepRecord]) -> dict[str, list[Measured]]:
    """:func:`measured_runs` by setting."""
    return by_setting(records, measured_runs(records))


def by_setting(records: Sequence[SweepRecord], runs: Mapping[str, Measured]) -> dict[str, list[Measured]]:
    """Those of ``runs`` that jobs of ``records`` have, by setting."""
    settings = {job.training: job.setting for record in records for job in record.jobs}
    result: dict[str, list[Measured]] = {}
    for training, setting in settings.items():
        if training in runs:
            result.setdefault(setting, []).append(runs[training])
    return result


def costs(
    record: SweepRecord, missing: Sequence[SweepJob], known: Mapping[str, Sequence[Measured]]
) -> list[SettingCost]:
    """By setting.  A run has the completions of its override ``loop.completions``; without one, as many as the runs
    that were measured."""
    everything = [pair for pairs in known.values() for pair in pairs]
    result = []
    for setting in dict.fromkeys(job.setting for job in record.jobs):
        jobs = [job for job in missing if job.setting == setting]
        own = known.get(setting, [])
        hours = sum(seconds_of(job, own or everything) for job in jobs) / 3600 if everything else None
        result.append(SettingCost(setting, len(jobs), hours, bool(own)))
    return result


def seconds_of(job: SweepJob, known: Sequence[Measured]) -> float:
    """The CPU seconds of a run like the ``known`` ones."""
    budgets = [float(text.removeprefix(BUDGET)) for text in job.overrides if text.startswith(BUDGET)]
    completions = budgets[-1] if budgets and budgets[-1] else fmean(count for _, count in known)
    return fmean(seconds for seconds, _ in known) * completions
