"""A control: the base model's pretraining continued for as long as reinforcement learning takes, on the demonstrations
that it saw last: `python bench/continued.py --seed S [--seconds 120]`.

The last phase of the recipe goes on with new demonstrations, at its learning rate.  Success of the default teams of
both grid worlds is measured before and after, sampled at temperature 1.  If more of the same made the team, it would
show here.
"""

from __future__ import annotations

import argparse
import asyncio
import copy
import json
import time
from dataclasses import replace
from pathlib import Path

import torch

from troupe.envs.grid.plan_path import PlanPath
from troupe.envs.grid.sokoban import Sokoban
from troupe.evaluation.episodes import PolicyActor, evaluate
from troupe.evaluation.summary import summarise
from troupe.experience import Sampling
from troupe.models.bases.loading import load_model, load_tokenizer
from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.rollout.policy_client import PolicyClient
from troupe.warm_start.curriculum import CURRICULA
from troupe.warm_start.finetune import Demonstrations, WarmStart


async def measure(start: WarmStart, tasks: int) -> dict[str, str]:
    """Sampled success on test boards, with its 95 % interval, by world."""
    tokenizer = load_tokenizer("laptop")
    engine = TorchEngine({"base": copy.deepcopy(start.model).eval()}, tokenizer, max_batch_rows=1024)
    client = PolicyClient("base", engine, tokenizer, 512, Sampling(max_tokens=40))
    success = {}
    for world in (Sokoban(), PlanPath()):
        actors = {agent: PolicyActor(client) for agent in world.agents}
        row = summarise(await evaluate(world, world.tasks("test", tasks, 0), actors, 0))
        low, high = row["success_ci95"]
        success[world.name] = f"{row['success']:.3f} ({low:.3f}-{high:.3f})"
    await engine.close()
    return success


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="of the new demonstrations; not 0, the base model's own")
    parser.add_argument("--seconds", type=float, default=120.0, help="CPU time of this process for pretraining")
    parser.add_argument("--tasks", type=int, default=200)
    options = parser.parse_args()
    torch.set_num_threads(1)
    curriculum = CURRICULA["laptop"]
    recipe = replace(curriculum.recipe, seed=options.seed)
    start = WarmStart(replace(curriculum, recipe=recipe), Path("unused"))
    start.model.load_state_dict(load_model("laptop").state_dict())
    print(json.dumps({"seed": options.seed, "steps": 0, **asyncio.run(measure(start, options.tasks))}), flush=True)
    start.step = recipe.stable_steps + recipe.decay_steps  # the last phase
    demonstrations, beginning, steps = Demonstrations(start.curriculum, start.tokenizer), time.process_time(), 0
    while time.process_time() - beginning < options.seconds:
        start.fit(demonstrations[start.step + steps % recipe.flawed_steps])
        steps += 1
        if steps % recipe.flawed_steps == 0:  # other demonstrations, the same phase
            demonstrations.recipe = replace(demonstrations.recipe, seed=demonstrations.recipe.seed + 1_000)
    print(json.dumps({"seed": options.seed, "steps": steps, **asyncio.run(measure(start, options.tasks))}), flush=True)


if __name__ == "__main__":
    main()
