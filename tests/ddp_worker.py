"""One process of a run, as torchrun starts it: `python ddp_worker.py FILE FAILS LACKS LOSES key=value ...`.

What was sampled for training goes to FILE (of the first process); where FAILS is this process's rank, its second
rollout fails; where LACKS is, each policy runs out of memory in its third update.  In the rollout after LOSES
iterations, whoever plays the second task loses it.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_module
from hydra.core.hydra_config import HydraConfig
from omegaconf import open_dict

from troupe.cli import train
from troupe.envs.base import StepResult, TeamEnv, WorldFailure
from troupe.experience import Episode, Task
from troupe.rollout.engines.requests import derive
from troupe.rollout.policy_client import PromptError

file, fails, lacks, loses, *overrides = sys.argv[1:]
with initialize_config_module("troupe.configs", version_base="1.3"):
    cfg = compose("train", overrides=overrides, return_hydra_config=True)
HydraConfig.instance().set_config(cfg)
with open_dict(cfg):
    del cfg["hydra"]
loop = train.build(cfg)
credit, collect = type(loop.credit).__call__, loop.sampler.collect
sampled: list[list[int]] = []


def keep(self: Any, episodes: list[Episode]) -> None:
    sampled.extend(list(c.completion.token_ids) for episode in episodes for _, c in episode.candidates())
    credit(self, episodes)


async def failing(*arguments: Any) -> Any:
    if loop.progress.iteration == 1 and str(loop.ranks.rank) == fails:
        raise PromptError("no token for this")
    return await collect(*arguments)


lost = {task.task_id for task in loop.world.tasks("train", 2, derive(loop.seed, "train", int(loses)))[1:]}
reset, step = type(loop.world).reset, type(loop.world).step


def remembering(self: TeamEnv, task: Task) -> None:
    self.task = task  # type: ignore[attr-defined]
    reset(self, task)


async def losing(self: TeamEnv, actions: Mapping[str, str]) -> StepResult:
    if str(loop.progress.iteration) == loses and self.task.task_id in lost:
        raise WorldFailure("gone")
    return await step(self, actions)


type(loop.world).reset, type(loop.world).step = remembering, losing  # type: ignore[method-assign]
type(loop.credit).__call__ = keep  # type: ignore[method-assign]
loop.sampler.collect = failing  # type: ignore[method-assign]


exhausted: list[torch.nn.Module] = []


def exhaust(module: torch.nn.Module, arguments: tuple[torch.Tensor], output: torch.Tensor) -> None:
    if loop.progress.iteration == 2 and torch.is_grad_enabled() and module not in exhausted:
        exhausted.append(module)
        torch.empty(1 << 60, dtype=torch.uint8)


if str(loop.ranks.rank) == lacks:
    for policy in loop.team.policies.values():
        policy.pool.module.model.model.embed_tokens.register_forward_hook(exhaust)
train.train(loop)
if loop.ranks.first:
    Path(file).write_text(json.dumps(sampled))
