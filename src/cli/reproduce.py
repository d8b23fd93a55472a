"""Reproduce a table of a publication: ``troupe reproduce table=NAME [scale=laptop|smollm2|paper] [key=value ...]``.

Runs what is missing of the table's sweeps, plays its teams, and writes ``runs/reproduce/NAME/SCALE/``: ``table.md``,
``table.csv``, ``verdicts.csv``, ``summary.jsonl`` and a chart, with the paper's figures beside ours.
A run of any sweep or training with the same configuration below ``runs`` counts as done; Ctrl-C stops, the same command
goes on.

``table=NAME`` (``all``: every one that has the scale; or a yaml's path), ``seeds=3`` (0 to 2) or ``seeds=0,4``,
``jobs=N`` runs at a time (default: by cores and memory), ``runs=FOLDER``, ``rerun_stale=true``, ``finished=FILE`` (runs
in this summary count as finished; several: ``FILE,FILE``, or their folder), ``dry_run=true`` (only print what is
missing, and its cost).  ``scale=paper`` only prints that.  Every other ``key=value`` is one of ``troupe train`` and
holds for all runs; the page then says so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

from ..errors import number_of, visible
from ..sweep.options import Options
from .main import loading
from .sweep import missing_lines, name_damaged, name_unanswering, perform, train_missing

if TYPE_CHECKING:
    from ..sweep.plan import PartPlan, TablePlan
    from ..sweep.rows import SweepJob


def run(arguments: Sequence[str]) -> int:
    """The exit status: 0 where every run of every table is finished, or only a plan was asked for.  Raises
    ``ValueError`` and ``HydraException`` before a start."""
    options, words = Options.split("reproduce", arguments)
    tables = options.tables()
    with loading():
        part = next(iter(tables[0].parts_at(options.scale).values()))
        options.check(tables[0].settings_at(options.scale, part), tables[0].overrides_at(options.scale, part), words)
        from ..sweep.plan import plan_table  # heavy, hence after the check
    name_damaged(Path(options.runs))
    plans = [plan_table(options, table, words) for table in tables]
    if options.dry_run or options.scale == "paper":
        _print_plans(plans, options)
        return 0
    return 0 if all([_perform(plan, options) for plan in plans]) else 1


def _print_plans(plans: Sequence[TablePlan], options: Options) -> None:
    """What is missing, and its cost by earlier runs; of several tables in all."""
    from ..sweep.record import cost_text, hours_of
    from ..sweep.teams import cells_of

    hours: dict[str, float | None] = {}
    missing: dict[str, SweepJob] = {}
    for plan in plans:
        own: dict[str, SweepJob] = {}
        for part in plan.parts:
            jobs = part.record.jobs_to_run(options.rerun_stale)
            hours |= hours_of(jobs, [part.record])
            own |= {job.training: job for job in jobs}
            print("\n".join([_numbers(plan, part, len(jobs)), *missing_lines(jobs, hours)]))
            if cells := len(cells_of(part)):
                print(f"  and {number_of(cells, 'evaluation')} of teams of finished runs")
        print(f"{_title(plan)}: missing {cost_text(list(own.values()), hours)}", flush=True)
        missing |= own
    if len(plans) > 1:
        print(f"all tables, runs that several of them share counted once: {cost_text(list(missing.values()), hours)}")


def _perform(plan: TablePlan, options: Options) -> bool:
    """Run what is missing, and write the results, also after an interrupt; whether everything is finished."""
    from ..sweep.page import write_results
    from ..sweep.publication_results import TableResults
    from ..sweep.teams import Cell, cells_of, play_teams
    from .several_evaluations import play

    jobs, cells = options.jobs_of(plan.table), list[Cell]()
    records = [part.record for part in plan.parts]
    name_unanswering(records)
    say = partial(_say, sys.stdout)  # a run in this process has the output in its file meanwhile
    evaluate = partial(play, jobs=jobs, config_dir=options.config_dir)
    teams = sum(len(cells_of(part)) for part in plan.parts)
    then = f", then {number_of(teams, 'team')} of finished runs" if teams else ""
    print(f"{_title(plan)}: {number_of(jobs, 'run')} at a time{then}", flush=True)
    try:
        for part in plan.parts:
            _train(plan, part, options, jobs, say)
        for part in plan.parts:
            for cell in play_teams(part, evaluate, say):
                cells.append(cell)  # one by one: an interrupt keeps those that were played
    finally:
        # After an interrupt too, but for teams that were not come to, which an earlier table may have.
        if len(cells) == teams or not (plan.folder / "summary.jsonl").is_file():
            results = TableResults.of(plan, cells)
            page = write_results(results, plan.folder)
            files = sorted(path.name for path in plan.folder.iterdir() if path.is_file())
            print(f"\n{visible(page)}\n{plan.folder}: {', '.join(files)}", flush=True)
            for row in (row for row in results.runs if row["status"] == "failed"):
                print(
                    f"failed: {row['part']}, {row['setting']}, seed {row['seed']}: {visible(row['note'])}", flush=True
                )
    return all(row["status"] == "finished" for row in results.rows)


def _train(plan: TablePlan, part: PartPlan, options: Options, jobs: int, say: Callable[[str], None]) -> None:
    """The missing runs of one part, each with its output in a file."""
    missing = part.record.jobs_to_run(options.rerun_stale)
    if missing:
        say(_numbers(plan, part, len(missing)))
    many = min(jobs, len(missing)) > 1
    words = [f"hydra.launcher.n_jobs={jobs}"] if many else []
    train_missing(part.record, missing, options, "joblib" if many else "basic", words, to_file=True)


def _numbers(plan: TablePlan, part: PartPlan, missing: int) -> str:
    count = len({job.training for job in part.record.jobs})  # settings that are one run are one
    return f"{plan.table.name}, {part.name}: {number_of(count, 'run')}, {count - missing} finished, {missing} to run"


def _title(plan: TablePlan) -> str:
    return f"table {plan.table.name} at scale {plan.scale}"


def _say(stream: TextIO, text: str) -> None:
    print(visible(text), file=stream, flush=True)


def main(arguments: Sequence[str]) -> NoReturn:
    """``troupe reproduce table=NAME key=value ...``."""
    perform(run, arguments, __doc__)
