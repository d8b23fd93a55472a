"""Run the missing runs of a sweep, then print its table: ``troupe sweep sweep=NAME [key=value ...]``.

Keys of the sweep itself: ``launcher=basic|joblib|submitit`` (``hydra.launcher.KEY=...`` configures it),
``runs=FOLDER``, ``rerun_stale=true``, ``dry_run=true`` (only print the missing runs and what they will cost),
``sealed=true`` (play the sealed test tasks, once all runs are finished), ``finished=FILE`` (runs in the summary FILE of
an earlier sweep count as finished; several: ``FILE,FILE``, or their folder), ``block=0,1`` (of the missing runs only
those of these seeds).  Every other ``key=value`` is one of ``troupe train`` and holds for all runs; ``key=a,b`` runs
every setting with both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ..setup.composition import register
from ..sweep.launcher import launcher_of
from ..sweep.options import Options
from .main import loading
from .resumable import name_damaged, perform

if TYPE_CHECKING:
    from ..sweep.cost import SettingCost
    from ..sweep.record import SweepRecord
    from ..sweep.rows import SweepJob, TableRow


def announce(record: SweepRecord, jobs: Sequence[SweepJob], rows: Sequence[TableRow]) -> None:
    """Print the numbers of finished runs and of those to run."""
    finished, stale = (sum(bool(test(row)) for row in rows) for test in (_finished, _stale))
    hint = f" ({stale} of them stale: rerun_stale=true runs them again)" if stale else ""
    block = f", in this block of seeds ({', '.join(map(str, record.block))})" if record.block else ""
    print(f"sweep {record.name}: {len(rows)} runs, {finished} finished{hint}, {len(jobs)} to run{block}", flush=True)


def announce_unanswering(records: Sequence[SweepRecord]) -> None:
    """Print which runs of ``finished=`` answer no job of any of ``records``: none is left out in silence."""
    from ..sweep.stored import stored_runs  # heavy

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
        from ..sweep.plan import plan_sweep, plan_tuning  # heavy, as the others, hence after the check
        from ..sweep.tuning import choices
    name_damaged(Path(options.runs))
    chosen, untuned, records = None, False, []
    if (tuning := plan_tuning(options, arguments)) is not None:
        file = options.file()
        assert file.tuning is not None  # a tuned sweep has it
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
    announce_unanswering([record, *records])
    return 0 if _perform(record, options, hydra_overrides, [record, *records]) and not untuned else 1


def _perform(
    record: SweepRecord, options: Options, hydra_overrides: Sequence[str], measurable: Sequence[SweepRecord]
) -> bool:
    """Run what is missing of ``record`` and print its tables; whether every run is finished, or every one of the block.
    With ``dry_run`` say what would run, and what it would cost by the runs of the ``measurable`` sweeps.
    """
    from ..api.training import train
    from ..sweep.cost import costs, measured
    from ..sweep.job import JobRunner
    from ..sweep.tables import write_tables

    jobs = record.jobs_to_run(options.rerun_stale)
    if options.dry_run:
        announce(record, jobs, record.rows())
        print("\n".join(f"{job.setting}: {' '.join(job.overrides)}" for job in jobs))
        print("\n".join(_cost_lines(costs(record, jobs, measured(measurable)))))
        return True
    to_file, local = options.launcher != "basic", options.launcher == "joblib"
    runner = JobRunner(record.folder, options.rerun_stale, to_file=to_file, train=train, local=local)
    launcher = launcher_of(options.launcher, record.folder, runner, hydra_overrides, options.config_dir)
    record.write()
    announce(record, jobs, record.rows())
    try:
        if jobs:  # one that fails leaves its error, and does not stop the others
            launcher.launch([job.overrides for job in jobs], initial_job_idx=0)
    finally:  # also after an interrupt
        register()
        page, rows = write_tables(record.folder)
        print(f"\n{page}\n{record.folder / 'table.md'}; curves and CSV are beside it", flush=True)
    return all(_finished(row) for row in rows if record.in_block(row["seed"]))


def _cost_lines(costs: Sequence[SettingCost]) -> list[str]:
    lines = []
    for cost in (each for each in costs if each.runs):
        source = "" if cost.own else " (measured on other settings)"
        hours = "nothing measured yet" if cost.hours is None else f"{cost.hours:.2f} CPU-hours{source}"
        lines.append(f"{cost.setting}: {cost.runs} runs, {hours}")
    known = [cost.hours for cost in costs if cost.hours is not None]
    return [*lines, f"in all {sum(known):.1f} CPU-hours"] if known and lines else lines


def main(arguments: Sequence[str]) -> NoReturn:
    """``troupe sweep sweep=NAME key=value ...``."""
    perform(run, arguments, __doc__)
