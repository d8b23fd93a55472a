"""Write a run's report.html again from the files of its directory, or one page about several runs.

DIR is a run directory, the folder of a sweep, or a folder with runs below it.  Of one run directory the page is its
report.html; of one sweep, report.html in its folder; else runs.html in the folder in which the command runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import DiskFullError, visible
from ..runs.files import CONFIG, REPORT, RunDirectoryError
from ..runs.index import find_runs
from .main import loading

if TYPE_CHECKING:
    from ..reports.comparison import RunsPage

PAGE = "runs.html"
SWEEP = "sweep.json"


def main(arguments: Sequence[str]) -> None:
    """``troupe report DIR [DIR ...] [--out FILE]``."""
    parser = argparse.ArgumentParser(
        "troupe report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", metavar="DIR", type=Path, nargs="+", help="run directories, sweeps, folders of runs")
    parser.add_argument("--out", metavar="FILE", type=Path, help="the page about several runs")
    options = parser.parse_args(arguments)
    folders: list[Path] = options.folders
    try:
        if len(folders) == 1 and not _holds_several(folders[0]):
            if options.out is not None:
                sys.exit("error: --out is for several runs; the page of one is its report.html")
            print(_report(folders[0]))
        else:
            place = folders[0] / REPORT if len(folders) == 1 and (folders[0] / SWEEP).is_file() else Path(PAGE)
            print(_comparison(folders, options.out or place))
    except (RunDirectoryError, DiskFullError) as error:
        sys.exit(f"error: {visible(error)}")


def _holds_several(folder: Path) -> bool:
    if (folder / CONFIG).is_file() or not folder.is_dir():
        return False
    return (folder / SWEEP).is_file() or next(find_runs(folder), None) is not None


def _report(folder: Path) -> Path:
    from ..reports.report import write_report

    return write_report(folder)


def _comparison(folders: Sequence[Path], file: Path) -> Path:
    """The page about the runs of ``folders``; what is left out of it is printed, too."""
    with loading():
        from ..reports.comparison import write_comparison  # scipy, which takes a second
    content = gather(folders)
    for problem in content.problems:
        print(visible(problem), file=sys.stderr)
    return write_comparison(content, file)


def gather(folders: Sequence[Path]) -> RunsPage:
    """What the page shows.  Settings of sweeps have their names there; other runs are one setting where they differ in
    their seed alone.

    Raises :class:`~troupe.runs.files.RunDirectoryError` for a folder that is not there, and where no run is left.
    """
    from ..reports.comparison import PlainTable, RunsPage, read_run
    from ..reports.settings import Setting, one_per_seed, settings_of
    from ..sweep.overview import SweepOverview

    settings: list[Setting] = []
    tables: list[PlainTable] = []
    problems: list[str] = []
    questions: list[str] = []
    paths: dict[Path, Path] = {}
    sweeps = [folder for folder in folders if (folder / SWEEP).is_file()]
    for folder in folders:
        if not folder.is_dir():
            raise RunDirectoryError(f"{folder}: {'it is a file' if folder.is_file() else 'there is no such folder'}")
        if folder in sweeps:
            overview = SweepOverview.of(folder)
            prefix = f"{overview.name}: " if len(sweeps) > 1 else ""
            problems += overview.problems
            questions += [overview.question] if overview.question else []
            tables += [PlainTable(prefix + t.title, t.heads, t.lines, t.note) for t in overview.tables]
            for name, own in overview.settings.items():
                setting, left_out = one_per_seed(prefix + name, [read_run(path) for path in own])
                settings.append(setting)
                problems += left_out
            continue
        below = [folder] if (folder / CONFIG).is_file() else [run.path for run in find_runs(folder)]
        if not below:
            problems.append(f"{folder} holds no run: {CONFIG} is missing. It is left out.")
        paths |= {path.resolve(): path for path in below if path.resolve() not in paths}
    others, left_out = settings_of(read_run(path) for path in paths.values())
    settings += others
    if not settings:
        raise RunDirectoryError("; ".join([*problems, "no run is left to show"]))
    title = ", ".join(SweepOverview.of(folder).name for folder in sweeps) if sweeps else ""
    count = sum(len(setting.runs) for setting in settings)
    return RunsPage(title or f"{count} runs", settings, " ".join(questions), tables, [*problems, *left_out])
