"""Evaluate the team of a run, or an untrained one.  The keys are those of ``configs/eval.yaml``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from ..errors import ConfigError
from ..evaluation import records
from ..evaluation.conditions import CUT, Condition, ConditionResult
from ..evaluation.identity import evaluation_identity
from ..evaluation.partial import NOTHING_KEPT, PartialEvaluation
from ..evaluation.records import EvaluationRecord, file_name
from ..evaluation.request import EvalRequest
from ..evaluation.summary import episode_rows
from ..evaluation.tables import benchmark_table, episode_progress, evaluation_table, show
from ..runs.directory import versions
from ..runs.faults import FaultSettings
from ..runs.files import EVALUATIONS
from ..runs.fingerprint import code_hash
from ..setup.checks import set_threads
from ..setup.composition import user_folders
from ..setup.evaluation import benchmarks, build_conditions, read_request, read_team, run_conditions
from ..setup.evaluation_actors import ActorFactory
from ..setup.instantiation import construct


def run(cfg: DictConfig, console: Console | None = None) -> EvaluationRecord:
    """Play the evaluation that ``cfg`` describes, or find it finished; show it.

    Raises ``ValueError`` (or a subclass) naming the key that is wrong.
    """
    console = console or Console(highlight=False)
    keys: dict[str, Any] = OmegaConf.to_container(cfg, resolve=True)  # type: ignore[assignment]
    team = read_team(keys)
    if not isinstance(keys["episodes"], int) or keys["episodes"] < 0:
        raise ConfigError(f"episodes must be a whole number of at least 0, got {keys['episodes']!r}")
    request = read_request(keys, team)
    faults = construct("faults", FaultSettings, keys["faults"])
    threads = set_threads(keys["threads"], team.config["threads"])
    conditions = build_conditions(request, team)
    played = {"worlds": [dict(condition.world_config) for condition in conditions], "engine": team.config["engine"]}
    fingerprint = records.fingerprint_of(evaluation_identity(request, conditions))
    parent = (team.run.path if team.run else Path("runs", keys["exp"], "base")) / EVALUATIONS
    if keys["name"] is not None:
        records.check_name(parent, keys["name"], fingerprint)
    evaluation = None if keys["again"] else records.find(parent, fingerprint)
    if evaluation is None:
        engines = [team.config["engine"], *(p.get("engine") for p in team.config["policies"].values()), threads]
        part = records.fingerprint_of({"code": code_hash(played), "engines": engines})
        # again=true plays all of it: of what is kept nobody could say whether it is of this call.
        partial = NOTHING_KEPT if keys["again"] else PartialEvaluation(parent / f".{fingerprint}-{part}.partial")
        in_all = sum(condition.samples for condition in conditions)
        if partial.count:
            console.print(f"{partial.count} of {in_all} samples were played before", soft_wrap=True)
        try:
            summary, results = _play(request, conditions, ActorFactory(team.config["engine"]), faults, console, partial)
        except KeyboardInterrupt as error:
            kept = f"{partial.count} of {in_all} samples are kept, and the same command goes on after them"
            raise KeyboardInterrupt(kept if partial.count else "nothing was written") from error
        folder = parent / (keys["name"] or f"{request.checkpoint}-{request.split}-{fingerprint}")
        rows = (row for result in results for row in episode_rows(result.condition.name, result.samples))
        samples = {file_name(r.condition.name): map(asdict, r.samples[0][: keys["episodes"]]) for r in results}
        text = OmegaConf.to_yaml(keys | {"request": asdict(request)})
        code = versions(played, user_folders())
        evaluation = records.write(folder, fingerprint, text, summary, rows, samples, code)
        for left in parent.glob(f".{fingerprint}-*.partial"):
            PartialEvaluation(left).remove()
    else:
        other = "" if evaluation.code == code_hash(played) else ", with other code than today's"
        console.print(f"finished before{other}; again=true plays it anew", soft_wrap=True)
    console.print(str(evaluation.path), soft_wrap=True)
    if not request.benchmark:
        show(console, evaluation_table(evaluation.conditions, evaluation.seconds))
        return evaluation
    show(console, benchmark_table(evaluation.conditions, evaluation.seconds))
    for name, row in evaluation.conditions.items():
        cut = [f"{key.partition('/')[0]} {share:.1%}" for key, share in row.items() if key.endswith(f"/{CUT}")]
        if cut:
            console.print(f"{name}: messages cut at sampling.max_tokens: {', '.join(cut)}", soft_wrap=True)
    for benchmark in benchmarks(request, team.config):
        figures = ", ".join(f"{name} {percent:g} %" for name, percent in benchmark.published.items())
        if figures:
            console.print(f"{benchmark.name}, published, with other prompts: {figures}", soft_wrap=True)
    return evaluation


def _play(
    request: EvalRequest,
    conditions: Sequence[Condition],
    factory: ActorFactory,
    faults: FaultSettings,
    console: Console,
    partial: PartialEvaluation,
) -> tuple[dict[str, Any], list[ConditionResult]]:
    """The content of ``summary.json``, and the results."""
    started = time.perf_counter()
    with episode_progress(console, sum(condition.episodes for condition in conditions)) as played:
        results = asyncio.run(run_conditions(request, conditions, factory, played, faults, partial))
    summary = {
        "conditions": {result.condition.name: result.summary for result in results},
        **factory.drain(),
        **{f"time/{result.condition.name}_s": result.seconds for result in results},
        "time/wall_s": time.perf_counter() - started + played.kept_s,
    }
    return summary, results


def run_command(cfg: DictConfig) -> None:
    """``troupe eval``, with the configuration that Hydra has composed."""
    run(cfg)
