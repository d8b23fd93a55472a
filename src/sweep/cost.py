"""What the missing runs of sweeps and tables will cost, by what earlier runs have cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from ..runs.index import readable_runs
from .record import SweepRecord
from .rows import SweepJob
from .stored import stored_runs


def hours_of(missing: Sequence[SweepJob], records: Sequence[SweepRecord]) -> dict[str, float | None]:
    """By training hash, the hours of CPU time of the ``missing`` runs: the completions of each, at the most, at the
    time per completion of the runs of its setting in ``records``, finished or not; of a setting without any at that of
    all of them; None where none was measured."""
    settings = {job.training: job.setting for record in records for job in record.jobs}
    rates: dict[str, list[float]] = {}
    for training, rate in _rates(records).items():
        if training in settings:
            rates.setdefault(settings[training], []).append(rate)
    everything = [rate for own in rates.values() for rate in own]
    return {
        job.training: job.completions * fmean(known) / 3600 if (known := rates.get(job.setting) or everything) else None
        for job in missing
    }


def _rates(records: Sequence[SweepRecord]) -> dict[str, float]:
    """By training hash, the CPU seconds per completion of the runs below the folders of ``records`` and in their
    summaries ``finished``; the seconds are those of evaluations, too."""
    spent: dict[str, tuple[Any, Any]] = {}
    for run in (run for file in {file for record in records for file in record.finished} for run in stored_runs(file)):
        spent[run.training_hash] = run.row.get("cpu_s"), run.row.get("completions")
    for each in (run for folder in {record.runs for record in records} for run in readable_runs(folder)[0]):
        spent[each.training_hash] = each.summary.get("time/cpu_s"), each.summary.get("train/completions")
    return {training: seconds / count for training, (seconds, count) in spent.items() if seconds and count}


def cost_text(jobs: Sequence[SweepJob], hours: Mapping[str, float | None]) -> str:
    """``4 runs, 1.20 CPU-hours``; of runs that nobody has measured the number of completions."""
    known = [own for job in jobs if (own := hours[job.training]) is not None]
    unknown = [job.completions for job in jobs if hours[job.training] is None]
    parts = [f"{len(jobs)} runs"] + ([f"{sum(known):.2f} CPU-hours"] if known else [])
    if unknown:
        some = f"{len(unknown)} of them" if known else "of which none was measured yet"
        parts.append(f"{some}: at most {max(unknown):,.0f} completions each")
    return ", ".join(parts)
