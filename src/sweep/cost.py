"""What the missing runs of a sweep will cost, by what earlier runs have cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ..runs.index import readable_runs
from .record import SweepRecord
from .rows import SweepJob

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


def measured(records: Sequence[SweepRecord]) -> dict[str, list[tuple[float, float]]]:
    """By setting, the CPU seconds per completion and the completions of each run of ``records``, finished or not; the
    seconds are those of evaluations, too."""
    settings = {job.training: job.setting for record in records for job in record.jobs}
    result: dict[str, list[tuple[float, float]]] = {}
    for run in (run for folder in {record.runs for record in records} for run in readable_runs(folder)[0]):
        setting, spent = settings.get(run.training_hash), run.summary.get("time/cpu_s")
        if setting and spent and (completions := run.summary.get("train/completions")):
            result.setdefault(setting, []).append((spent / completions, completions))
    return result


def costs(
    record: SweepRecord, missing: Sequence[SweepJob], known: Mapping[str, Sequence[tuple[float, float]]]
) -> list[SettingCost]:
    """By setting.  A run has the completions of its override ``loop.completions``; without one, as many as the runs
    that were measured."""
    everything = [pair for pairs in known.values() for pair in pairs]
    result = []
    for setting in dict.fromkeys(job.setting for job in record.jobs):
        jobs = [job for job in missing if job.setting == setting]
        own = known.get(setting, [])
        hours = sum(_seconds(job, own or everything) for job in jobs) / 3600 if everything else None
        result.append(SettingCost(setting, len(jobs), hours, bool(own)))
    return result


def _seconds(job: SweepJob, known: Sequence[tuple[float, float]]) -> float:
    budgets = [float(text.removeprefix(BUDGET)) for text in job.overrides if text.startswith(BUDGET)]
    completions = budgets[-1] if budgets and budgets[-1] else fmean(count for _, count in known)
    return fmean(seconds for seconds, _ in known) * completions
