"""`python -m troupe.cli.sweep sweep=NAME [key=value ...]`: run what is missing of a sweep, then print its table.

Keys of the sweep itself: ``launcher=basic|joblib|submitit`` (how runs are started; ``hydra.launcher.KEY=...`` sets it
up), ``runs=FOLDER``, ``rerun_stale=true``, ``dry_run=true`` (say what would run).  Every other ``key=value`` is that of
``troupe`` and holds for all runs; ``key=a,b`` runs every setting with both.

Hydra's launchers start the runs.  Its ``--multirun`` is not used for three reasons: it knows products of overrides
only, and settings are not one (a single agent has another algorithm than a team); it would start a job, on a cluster
wait in a queue, for every run that is already there; and it ends with the first failed run's error, without a table.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from hydra._internal.callbacks import Callbacks
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, RunMode

from ..errors import ConfigError
from ..runs.directory import RunDirectoryError
from ..setup.composition import configurations, register
from ..sweep.job import JobRunner
from ..sweep.plan import LAUNCHERS, Options, plan
from ..sweep.record import SweepRecord
from ..sweep.rows import Job, Row
from ..sweep.tables import write_tables
from .train import train


def missing(record: SweepRecord, rerun_stale: bool) -> list[Job]:
    """The jobs that have something to do, each training once."""
    jobs: dict[str, Job] = {}
    for job, run in zip(record.jobs, record.found(), strict=True):
        if run is None or record.owed(run) or (rerun_stale and run.stale(job.evaluation)):
            jobs.setdefault(job.training, job)
    return list(jobs.values())


def launcher_of(record: SweepRecord, options: Options, launcher_overrides: Sequence[str]) -> Launcher:
    """Hydra's launcher, ready for jobs.  Raises ``HydraException`` where an override of ``hydra`` is wrong."""
    runner = JobRunner(record.folder, options.rerun_stale, to_file=options.launcher != "basic", train=train)
    overrides = [f"hydra/launcher={LAUNCHERS[options.launcher]}", f"hydra.sweep.dir='{record.folder}'"]
    with configurations():
        hydra = GlobalHydra.instance().hydra
        assert hydra is not None  # initialize_config_module has set it
        master = hydra.compose_config(
            "train", [*overrides, "hydra.sweep.subdir=.", *launcher_overrides], RunMode.MULTIRUN
        )
        context = HydraContext(config_loader=hydra.config_loader, callbacks=Callbacks())
        return Plugins.instance().instantiate_launcher(context, runner, master)


def announce(record: SweepRecord, jobs: Sequence[Job], rows: Sequence[Row]) -> None:
    """What there is and what will run."""
    finished, stale = (sum(bool(test(row)) for row in rows) for test in (_finished, _stale))
    hint = f" ({stale} of them stale: rerun_stale=true runs them again)" if stale else ""
    print(f"sweep {record.name}: {len(rows)} runs, {finished} finished{hint}, {len(jobs)} to run", flush=True)


def _finished(row: Row) -> bool:
    return row["status"] == "finished"


def _stale(row: Row) -> bool:
    return _finished(row) and bool(row["stale"])


def run(arguments: Sequence[str]) -> int:
    """The exit status: 0 where every run is finished.  Raises ``ValueError`` and ``HydraException`` before a start."""
    options, rest = Options.split(arguments)
    launcher_overrides = [one for one in rest if one.startswith("hydra")]
    record = plan(options, [one for one in rest if not one.startswith("hydra")])
    jobs = missing(record, options.rerun_stale)
    if options.dry_run:
        announce(record, jobs, record.rows())
        print("\n".join(f"{job.setting}: {' '.join(job.overrides)}" for job in jobs))
        return 0
    launcher = launcher_of(record, options, launcher_overrides)
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


def main() -> None:
    try:
        status = run(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit("interrupted; the same command goes on from there")
    except (ConfigError, RunDirectoryError, HydraException) as error:
        sys.exit(f"error: {error}")
    sys.exit(status)


if __name__ == "__main__":
    main()
