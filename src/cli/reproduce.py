"""Reproduce a table of a publication: ``troupe reproduce table=NAME [scale=laptop|smollm2|paper] [key=value ...]``.

Runs what is missing of the table's sweeps, plays its teams, and writes ``runs/reproduce/NAME/SCALE/``: ``table.md``,
``table.csv``, ``verdicts.csv``, ``plot.svg``, ``cross_play.csv``, ``cross_play.svg`` and ``summary.jsonl``, with the
paper's figures beside ours.  A run of any sweep or training with the same configuration below ``runs`` counts as done;
Ctrl-C stops, the same command goes on.

``table=NAME`` (``all``: every one that has the scale; or a yaml's path), ``seeds=3`` (0 to 2) or ``seeds=0,4``,
``jobs=N`` runs at a time (default: by cores and memory), ``runs=FOLDER``, ``rerun_stale=true``, ``finished=FILE`` (runs
in this summary count as finished; several: ``FILE,FILE``, or their folder), ``dry_run=true`` (only print what is
missing, and its cost).  ``scale=paper`` only prints a plan with GPU-hours.  Every other ``key=value`` is one of
``troupe train`` and holds for all runs; the page then says so.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TextIO

from ..errors import visible
from ..runs.files import RunDirectoryError
from ..setup.composition import register
from ..sweep.reproduction.options import ReproduceOptions
from .main import loading
from .resumable import name_damaged, perform
from .sweep import announce_unanswering

if TYPE_CHECKING:
    from ..sweep.reproduction.cpu_hours import Cost
    from ..sweep.reproduction.plan import PartPlan, TablePlan
    from ..sweep.reproduction.results import TableResults
    from ..sweep.rows import SweepJob


def run(arguments: Sequence[str]) -> int:
    """The exit status: 0 where every run of every table is finished, or only a plan was asked for.  Raises
    ``ValueError`` and ``HydraException`` before a start."""
    options, words = ReproduceOptions.split(arguments)
    with loading():
        options.check(words)
        from ..sweep.reproduction.plan import plan_table  # heavy, as the others, hence after the check
    if options.scale == "paper":
        _print_paper(options, words)
        return 0
    name_damaged(Path(options.runs))
    if options.dry_run:
        _print_plans(options, words)
        return 0
    return 0 if all([_perform(plan_table(options, table, words), options) for table in options.tables]) else 1


def _print_paper(options: ReproduceOptions, words: Sequence[str]) -> None:
    """What the papers' scale would take; nothing is trained."""
    from ..sweep.reproduction.gpu_hours import (
        ASSUMED,
        FORMULA,
        TeamHours,
        gpu_hours,
        lines_of,
        run_hours,
        sum_of,
        team_hours,
    )
    from ..sweep.reproduction.plan import plan_table

    different: dict[str, float] = {}
    played = list[TeamHours]()
    for table in options.tables:
        plan = plan_table(options, table, words)
        print(f"{_title(plan)}: a plan, nothing is trained; {len(plan.seeds)} seeds")
        teams = [team for part in plan.parts for team in team_hours(part)]
        print("\n".join(lines_of([cost for part in plan.parts for cost in gpu_hours(part)], teams)), flush=True)
        played += teams
        configs = [pair for part in plan.parts for pair in part.configs.items()]
        different |= {training: run_hours(config) for training, config in configs}
    if len(options.tables) > 1:
        total = sum_of(len(different), sum(different.values()), played)
        print(f"runs that several tables share counted once: {total}")
    print(f"{FORMULA}\n{ASSUMED}", flush=True)


def _print_plans(options: ReproduceOptions, words: Sequence[str]) -> None:
    """What is missing, and its cost; of several tables in all."""
    from ..sweep.reproduction.cpu_hours import Cost
    from ..sweep.reproduction.plan import plan_table

    total = Cost()
    for table in options.tables:
        total += _print_plan(plan_table(options, table, words), options)
    if len(options.tables) > 1:
        print(f"all tables, runs that several of them share counted once: {len(total.hours)} missing runs, {total}")


def _print_plan(plan: TablePlan, options: ReproduceOptions) -> Cost:
    """What is missing, and its cost by earlier runs."""
    from ..sweep.reproduction.cpu_hours import cost_of
    from ..sweep.reproduction.teams import cells_of

    missing = {part.name: part.record.jobs_to_run(options.rerun_stale) for part in plan.parts}
    for part in plan.parts:
        print(_numbers(plan, part, len(missing[part.name])))
        print("\n".join(_by_setting(missing[part.name])))
        if cells := len(cells_of(part)):
            print(f"  and {cells} evaluations of teams of finished runs")
    cost = cost_of(plan, missing)
    print(f"cost of the missing runs: {cost}, {options.jobs_of(plan.table)} at a time", flush=True)
    return cost


