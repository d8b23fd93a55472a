"""``report.html``: one run as one page without other files.

It is made from the run directory's files alone.  The page loads nothing: its content security policy allows its own
style and its own script (by hash) and no network, so that hostile text from a model stays text even if an escape were
missed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import number_of
from ..runs.directory import write_atomic
from ..runs.files import EVALUATIONS, FORMAT, FORMAT_KEY, REPORT, VERSIONS
from ..runs.run import RunReader
from .charts import number
from .curves import GREY, all_other, colours, learning_curve, per_agent_and_policy, time_colour, time_keys
from .evaluations import evaluation_of, pair_tables
from .explorer import explorer
from .page import RUN_PAGE, render_page
from .values import Score, duration, numeric, score_of

STATES = {
    "finished": "The run ended by itself.",
    "interrupted": "The run was interrupted; this page shows how far it came.",
    "failed": "The run ended with an error; this page shows how far it came.",
    "running": "The run is still going on; this page shows how far it came.",
    "killed": "The run was killed, or its summary.json is lost: no process trains here, and no file says how it ended.",
    "damaged": "summary.json is damaged: how the run ended is not known.",
    "unknown": "summary.json says of the run's end what this version of Troupe does not know.",
}


def write_report(path: Path, problems: list[str] | None = None) -> Path:
    """Write ``report.html`` into the run directory ``path`` and return the file's path; ``problems`` receives the
    page's sentences about what could not be read.

    Raises :class:`~troupe.runs.files.RunDirectoryError` where ``path`` is not a run directory.
    """
    file = path / REPORT
    write_atomic(file, render(RunReader(path, tolerant=True), [] if problems is None else problems))
    return file


def render(run: RunReader, problems: list[str]) -> str:
    """The page; ``run`` is tolerant, so that what is damaged is named there, and in ``problems``."""
    explored = explorer(run)
    palette = colours(run, explored.agents)
    unfinished = {folder for folder in (run.path / EVALUATIONS).glob("*") if folder.is_dir()} - set(run.evaluations)
    evaluations = [evaluation_of(folder) for folder in [*run.evaluations, *sorted(unfinished)]]
    problems += [*run.problems, *_layout(run), *(each.problem for each in evaluations if each.problem)]
    problems += explored.problems
    return render_page(
        RUN_PAGE,
        title=str(run.config.get("name", run.path.name)),
        facts=_facts(run),
        status=run.state if run.state in STATES else "unknown",
        states=STATES,
        error=str(run.summary.get("error", "")),
        alarms=_alarms(run),
        problems=problems,
        scores=_scores(run),
        tiles=_tiles(run),
        times=_times(run),
        learning=learning_curve(run),
        explored=explored if explored.count else None,
        evaluations=evaluations,
        pairs=pair_tables(run),
        charts=per_agent_and_policy(run, palette),
        more=all_other(run, palette),
        palette=palette,
        config_text=run.config_text,
        versions=run.versions,
    )


def _alarms(run: RunReader) -> list[str]:
    """A line for every alarm of the run."""
    records = run.summary.get("alarms")
    return [str(each.get("text")) for each in records if isinstance(each, dict)] if isinstance(records, list) else []


REST = "evaluation and the rest"
SCORES = {"eval_before": "before training", "eval": "after training", "eval_best": "best on validation"}


def _scores(run: RunReader) -> list[tuple[str, Score]]:
    """Those with an interval, each with its name."""
    scores = [(name, score_of(run, key)) for key, name in SCORES.items()]
    return [(name, score) for name, score in scores if score and score.interval]


def _layout(run: RunReader) -> list[str]:
    """A sentence where a newer version of Troupe or an unknown one wrote the run; of older ones all is shown."""
    layout = run.versions.get(FORMAT_KEY, 1)
    if isinstance(layout, int) and layout <= FORMAT:
        return []
    return [f"{VERSIONS}: the run has layout {layout}, not {FORMAT}; what has another form in it is not shown."]


def _facts(run: RunReader) -> list[str]:
    """Seed, credit rule, policies and commit, as far as the files have them."""
    facts = [f"seed {run.config['seed']}"] if "seed" in run.config else []
    credit = _at(run.config, "algorithm", "credit", "_target_")
    if isinstance(credit, str):
        facts.append(f"credit {credit.rpartition('.')[2]}")
    if isinstance(team := _at(run.config, "algorithm", "reward", "team"), str):
        facts.append(f"reward.team {team}")
    if isinstance(policies := run.config.get("policies"), dict):
        facts.append(f"{number_of(len(policies), 'policy', 'policies')}: {', '.join(map(str, policies))}")
    if (commit := run.versions.get("commit", "unknown")) != "unknown":  # of a wheel it is
        facts.append(f"commit {commit}")
    facts += [f"own commit {run.versions['own_commit']}"] if "own_commit" in run.versions else []
    return facts


def _at(config: Any, *keys: str) -> Any:
    """The value at ``keys``, None where there is none."""
    for key in keys:
        config = config.get(key) if isinstance(config, dict) else None
    return config


def _tiles(run: RunReader) -> list[tuple[str, str]]:
    """Totals as (name, text)."""
    count, planned = run.summary.get("iterations", len(run.rows)), _at(run.config, "loop", "iterations")
    tiles = [("iterations", f"{count} of {planned}" if isinstance(planned, int) and planned != count else f"{count}")]
    for key, name in (
        ("completions", "completions"),
        ("tokens", "tokens generated"),
        ("env_steps", "environment steps"),
    ):
        total = run.summary.get(f"train/{key}")
        if numeric(total):
            tiles.append((name, number(total)))
    wall = run.summary.get("time/wall_s")
    return [*tiles, ("wall time", duration(wall))] if numeric(wall) else tiles


def _times(run: RunReader) -> list[tuple[str, float, float, int]]:
    """The parts of the wall time, as (name, seconds, share of the total, colour)."""
    parts = {name: sum(value for _, value in run.values(key) if numeric(value)) for key, name in time_keys(run)}
    wall = run.summary.get("time/wall_s", 0)
    if parts and numeric(wall) and wall > sum(parts.values()):
        parts[REST] = wall - sum(parts.values())
    total = sum(parts.values())
    if not total > 0:
        return []
    colours = {name: time_colour(index) for index, name in enumerate(parts)} | {REST: GREY}
    return [(name, seconds, seconds / total, colours[name]) for name, seconds in parts.items()]
