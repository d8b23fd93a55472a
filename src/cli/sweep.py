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
from .resumable import missing_lines, name_damaged, name_unanswering, perform, train_missing

if TYPE_CHECKING:
    from ..sweep.record import SweepRecord


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
    print(f"sweep {record.name}: {len(rows)} runs, {len(finished)} finished{hint}, {len(jobs)} to run", flush=True)
    if options.dry_run:
        hours = hours_of(jobs, measurable)
        print("\n".join([*missing_lines(jobs, hours), f"in all {cost_text(jobs, hours)}"]), flush=True)
        return True
    try:
        train_missing(record, jobs, options, options.launcher, hydra_overrides, options.launcher != "basic")
    finally:  # also after an interrupt
        if (record.folder / "sweep.json").is_file():
            page, rows = write_tables(record.folder)
            print(f"\n{page}\n{record.folder / 'table.md'}; charts and CSV are beside it", flush=True)
    return all(row["status"] == "finished" for row in rows)


def main(arguments: Sequence[str]) -> NoReturn:
    """``troupe sweep sweep=NAME key=value ...``."""
    perform(run, arguments, __doc__)
