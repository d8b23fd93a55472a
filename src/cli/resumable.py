"""What ``sweep`` and ``reproduce`` have in common: an interrupt stops them and the same words continue; what is missing
is trained, or named with its cost."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from hydra.errors import HydraException

from ..errors import ConfigError, visible
from ..runs.files import RunDirectoryError
from ..runs.index import readable_runs
from ..setup.composition import register
from ..sweep.launcher import launcher_of
from ..sweep.options import Options

if TYPE_CHECKING:
    from ..sweep.record import SweepRecord
    from ..sweep.rows import SweepJob


def name_damaged(folder: Path) -> None:
    """Say on the standard error which runs below ``folder`` cannot be read: they count as missing."""
    for problem in readable_runs(folder)[1]:
        print(visible(problem), file=sys.stderr, flush=True)


def name_unanswering(records: Sequence[SweepRecord]) -> None:
    """Print which runs of ``finished=`` answer no job of any of ``records``: none is left out in silence."""
    from ..sweep.summary import stored_runs  # heavy

    missed = [{(run.file, run.path) for run in record.unanswering()} for record in records]
    for file in records[0].finished:
        runs = stored_runs(file)
        own = [run for run in runs if all((file, run.path) in each for each in missed)]
        if len(own) == len(runs):
            print(f"{file}: no run in it answers one of these", flush=True)
            continue
        for run in own:
            place = " ".join(str(word) for word in (run.row["setting"], run.row["variant"]) if word)
            print(f"{file}: {place}, seed {run.row['seed']}, answers no run: it was configured otherwise", flush=True)


def missing_lines(jobs: Sequence[SweepJob], hours: Mapping[str, float | None]) -> list[str]:
    """One line per setting: its overrides, the missing seeds, and what they cost."""
    from ..sweep.record import cost_text

    settings: dict[str, list[SweepJob]] = {}
    for job in jobs:  # the seed comes last
        settings.setdefault(f"  {job.setting}: {' '.join(job.overrides[:-1])}", []).append(job)
    return [
        f"{line} seed={','.join(str(job.seed) for job in own)}: {cost_text(own, hours)}"
        for line, own in settings.items()
    ]


def train_missing(
    record: SweepRecord, jobs: Sequence[SweepJob], options: Options, launcher: str, words: Sequence[str], to_file: bool
) -> None:
    """Train ``jobs`` of ``record`` by the ``launcher``, which Hydra's ``words`` configure; one that fails leaves its
    error, and does not stop the others."""
    from ..api.training import train
    from ..sweep.job import JobRunner

    local = launcher in ("basic", "joblib")
    runner = JobRunner(record.folder, options.rerun_stale, to_file, len(jobs), train, local)
    started = launcher_of(launcher, record.folder, runner, words, options.config_dir)
    record.write()
    try:
        if jobs:
            started.launch([job.overrides for job in jobs], initial_job_idx=0)
    finally:  # also after an interrupt
        register()


def perform(run: Callable[[Sequence[str]], int], arguments: Sequence[str], usage: str | None) -> NoReturn:
    """End the process with the exit status of ``run(arguments)``, or with one line where it was refused or interrupted;
    ``--help`` prints ``usage``."""
    if {"-h", "--help"} & set(arguments):
        print(usage)
        sys.exit(0)
    try:
        status = run(arguments)
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on from there")
    except (ConfigError, RunDirectoryError, HydraException) as error:
        sys.exit(f"error: {visible(error)}")
    sys.exit(status)
