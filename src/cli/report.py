"""Write a run's report.html again from the files of its directory, or one page about several runs.

DIR is a run directory, the folder of a sweep or of a reproduced table, or a folder with runs below it.  Of one run
directory the page is its report.html; of one sweep or table, report.html in its folder; else runs.html in the folder in
which the command runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import DiskFullError, no_folder, number_of, visible
from ..runs.files import CONFIG, REPORT, SWEEP, RunDirectoryError
from ..runs.index import find_runs
from .main import loading

if TYPE_CHECKING:
    from ..reports.comparison import RunsPage
    from ..runs.tables import PlainTable

PAGE = "runs.html"


def main(arguments: Sequence[str]) -> None:
    """``troupe report DIR [DIR ...] [--out FILE]``."""
    parser = argparse.ArgumentParser(
        "troupe report", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "folders", metavar="DIR", type=Path, nargs="+", help="run directories, sweeps, tables, folders of runs"
    )
    parser.add_argument("--out", metavar="FILE", type=Path, help="the page about several runs")
    options = parser.parse_args(arguments)
    folders: list[Path] = options.folders
    try:
        if len(folders) == 1 and not _holds_several(folders[0]):
            if options.out is not None:
                sys.exit("error: --out is for several runs; the page of one is its report.html")
            print(_report(folders[0]))
        else:
            place = folders[0] / REPORT if len(folders) == 1 and _is_sweep(folders[0]) else Path(PAGE)
            print(_comparison(folders, options.out or place))
    except (RunDirectoryError, DiskFullError) as error:
        sys.exit(f"error: {visible(error)}")


def _holds_several(folder: Path) -> bool:
    if (folder / CONFIG).is_file() or not folder.is_dir():
        return False
    return _is_sweep(folder) or next(find_runs(folder), None) is not None


def _is_sweep(folder: Path) -> bool:
    """Whether it is the folder of a sweep, or of a reproduced table, whose parts are sweeps."""
    return (folder / SWEEP).is_file() or any(folder.glob(f"parts/*/{SWEEP}"))


def _report(folder: Path) -> Path:
    """The page about the run in ``folder``; what could not be read is printed, too."""
    from ..reports.report import write_report

    problems: list[str] = []
    file = write_report(folder, problems)
    _print_problems(problems)
    return file


def _print_problems(problems: Sequence[str]) -> None:
    for problem in problems:
        print(visible(problem), file=sys.stderr)


def _comparison(folders: Sequence[Path], file: Path) -> Path:
    """The page about the runs of ``folders``; what is missing or left out is printed, too."""
    with loading():
        from ..reports.comparison import write_comparison  # scipy, which takes a second
    content = gather(folders)
    _print_problems(content.problems)
    return write_comparison(content, file)


def gather(folders: Sequence[Path]) -> RunsPage:
    """What the page shows.  Settings of sweeps have their names there, a reproduced table is the sweeps of its parts;
    other runs are one setting where they differ in their seed alone.

    Raises :class:`~troupe.runs.files.RunDirectoryError` for a folder that is not there, and where no run is left.
    """
    from ..reports.comparison import RunsPage, problems_of, read_run
    from ..reports.grouping import Setting, settings_of
    from ..sweep.overview import Overview, parts_of

    for folder in (folder for folder in folders if not folder.is_dir()):
        raise RunDirectoryError(f"{folder}: {no_folder(folder)}")
    places = [place for folder in folders for place in parts_of(folder) or [folder]]
    problems: list[str] = []
    sweeps: list[Overview] = []
    for place in (place for place in places if (place / SWEEP).is_file()):
        try:
            sweeps.append(Overview.of_sweep(place))
        except RunDirectoryError as error:
            problems.append(f"{error}. The sweep is left out.")
    settings: list[Setting] = []
    tables: list[PlainTable] = []
    for overview in sweeps:
        group = overview.name if len(sweeps) > 1 else ""
        prefix = f"{group}: " if group else ""
        problems += [prefix + problem for problem in overview.problems]
        tables += [replace(table, title=prefix + table.title) for table in overview.tables]
        for name, own in overview.settings.items():
            settings.append(Setting(prefix + name, tuple(map(read_run, own)), group))
    names = [overview.name for overview in sweeps]
    runs_alone = _runs([place for place in places if not _is_sweep(place)], problems)
    others, left_out = settings_of(map(read_run, runs_alone), titled=not names)
    settings += others
    if not settings:
        raise RunDirectoryError("; ".join([*problems, "no run is left to show"]))
    questions = dict.fromkeys(filter(None, (overview.question for overview in sweeps)))
    runs = [run for setting in settings for run in setting.runs]
    experiments = {str(run.config.get("name", "")) for run in runs}
    title = "; ".join(names or (experiments if len(experiments) == 1 else ())) or number_of(len(runs), "run")
    problems += [*left_out, *problems_of(settings)]
    return RunsPage(title, settings, " ".join(questions), tables, problems)


def _runs(places: Sequence[Path], problems: list[str]) -> list[Path]:
    """The runs in and below ``places``, each once; ``problems`` receives a sentence about each place without one."""
    paths: dict[Path, Path] = {}
    for place in places:
        below = [place] if (place / CONFIG).is_file() else [run.path for run in find_runs(place)]
        if not below:
            problems.append(f"{place} holds no run: {CONFIG} is missing. It is left out.")
        paths |= {path.resolve(): path for path in below if path.resolve() not in paths}
    return list(paths.values())
