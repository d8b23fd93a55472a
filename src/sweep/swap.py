"""The two policies of a finished run, exchanged: how much of what they learned belongs to their role."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

from ..configuration import ConfigError, instantiated, partially
from ..evaluation import PolicySpeaker, Speaker, evaluate, summarise
from ..experience import Sampling
from ..models.laptop import load_model, load_tokenizer
from ..reports.fingerprint import code_hash
from ..reports.run_directory import write_atomic
from ..reports.runs import Run
from ..reports.sweep_record import SWAPPED
from ..rollout.base import Engine
from ..rollout.seeds import derive
from ..rollout.voice import Voice


def evaluate_swapped(run: Run) -> None:
    """Play the run's test tasks with each agent speaking with the other's last weights; writes ``swapped.json``.

    Tasks, seeds and sampling are those of the run's own ``eval/success``, so the two differ in nothing else.  Raises
    :class:`ConfigError` where the team is not two agents with a policy each.
    """
    team: dict[str, str] = run.config["team"]
    if len(team) != 2 or len(set(team.values())) != 2:
        held = ", ".join(f"{agent}: {policy}" for agent, policy in team.items())
        raise ConfigError(f"{run.path}: only two agents with a policy each can be swapped, its team is {held}")
    summary = asyncio.run(_play(run, dict(zip(team, reversed(team.values()), strict=True))))
    summary |= {"checkpoint": "last", "code": code_hash()}
    write_atomic(run.path / SWAPPED, json.dumps(summary, indent=2) + "\n")


async def _play(run: Run, team: dict[str, str]) -> dict[str, Any]:
    """Success of ``team`` (agent -> policy) with the last weights of ``run``."""
    config = run.config
    world = instantiated("env", config["env"])
    seed = derive(config["seed"], "eval", "test")
    voices = {policy: _voice(run, policy) for policy in config["policies"]}
    speakers: dict[str, Speaker] = {agent: PolicySpeaker(voices[policy]) for agent, policy in team.items()}
    try:
        results = await evaluate(world, world.tasks("test", config["loop"]["test_tasks"], 0), speakers, seed)
    finally:
        for voice in voices.values():
            await voice.engine.close()
    return summarise(results)


def _voice(run: Run, policy: str) -> Voice:
    folder = str(run.path / "checkpoints" / "last" / policy)
    model, tokenizer = load_model(folder).eval().requires_grad_(False), load_tokenizer(folder)
    engine: Engine = partially("engine", run.config["engine"])(models={policy: model}, tokenizer=tokenizer)
    values = run.config["policies"][policy]["sampling"]["eval"]
    sampling = Sampling(**values | {"stop": tuple(values["stop"])})
    return Voice(policy, engine, tokenizer, model.config.max_position_embeddings, sampling)


EVALUATIONS: dict[str, Callable[[Run], None]] = {"swapped": evaluate_swapped}
"""What a sweep can measure on each finished run, by its name in ``evaluations`` of the sweep's yaml."""
