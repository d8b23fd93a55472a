"""Run the missing runs of a sweep, then print its table: ``troupe sweep sweep=NAME [key=value ...]``.

Keys of the sweep itself: ``launcher=basic|joblib|submitit`` (``hydra.launcher.KEY=...`` configures it),
``runs=FOLDER``, ``rerun_stale=true``, ``dry_run=true`` (only print the missing runs).  Every other ``key=value`` is one
of ``troupe train`` and holds for all runs; ``key=a,b`` runs every setting with both.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hydra.errors import HydraException

from ..errors import ConfigError, visible
from ..runs.files import RunDirectoryError
from ..setup.composition import register
from ..sweep.launcher import launcher_of
from ..sweep.options import Options
from .main import loading

if TYPE_CHECKING:
    from ..sweep.record import SweepRecord
    from ..sweep.rows import SweepJob, TableRow


def announce(record: SweepRecord, jobs: Sequence[SweepJob], rows: Sequence[TableRow]) -> None:
    """Print the numbers of finished runs and of those to run."""
    finished, stale = (sum(bool(test(row)) for row in rows) for test in (_finished, _stale))
    hint = f" ({stale} of them stale: rerun_stale=true runs them again)" if stale else ""
    print(f"sweep {record.name}: {len(rows)} runs, {finished} finished{hint}, {len(jobs)} to run", flush=True)


def _finished(row: TableRow) -> bool:
    return row["status"] == "finished"


def _stale(row: TableRow) -> bool:
    return _finished(row) and bool(row["stale"])


def run(arguments: Sequence[str]) -> int:
    """The exit status: 0 where every run is finished.  Raises ``ValueError`` and ``HydraException`` before a start."""
    options, arguments = Options.split(arguments)
    hydra_overrides = [text for text in arguments if text.startswith("hydra")]
    arguments = [text for text in arguments if not text.startswith("hydra")]
    with loading():
        options.check(arguments)
        from ..api.training import train  # heavy, as the others, hence after the check
        from ..sweep.job import JobRunner
        from ..sweep.plan import plan_sweep
        from ..sweep.tables import write_tables
    record = plan_sweep(options, arguments)
    jobs = record.jobs_to_run(options.rerun_stale)
    if options.dry_run:
        announce(record, jobs, record.rows())
        print("\n".join(f"{job.setting}: {' '.join(job.overrides)}" for job in jobs))
        return 0
    runner = JobRunner(record.folder, options.rerun_stale, to_file=options.launcher != "basic", train=train)
    launcher = launcher_of(options.launcher, record.folder, runner, hydra_overrides, options.config_dir)
    record.write()
    announce(record, jobs, record.rows())
    try:
        if jobs:  # one that fails leaves its error, and does not stop the others
            launcher.launch([job.overrides for job in jobs], initial_job_idx=0)
    finally:  # also after an interrupt
        register()
        page, rows = write_tables(record.folder)
        print(f"\n{page}\n{record.folder}: table.md, runs.csv, settings.csv", flush=True)
    return 0 if all(map(_finished, rows)) else 1


def main(arguments: Sequence[str]) -> None:
    """``troupe sweep sweep=NAME key=value ...``."""
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return
    try:
        status = run(arguments)
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on from there")
    except (ConfigError, RunDirectoryError, HydraException) as error:
        sys.exit(f"error: {visible(error)}")
    sys.exit(status)
