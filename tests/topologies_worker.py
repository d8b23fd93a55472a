"""One process of several small runs, one after another: `python topologies_worker.py FILE CASES`.

CASES is JSON, by name the overrides of a run; all runs share the processes that meet here.  FILE gets, by name, what
was sampled for training and the weights before and after, as this process has them.
"""

import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from hydra import compose, initialize_config_module
from hydra.core.hydra_config import HydraConfig
from omegaconf import open_dict

from troupe.experience import Episode
from troupe.loop import TrainLoop
from troupe.setup.assembly import build

file, cases = sys.argv[1], json.loads(sys.argv[2])


def built(*overrides: str) -> TrainLoop:
    with initialize_config_module("troupe.configs", version_base="1.3"):
        cfg = compose("train", overrides=list(overrides), return_hydra_config=True)
    HydraConfig.instance().set_config(cfg)
    with open_dict(cfg):
        del cfg["hydra"]
    return build(cfg)


def plain(episode: Episode) -> dict[str, Any]:
    """All of it but the log-probabilities, whose last bits depend on what else is in a batch, and times."""
    found = asdict(episode)
    for node in found["nodes"]:
        del node["seconds"]
    said = [candidate["completion"] for node in found["nodes"] for candidate in node["candidates"]]
    for completion in [*said, *(completion for _, completion in found["auxiliary"])]:
        del completion["logprobs"], completion["waited"]
    return found


async def played(loop: TrainLoop) -> dict[str, Any]:
    """What one iteration samples and learns, and what the engines then say with the new weights."""
    before = {name: _copied(await policy.weights()) for name, policy in loop.team.policies.items()}
    sampled: list[Episode] = []
    collect = loop.collect

    async def recorded() -> list[Episode]:
        episodes = await collect()
        sampled.extend(episodes)
        return episodes

    loop.collect = recorded  # type: ignore[method-assign]
    try:
        await loop.run_iteration()
        await loop.collect()
        after = {name: _copied(await policy.weights()) for name, policy in loop.team.policies.items()}
    finally:
        await closed(loop)
    return {"episodes": list(map(plain, sampled)), "before": before, "after": after}


def _copied(weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {key: value.clone() for key, value in weights.items()}


async def closed(loop: TrainLoop) -> None:
    await loop.team.close()
    loop.directory.release()


async def broken(loop: TrainLoop) -> str:
    """What the run ends with where the sampler of the last process loses a task's episodes."""
    collect = loop.sampler.collect

    async def forgetful(*arguments: Any) -> list[list[Episode]]:
        found = await collect(*arguments)
        return found[: len(found) - (loop.ranks.rank == loop.ranks.world - 1)]

    loop.sampler.collect = forgetful  # type: ignore[method-assign]
    try:
        await loop.run_iteration()
    except RuntimeError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        await closed(loop)
    return "nothing"


found: dict[str, Any] = {name: asyncio.run(played(built(*words))) for name, words in cases.items()}
words = [word for word in next(iter(cases.values())) if not word.startswith("run_dir=")]
found["broken"] = asyncio.run(broken(built(*words, f"run_dir={Path(file).with_suffix('')}-broken")))
torch.save(found, file)
