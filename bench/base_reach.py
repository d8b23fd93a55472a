"""How many attempts the base needs for what the trained team reaches in one: `python bench/base_reach.py RUN [...]`

pass@k of a task is 1 - (1 - p)^k, p the probability that an episode of the base solves it.  Where p is far below 1 / k,
sampling the base finds it in hours.  So episodes are played by the base *and* by the trained team, and each success
counts with the weight that makes the mean p again, for both together (the balance heuristic of multiple importance
sampling; Veach and Guibas, SIGGRAPH 1995): P_base / (n_base P_base + n_trained P_trained), P the probability of all of
an episode's tokens.  No weight is above 1 / n_base, so that the estimate has no heavy tail; without the trained team's
episodes it is the share of successes, which stands beside it.  The estimate of p has no bias; as pass@k is concave in
p, that of pass@k is too low on average, and the last column's k too high, by ways to succeed that neither team took.
"""

from __future__ import annotations

import argparse
import asyncio
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf
from scipy.optimize import brentq
from torch.nn.utils.rnn import pad_sequence

from troupe.envs.base import TeamEnv
from troupe.evaluation.conditions import Condition
from troupe.evaluation.episodes import Earlier, PolicyActor, evaluate
from troupe.experience import Task
from troupe.models.bases.loading import load_model
from troupe.rollout.engines.requests import derive
from troupe.rollout.playing import Answer
from troupe.setup.evaluation import build_conditions, read_request, read_team
from troupe.setup.evaluation_actors import ActorFactory

Spoken = tuple[str, tuple[int, ...], tuple[int, ...]]
"""Agent, prompt and sampled tokens of a message."""
KS = (1, 8, 32, 256, 1024, 4096, 16384, 65536)


@dataclass(frozen=True)
class Recorded:
    """An actor whose messages are kept, by task."""

    actor: PolicyActor
    spoken: dict[str, list[Spoken]] = field(default_factory=lambda: defaultdict(list))

    async def act(self, env: TeamEnv, agent: str, task: Task, earlier: Earlier, seed: int) -> Answer:
        answer = await self.actor.act(env, agent, task, earlier, seed)
        self.spoken[task.task_id].append((agent, answer.prompt.ids, answer.completions[0].token_ids))
        return answer


async def successes(condition: Condition, samples: int, engine: Mapping[str, Any]) -> dict[str, list[list[Spoken]]]:
    """By task, the messages of each successful episode of ``samples``."""
    factory, found = ActorFactory(engine), {task.task_id: list[list[Spoken]]() for task in condition.tasks}
    try:
        (actors,) = factory.actors([condition])
        await condition.world.open()
        for sample in range(samples):
            spoken: dict[str, list[Spoken]] = defaultdict(list)
            recorded = {agent: Recorded(actor, spoken) for agent, actor in actors.items()}  # type: ignore[arg-type]
            for result in await evaluate(condition.world, condition.tasks, recorded, derive(0, "reach", sample)):
                assert result.lost is None, result.failure
                if result.success:
                    found[result.task_id].append(spoken[result.task_id])
    finally:
        await condition.world.close()
        await factory.close()
    return found


@torch.no_grad()
def scores(weights: Mapping[str, str], spoken: Sequence[Spoken]) -> dict[Spoken, float]:
    """Of each message, nats: the log-probability of its tokens by the model of its agent."""
    found = {}
    for folder in sorted(set(weights.values())):
        model = load_model(folder).eval()
        own = sorted({each for each in spoken if weights[each[0]] == folder}, key=lambda each: len(each[1] + each[2]))
        for first in range(0, len(own), 256):
            part = own[first : first + 256]
            rows = [torch.tensor(prompt + tokens) for _, prompt, tokens in part]
            logprobs = model(pad_sequence(rows, batch_first=True)).logits.log_softmax(-1)
            for each, row, values in zip(part, rows, logprobs, strict=True):
                begin = len(each[1])
                found[each] = values[begin - 1 : len(row) - 1].gather(-1, row[begin:, None]).double().sum().item()
    return found


def estimate(run: str, samples: Mapping[str, int], tasks: int | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """By task: p of the base, its share of successes where it played alone, the trained share."""
    keys: Any = OmegaConf.to_container(compose("eval", overrides=[f"run={run}", "temperature=1"]))
    teams: dict[str, Condition] = {}
    for checkpoint in samples:
        team = read_team(keys)
        request = read_request({**keys, "tasks": tasks, "checkpoint": checkpoint}, team)
        (teams[checkpoint],) = build_conditions(request, team)
    played = {name: asyncio.run(successes(teams[name], n, team.config["engine"])) for name, n in samples.items()}
    messages = [each for found in played.values() for episodes in found.values() for one in episodes for each in one]
    by_team = {}
    for name, condition in teams.items():
        weights = {agent: source.weights for agent, source in condition.assignment.items()}  # type: ignore[union-attr]
        by_team[name] = scores(weights, messages)
    base, trained = samples
    reach = []
    for task in teams[base].tasks:
        total = 0.0
        for episode in (one for found in played.values() for one in found[task.task_id]):
            logs = {name: sum(by_team[name][each] for each in episode) for name in samples}
            total += 1 / (samples[base] + samples[trained] * math.exp(min(700.0, logs[trained] - logs[base])))
        reach.append(total)
    shares = [[len(found) / samples[name] for found in played[name].values()] for name in samples]
    return np.array(reach), np.array(shares[0]), np.array(shares[1])


def pass_at(p: np.ndarray, k: float) -> np.ndarray:
    return -np.expm1(k * np.log1p(-np.minimum(p, 1 - 1e-12)))


def overtakes(p: np.ndarray, share: float) -> float:
    """The k at which the mean pass@k is ``share``."""
    if pass_at(p, 1e9).mean() <= share:
        return math.inf
    return math.exp(brentq(lambda x: pass_at(p, math.exp(x)).mean() - share, 0.0, math.log(1e9)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--samples", type=int, default=1024, help="episodes per task of the base")
    parser.add_argument("--trained", type=int, default=64, help="and of the trained team")
    parser.add_argument("--tasks", type=int)
    parser.add_argument("--checkpoint", default="last")
    options = parser.parse_args()
    heads = ["run", "tasks", "trained pass@1", "base pass@1, sampled", *(f"base pass@{k:,}" for k in KS)]
    print(f"| {' | '.join([*heads, 'the base overtakes at k', 'tasks out of reach'])} |")
    print("|---" * (len(heads) + 2) + "|")
    for run in options.runs:
        with initialize_config_module("troupe.configs", version_base="1.3"):
            p, alone, trained = estimate(
                str(run), {"base": options.samples, options.checkpoint: options.trained}, options.tasks
            )
        rng = np.random.default_rng(0)
        draws = [rng.integers(len(p), size=len(p)) for _ in range(1000)]

        def cell(values: Sequence[float], form: str) -> str:
            low, high = np.quantile(values[1:], [0.025, 0.975], method="nearest")
            return f"{values[0]:{form}} ({low:{form}} to {high:{form}})"

        ways = [np.arange(len(p)), *draws]
        cells = [cell([trained[way].mean() for way in ways], ".3f"), cell([alone[way].mean() for way in ways], ".4f")]
        cells += [cell([pass_at(p[way], k).mean() for way in ways], ".3f") for k in KS]
        cells.append(cell([overtakes(p[way], trained[way].mean()) for way in ways], ",.0f"))
        print(f"| {run.name} | {len(p)} | {' | '.join(cells)} | {int((p == 0).sum())} |", flush=True)


if __name__ == "__main__":
    main()
