"""``report.html``: one run as one page that needs nothing but itself.

It is made from the run directory's files alone.  The page loads nothing: its policy allows its own style and its own
script (by hash) and no network, so that hostile text from a model stays text even if an escape were missed.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ..runs.directory import write_atomic
from ..runs.files import Evaluation, RunFiles, interval, numeric, read_run
from . import episodes
from .charts import number, percent
from .curves import all_other, colours, learning_curve, per_agent_and_policy, time_colour, time_keys

TEMPLATES = Path(__file__).parent / "templates"
STATES = {
    "finished": "The run ended by itself.",
    "interrupted": "The run was interrupted; what follows is what was reached.",
    "failed": "The run ended with an error; what follows is what was reached.",
    "unknown": "summary.json does not say how the run ended: it is still going on, or it was killed.",
}
KINDS = {
    "learnt": "failed, then solved",
    "lost": "solved, then failed",
    "kept": "solved twice",
    "never": "failed twice",
    "solved": "solved",
    "failed": "failed",
}


@dataclass(frozen=True)
class Score:
    """Success of one evaluation on the test tasks: shares in [0, 1]; ``low`` and ``high`` are its 95 % interval."""

    name: str
    success: float
    low: float
    high: float
    episodes: int | None


def write_report(path: Path) -> Path:
    """Write ``report.html`` into the run directory ``path`` and return where it is.

    Raises ``RunFilesError`` where ``path`` is not a run directory.
    """
    file = path / "report.html"
    write_atomic(file, render(read_run(path)))
    return file


def render(run: RunFiles) -> str:
    """The page."""
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"number": number, "percent": percent, "duration": duration}
    environment.trim_blocks = environment.lstrip_blocks = True
    script = (TEMPLATES / "report.js").read_text(encoding="utf-8")
    pairs = episodes.choose(run.first, run.last)
    palette = colours(run, episodes.agents(pairs))
    status = run.summary.get("status")
    page = environment.get_template("report.html.jinja").render(
        title=str(run.config.get("name", run.path.name)),
        facts=_facts(run),
        status=status if status in STATES else "unknown",
        states=STATES,
        error=str(run.summary.get("error", "")),
        problems=run.problems,
        scores=[score for score in map(lambda key: _score(run.summary, key), SCORES) if score],
        tiles=_tiles(run),
        times=_times(run),
        learning=learning_curve(run),
        charts=per_agent_and_policy(run, palette),
        more=all_other(run),
        palette=palette,
        pairs=pairs,
        kinds={kind: text for kind, text in KINDS.items() if any(pair.kind == kind for pair in pairs)},
        first=_when(run.first),
        last=_when(run.last),
        config_text=run.config_text,
        versions=run.versions,
        style=(TEMPLATES / "report.css").read_text(encoding="utf-8"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )
    return page.encode("utf-8", "backslashreplace").decode()  # half characters can stand in JSON, not in a file


SCORES = {"eval_before": "before training", "eval": "after training", "eval_best": "best on validation"}


def _score(summary: Mapping[str, Any], key: str) -> Score | None:
    success, span = summary.get(f"{key}/success"), interval(summary.get(f"{key}/success_ci95"))
    if not numeric(success) or span is None:
        return None
    count = summary.get(f"{key}/episodes")
    return Score(SCORES[key], success, *span, count if isinstance(count, int) else None)


def _facts(run: RunFiles) -> list[str]:
    """What the run is, in a few words each."""
    facts = [f"seed {run.config['seed']}"] if "seed" in run.config else []
    credit = _at(run.config, "algorithm", "credit", "_target_")
    if isinstance(credit, str):
        facts.append(f"credit {credit.rpartition('.')[2]}")
    if isinstance(policies := run.config.get("policies"), dict):
        facts.append(
            f"{len(policies)} {'policy' if len(policies) == 1 else 'policies'}: {', '.join(map(str, policies))}"
        )
    facts += [f"commit {run.versions['commit']}"] if "commit" in run.versions else []
    return facts


def _at(config: Any, *keys: str) -> Any:
    """What stands at ``keys``, None where there is nothing."""
    for key in keys:
        config = config.get(key) if isinstance(config, dict) else None
    return config


def _tiles(run: RunFiles) -> list[tuple[str, str]]:
    """Totals as (name, text)."""
    done, planned = run.summary.get("iterations", len(run.rows)), _at(run.config, "loop", "iterations")
    tiles = [("iterations", f"{done} of {planned}" if isinstance(planned, int) and planned != done else f"{done}")]
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


def _times(run: RunFiles) -> list[tuple[str, float, float, int]]:
    """Where the time went, as (name, seconds, share of the whole, colour)."""
    spent: dict[str, float] = {}
    for key, name in time_keys(run):
        values = [row[key] for row in run.rows if numeric(row.get(key))]
        spent[name] = sum(values)
    whole = run.summary.get("time/wall_s", 0)
    if spent and numeric(whole) and whole > sum(spent.values()):
        spent["evaluation and the rest"] = whole - sum(spent.values())
    total = sum(spent.values())
    if not total > 0:
        return []
    return [(name, seconds, seconds / total, time_colour(i)) for i, (name, seconds) in enumerate(spent.items())]


def _when(evaluation: Evaluation | None) -> str:
    if evaluation is None:
        return ""
    count = evaluation.iteration
    after = "before training" if count == 0 else f"after {count} iteration{'s' if count > 1 else ''}"
    return after if evaluation.split == "test" else f"{after} ({evaluation.split})"


def duration(seconds: float) -> str:
    """``26.9 s``, ``7 min 12 s``, ``3 h 5 min``."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
