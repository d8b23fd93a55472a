"""``python -m troupe.cli.evaluate``: what a run's team, or an untrained one, can do.  Keys: ``docs/evaluation.md``."""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import hydra
from hydra import compose
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from rich.console import Console

from ..envs.base import WorldFailure
from ..errors import ConfigError
from ..evaluation import records as evaluations
from ..evaluation.records import EvaluationRecord
from ..evaluation.request import Questions
from ..models.loading import BaseModelError
from ..reports.tables import evaluation_table, progress_bar, show
from ..rollout.engines.base import EngineError
from ..rollout.policy_client import PromptError
from ..runs.files import EVALUATIONS
from ..runs.run import Run
from ..sandbox import SandboxUnavailable
from ..setup.actors import ActorFactory
from ..setup.agent_assignment import TeamSource
from ..setup.assembly import set_threads
from ..setup.conditions import Outcome, conditions, examine, identities
from ..setup.configuration import call, check_choices, check_keys, check_overridden, check_scale, fail

REFUSED = (
    *(ValueError, BaseModelError, PromptError, SandboxUnavailable, WorldFailure, EngineError, OmegaConfBaseException),
)
"""What an evaluation may end with."""

OPEN = ("world", "agents", "echo", "swap")
"""Keys under which a user names keys of their own."""

NEEDED = ("env", "team", "policies", "engine", "loop", "seed", "threads")
"""What an evaluation reads of a run's configuration."""


def run(cfg: DictConfig, console: Console | None = None) -> EvaluationRecord:
    """Play what ``cfg`` asks, or find it finished; show it.

    Raises ``ValueError`` (or a subclass) naming the key that is wrong.
    """
    console = console or Console(highlight=False)
    keys: dict[str, Any] = OmegaConf.to_container(cfg, resolve=True)  # type: ignore[assignment]
    team = base(keys)
    asked = questions(keys, team)
    if (threads := team.config["threads"] if keys["threads"] is None else keys["threads"]) is not None:
        call("threads", set_threads, threads)
    others = {agent: from_run(f"agents.{agent}", place) for agent, place in asked.agents.items() if place != "base"}
    found = conditions(asked, team, others)
    wanted = evaluations.fingerprint_of(identities(asked, found))
    parent = (team.run.path if team.run else Path("runs", keys["exp"], "base")) / EVALUATIONS
    if keys["name"] is not None:
        evaluations.check_name(parent, keys["name"], wanted)
    evaluation = None if keys["again"] else evaluations.find(parent, wanted)
    if evaluation is None:
        started = time.perf_counter()
        with progress_bar(console) as bar:
            episodes = bar.add_task("episodes", total=sum(condition.episodes for condition in found))
            clients = ActorFactory(team.config["engine"])
            outcomes = asyncio.run(examine(asked, found, clients, lambda result: bar.advance(episodes)))
        summary = {
            "conditions": {outcome.condition.name: outcome.summary for outcome in outcomes},
            **clients.drain(),
            "time/wall_s": time.perf_counter() - started,
        }
        folder = parent / (keys["name"] or f"{asked.checkpoint}-{asked.split}-{wanted}")
        kept = {_file(o.condition.name): map(asdict, o.samples[0][: keys["episodes"]]) for o in outcomes}
        text = OmegaConf.to_yaml(keys | {"asked": asdict(asked)})
        evaluation = evaluations.write(folder, wanted, text, summary, rows(outcomes), kept)
    else:
        console.print("finished before; again=true plays it anew", soft_wrap=True)
    console.print(str(evaluation.path), soft_wrap=True)
    show(console, evaluation_table(evaluation.conditions))
    return evaluation


def base(keys: dict[str, Any]) -> TeamSource:
    """The team that is asked about: that of a run, or an experiment's.  Raises :class:`ConfigError`."""
    if (keys["run"] is None) == (keys["exp"] is None):
        raise ConfigError("give run=DIR, a run directory, or exp=NAME, an experiment, and not both")
    if keys["run"] is not None:
        if keys["overrides"]:
            raise ConfigError("overrides belong to exp=NAME; a run has its own configuration")
        return from_run("run", keys["run"])
    check_choices([f"experiment={keys['exp']}", *keys["overrides"]])
    check_scale([f"experiment={keys['exp']}", *keys["overrides"]])
    words = [f"experiment={keys['exp']}", f"name={keys['exp']}", "run_dir=none", *keys["overrides"]]
    cfg = compose("train", overrides=words)
    config: dict[str, Any] = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)  # type: ignore[assignment]
    check_keys(config, OmegaConf.to_yaml(cfg, resolve=False))
    return TeamSource(config)


def from_run(key: str, place: str) -> TeamSource:
    """The run in ``place`` (``DIR`` or ``DIR@CHECKPOINT``).  Raises :class:`ConfigError` naming ``key``."""
    run: Run = call(key, Run, Path(place.partition("@")[0]))
    for needed in NEEDED:
        if needed not in run.config:
            raise ConfigError(f"{key}={run.path}: its config.yaml has no '{needed}'")
    return TeamSource(run.config, run)


def questions(keys: dict[str, Any], team: TeamSource) -> Questions:
    """The keys with what the run says where they say nothing.  Raises :class:`ConfigError`."""
    loop, split = team.config["loop"], keys["split"]
    if not isinstance(keys["episodes"], int) or keys["episodes"] < 0:
        raise ConfigError(f"episodes must be a whole number of at least 0, got {keys['episodes']!r}")
    return Questions(
        checkpoint=keys["checkpoint"] or ("base" if team.run is None else "best"),
        split=split,
        tasks=loop["test_tasks" if split == "test" else "validation_tasks"] if keys["tasks"] is None else keys["tasks"],
        samples=keys["samples"],
        temperature=_listed(keys["temperature"]),
        seed=team.config["seed"] if keys["seed"] is None else keys["seed"],
        silence=_listed(keys["silence"]),
        **{key: keys[key] for key in ("world", "swap", "agents", "echo")},
    )


def rows(outcomes: Sequence[Outcome]) -> Iterator[dict[str, Any]]:
    """A line an episode: the condition, the task, the sample and what came of it; rewards are means a message."""
    for outcome in outcomes:
        for sample, results in enumerate(outcome.samples):
            for result in results:
                earned: dict[str, list[float]] = {}
                for message in result.messages:
                    earned.setdefault(message["agent"], []).append(message["team"] + message["local"])
                row = {k: v for k, v in asdict(result).items() if k != "messages"}
                rewards = {f"{agent}/reward": sum(values) / len(values) for agent, values in earned.items()}
                yield {"condition": outcome.condition.name, "sample": sample, **row, **rewards}


def _listed(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list) else (value,)


def _file(name: str) -> str:
    return re.sub(r"[^\w.=-]+", "_", name)


def opened(arguments: Sequence[str]) -> list[str]:
    """The command's words, in which ``world.size=8`` may name a key that ``evaluate.yaml`` does not list."""
    return [f"++{word}" if re.match(rf"({'|'.join(OPEN)})[.=]", word) else word for word in arguments]


@hydra.main(version_base="1.3", config_path="pkg://troupe.configs", config_name="evaluate")
def _hydra_main(cfg: DictConfig) -> None:
    try:
        run(cfg)
    except KeyboardInterrupt:
        sys.exit("interrupted; nothing was written")
    except REFUSED as error:
        fail(error)


def main() -> None:
    """The command."""
    sys.argv[1:] = opened(sys.argv[1:])
    try:
        check_overridden("evaluate", sys.argv[1:])
    except ConfigError as error:
        fail(error)
    _hydra_main()


if __name__ == "__main__":
    main()
