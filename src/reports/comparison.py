"""Several runs as one page without other files: settings with their seeds, what differs in their configurations, their
curves, and the differences of their results, task by task.

As ``report.html`` it is made from the run directories' files alone, and loads nothing.  What is missing is named on the
page, and the rest is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import number_of
from ..runs.directory import write_atomic
from ..runs.files import FORMAT, FORMAT_KEY
from ..runs.run import RunReader
from ..runs.tables import PlainTable
from .bands import COLOURS, learning_curves, metric_curves, tag
from .differences import differences, differences_table, success_of
from .grouping import ABSENT, Setting, config_differences
from .page import SETTINGS_PAGE, render_page
from .values import duration, numeric, score_of


@dataclass(frozen=True)
class RunsPage:
    """What is shown: ``settings`` of tolerant runs, in their order; ``tables``, those of a sweep; ``problems``,
    sentences about what is missing.
    """

    title: str
    settings: Sequence[Setting]
    question: str = ""
    tables: Sequence[PlainTable] = ()
    problems: Sequence[str] = ()


def write_comparison(content: RunsPage, file: Path) -> Path:
    """Write the page to ``file``; its folder is made.  Returns ``file``."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(file, render(content))
    return file


def render(content: RunsPage) -> str:
    settings = content.settings
    different = config_differences(settings)
    pairs = differences(settings)
    return render_page(
        SETTINGS_PAGE,
        title=content.title,
        question=content.question,
        settings=[
            {"name": setting.name, "runs": setting.runs, "colour": place % COLOURS, "tag": tag(place)}
            for place, setting in enumerate(settings)
        ],
        facts=_facts(settings),
        versions=_versions(settings),
        problems=content.problems,
        successes=[
            [each for each in (success_of(s, "eval_before", "before"), success_of(s, "eval", "after")) if each]
            for s in settings
        ],
        learning=learning_curves(settings),
        differences=differences_table(pairs) if pairs else None,
        config=[(key, values) for key, values in different if ABSENT not in values],
        partial_config=[(key, values) for key, values in different if ABSENT in values],
        charts=metric_curves(settings),
        tables=content.tables,
        runs=_runs_table(settings),
        alarms=_alarms(settings),
        hidden="\n".join(f".hide-{place} .s{place} {{ display: none; }}" for place in range(len(settings))),
    )


def _facts(settings: Sequence[Setting]) -> list[str]:
    runs = [run for setting in settings for run in setting.runs]
    finished = sum(run.status == "finished" for run in runs)
    counts = [number_of(len(settings), "setting"), number_of(len(runs), "run")]
    return [*counts, "all finished" if finished == len(runs) else f"{finished} finished"]


def _versions(settings: Sequence[Setting]) -> list[str]:
    """Sentences where the runs are not of one version."""
    runs = [run for setting in settings for run in setting.runs]
    sentences = []
    if len(codes := dict.fromkeys(run.code[:8] or "unknown" for run in runs)) > 1:
        names = f"{len(codes)} versions of the code ({', '.join(codes)})"
        sentences.append(f"The runs were trained by {names}, to which differences may be due.")
    for run in runs:
        layout = run.versions.get(FORMAT_KEY, 1)
        if run.versions and layout != FORMAT:
            sentences.append(f"{run.path} has layout {layout}, not {FORMAT}: its metrics may have other names.")
    return sentences


def problems_of(settings: Sequence[Setting]) -> list[str]:
    """What the runs say is missing, each with the run."""
    problems = []
    for run in (run for setting in settings for run in setting.runs):
        own = [*run.problems, *run.episode_problems()]
        if run.status in ("interrupted", "failed"):
            error = f": {run.summary['error']}" if run.summary.get("error") else ""
            own.append(f"the run {'was interrupted' if run.status == 'interrupted' else 'failed'}{error}.")
        elif run.state in ("running", "killed"):
            own.append("it is still going on." if run.state == "running" else "it was killed, or summary.json is lost.")
        problems += [f"{run.path}: {problem}" for problem in own]
    return problems


def _runs_table(settings: Sequence[Setting]) -> PlainTable:
    heads = ("setting", "seed", "status", "before", "after", "best", "iterations", "wall time", "code", "folder")
    lines = []
    for setting in settings:
        for run in setting.runs:
            wall = run.summary.get("time/wall_s")
            scores = [score_of(run, key) for key in ("eval_before", "eval", "eval_best")]
            success = [f"{score.success:.1%}" if score else "" for score in scores]
            more = (str(run.summary.get("iterations", len(run.rows))), duration(wall) if numeric(wall) else "")
            seed = str(run.config.get("seed", "?"))
            lines.append((setting.name, seed, run.state, *success, *more, run.code[:8], str(run.path)))
    return PlainTable("Runs", heads, lines)


def _alarms(settings: Sequence[Setting]) -> list[tuple[str, str]]:
    """(Run, text) of every alarm."""
    alarms = []
    for setting in settings:
        for run in setting.runs:
            records = run.summary.get("alarms")
            for each in records if isinstance(records, list) else ():
                if isinstance(each, dict):
                    alarms.append((f"{setting.name}, seed {run.config.get('seed', '?')}", str(each.get("text"))))
    return alarms


def read_run(path: Path) -> RunReader:
    """The tolerant run in ``path``, see :class:`~troupe.runs.run.RunReader`."""
    return RunReader(path, tolerant=True)