def _by_setting(jobs: Sequence[SweepJob]) -> list[str]:
    """One line per setting: its overrides and the missing seeds."""
    seeds: dict[str, list[str]] = {}
    for job in jobs:  # the seed comes last
        seeds.setdefault(f"  {job.setting}: {' '.join(job.overrides[:-1])}", []).append(str(job.seed))
    return [f"{line} seed={','.join(own)}" for line, own in seeds.items()]


def _perform(plan: TablePlan, options: ReproduceOptions) -> bool:
    """Run what is missing, and write the results, also after an interrupt; whether everything is finished."""
    from ..sweep.reproduction.page import write_results
    from ..sweep.reproduction.progress import Progress, TeamProgress, shown
    from ..sweep.reproduction.results import TableResults
    from ..sweep.reproduction.teams import Cell, cells_of, play_teams
    from .several_evaluations import play

    jobs, cells, failed, earlier = options.jobs_of(plan.table), list[Cell](), 0, _earlier(plan)
    announce_unanswering([part.record for part in plan.parts])
    say = partial(_say, sys.stdout)  # a run in this process has the output in its file meanwhile
    evaluate = partial(play, jobs=jobs, config_dir=options.config_dir)
    teams = TeamProgress(sum(len(cells_of(part)) for part in plan.parts))
    then = f", then {teams.total} teams of finished runs" if teams.total else ""
    print(f"{_title(plan)}: {jobs} runs at a time{then}", flush=True)
    try:
        with shown(Progress(plan, jobs), say):
            for part in plan.parts:
                _train(plan, part, options, jobs)
        with shown(teams, say) if teams.total else nullcontext():
            for part in plan.parts:
                for cell in play_teams(part, evaluate, say):
                    cells.append(cell)  # one by one: an interrupt keeps those that were played
                    teams.add()
    finally:  # also after an interrupt
        register()
        results = TableResults.of(plan, cells, earlier)
        page = write_results(results, plan.folder)
        failed = sum(row["status"] != "finished" for row in results.rows)
        print(f"\n{visible(page)}\n{plan.folder}: {', '.join(_written(plan.folder))}", flush=True)
        for row in (row for row in results.runs if row["status"] == "failed"):
            print(f"failed: {row['part']}, {row['setting']}, seed {row['seed']}: {visible(row['note'])}", flush=True)
    return not failed


def _written(folder: Path) -> list[str]:
    """The files of a table's results that are in its folder."""
    names = "table.md table.csv verdicts.csv plot.svg cross_play.csv cross_play.svg summary.jsonl".split()
    return [name for name in names if (folder / name).is_file()]


def _earlier(plan: TablePlan) -> TableResults | None:
    """The results of the last time, whose cells an interrupt keeps; None where there are none."""
    from ..sweep.reproduction.overview import SUMMARY
    from ..sweep.reproduction.results import TableResults

    file = plan.folder / SUMMARY
    try:
        return TableResults.earlier(file, plan.table) if file.is_file() else None
    except RunDirectoryError as error:
        _say(sys.stdout, f"{error}. It is written anew.")
        return None


def _train(plan: TablePlan, part: PartPlan, options: ReproduceOptions, jobs: int) -> None:
    """The missing runs of one part, each with its output in a file."""
    from ..api.training import train
    from ..sweep.job import JobRunner
    from ..sweep.launcher import launcher_of

    record = part.record
    record.write()  # also where nothing is missing: a report reads it
    missing = record.jobs_to_run(options.rerun_stale)
    if not missing:
        return
    _say(sys.stdout, _numbers(plan, part, len(missing)))
    runner = JobRunner(record.folder, options.rerun_stale, to_file=True, train=train, local=True)
    many = min(jobs, len(missing)) > 1
    words = [f"hydra.launcher.n_jobs={jobs}"] if many else []
    launcher = launcher_of("joblib" if many else "basic", record.folder, runner, words, options.config_dir)
    launcher.launch([job.overrides for job in missing], initial_job_idx=0)
    register()


def _numbers(plan: TablePlan, part: PartPlan, missing: int) -> str:
    count = len(part.record.jobs)
    return f"{plan.table.name}, {part.name}: {count} runs, {count - missing} finished, {missing} to run"


def _title(plan: TablePlan) -> str:
    return f"table {plan.table.name} at scale {plan.scale}"


def _say(stream: TextIO, text: str) -> None:
    print(visible(text), file=stream, flush=True)


def main(arguments: Sequence[str]) -> NoReturn:
    """``troupe reproduce table=NAME key=value ...``."""
    perform(run, arguments, __doc__)
