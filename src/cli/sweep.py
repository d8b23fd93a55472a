"""Run the missing runs of a sweep, then print its table: ``troupe sweep sweep=NAME [key=value ...]``.

Keys of the sweep itself: ``launcher=basic|joblib|submitit`` (``hydra.launcher.KEY=...`` configures it),
``runs=FOLDER``, ``rerun_stale=true``, ``dry_run=true`` (only print the missing runs and what they will cost),
``sealed=true`` (play the sealed test tasks, once all runs are finished), ``finished=FILE`` (runs in the summary FILE of
an earlier sweep count as finished; several: ``FILE,FILE``, or their folder).  Every other ``key=value`` is one of
``troupe train`` and holds for all runs; ``key=a,b`` runs every setting with both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ..sweep.options import Options
from .main import loading

if TYPE_CHECKING:
    from ..sweep.record import SweepRecord
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from hydra.errors import HydraException

from ..errors import ConfigError, number_of, visible
from ..runs.files import SWEEP, RunDirectoryError
from ..runs.index import readable_runs
from ..setup.composition import register
from ..sweep.launcher import launcher_of

if TYPE_CHECKING:
    from ..sweep.record import SweepRecord
    from ..sweep.rows import SweepJob


def run(arguments: Sequence[str]) -> int:
    """The exit status: 0 where every run is finished.  Raises ``ValueError`` and ``HydraException`` before a start."""
    options, arguments = Options.split("sweep", arguments)
    file = options.file()
    hydra_overrides = [text for text in arguments if text.startswith("hydra")]
    arguments = [text for text in arguments if not text.startswith("hydra")]
    with loading():
        options.check(file.settings, file.overrides, arguments)
        from ..sweep.plan import choices, plan_sweep, plan_tuning  # heavy, as the others, hence after the check
    name_damaged(Path(options.runs))
    chosen, untuned = None, False
    records: list[SweepRecord] = []
    if file.tuning is not None and (tuning := plan_tuning(options, arguments)) is not None:
        untuned, records = not _perform(tuning, options, hydra_overrides, [tuning]), [tuning]
        chosen = choices(tuning, file.tuning.grid)
        for setting in file.settings:
            print(f"{setting}: {' '.join(chosen[setting]) if setting in chosen else 'not tuned yet'}", flush=True)
        if options.dry_run:  # what is not tuned yet is counted at the grid's first point
            first = [f"{key}={values[0]}" for key, values in file.tuning.grid.items()]
            chosen = dict.fromkeys(file.settings, first) | chosen
        elif not chosen:
            return 1
    if options.dry_run:  # which plays nothing
        options = replace(options, sealed=False)
    record = plan_sweep(options, arguments, chosen)
    name_unanswering([record, *records])
    return 0 if _perform(record, options, hydra_overrides, [record, *records]) and not untuned else 1


def _perform(
    record: SweepRecord, options: Options, hydra_overrides: Sequence[str], measurable: Sequence[SweepRecord]
) -> bool:
    """Run what is missing of ``record`` and print its tables; whether every run is finished.  With ``dry_run`` say what
    would run, and what it would cost by the runs of the ``measurable`` sweeps.
    """
    from ..sweep.page import write_tables
    from ..sweep.record import cost_text, hours_of

    jobs, rows = record.jobs_to_run(options.rerun_stale), record.rows()
    finished = [row for row in rows if row["status"] == "finished"]
    stale = sum(bool(row["stale"]) for row in finished)
    hint = f" ({stale} of them stale: rerun_stale=true runs them again)" if stale else ""
    print(
        f"sweep {record.name}: {number_of(len(rows), 'run')}, {len(finished)} finished{hint}, {len(jobs)} to run",
        flush=True,
    )
    if options.dry_run:
        hours = hours_of(jobs, measurable)
        print("\n".join([*missing_lines(jobs, hours), f"in all {cost_text(jobs, hours)}"]), flush=True)
        return True
    try:
        train_missing(record, jobs, options, options.launcher, hydra_overrides, options.launcher != "basic")
    finally:  # also after an interrupt
        if (record.folder / SWEEP).is_file():
            page, rows = write_tables(record.folder)
            print(f"\n{page}\n{record.folder / 'table.md'}; charts and CSV are beside it", flush=True)
    return all(row["status"] == "finished" for row in rows)


def main(arguments: Sequence[str]) -> NoReturn:
    """``troupe sweep sweep=NAME key=value ...``."""
    perform(run, arguments, __doc__)


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
