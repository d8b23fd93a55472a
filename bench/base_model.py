"""Measures the base model and writes its card: `python bench/base_model.py [FOLDER]` (part of `make base_model`)."""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

import torch

from troupe.envs.base import TeamEnv
from troupe.envs.plan_path import PlanPath
from troupe.envs.sokoban import Sokoban
from troupe.evaluation import PolicySpeaker, evaluate, summarise
from troupe.experience import Sampling
from troupe.models.laptop import load_model, load_tokenizer
from troupe.rollout.torch_engine import TorchEngine
from troupe.rollout.voice import Voice

FOLDER = Path(__file__).resolve().parent.parent / "src" / "models" / "base"
TASKS = 400

CARD = """# The base model of the laptop scale

A Qwen3-architecture causal language model of {parameters:,} parameters (hidden {hidden}, {layers} layers, {heads}
heads, {vocabulary} words), pretrained from nothing by `make base_model` on demonstrations of both worlds in every role:
what a downloaded Qwen3 is to the papers, this is to a laptop. It can, but mostly does not: of the messages it saw last,
{experts_last:.0%} were an expert's.

- Recipe: `recipe.json` (seed {seed}); {steps} steps of {rows} messages in {minutes:.0f} minutes on one busy core. Train
  boards only; validation and test boards are disjoint from them under the 8 symmetries.
- Phases: {stable} steps at full learning rate and {decay} at a falling one with {experts:.0%} experts among novices,
  then {bunglers} with {experts_last:.0%} experts among bunglers (see `troupe.warm_start`, and `demonstration` in
  `troupe.envs.two_roles`).
- Made again on another machine, or with another number of threads, sums are rounded differently and the figures below
  come out alike, not equal.
- Files are checked against `checksums.json` whenever they are loaded. Licence: Apache-2.0.

Team success on {tasks} validation boards (95 % interval), at most 4 turns:

{table}

Figures: `python bench/base_model.py`.
"""


async def measure(folder: Path) -> list[tuple[str, dict[str, Any]]]:
    """Success of the base in both worlds, greedy and sampled."""
    tokenizer = load_tokenizer(str(folder))
    engine = TorchEngine({"base": load_model(str(folder)).eval()}, tokenizer, max_batch_rows=1024)
    worlds: dict[str, TeamEnv] = {
        "sokoban": Sokoban(),
        "sokoban, both see everything": Sokoban(tool_view="full", planner_view="full"),
        "sokoban, one agent": Sokoban(team="solo"),
        "plan_path": PlanPath(),
        "plan_path, both see everything": PlanPath(tool_view="full", planner_view="full"),
        "plan_path, one agent": PlanPath(team="solo"),
    }
    rows = []
    for name, world in worlds.items():
        for way, temperature in (("greedy", 0.0), ("sampled", 1.0)):
            voice = Voice("base", engine, tokenizer, 512, Sampling(temperature=temperature, max_tokens=40))
            speakers = {agent: PolicySpeaker(voice) for agent in world.agents}
            results = await evaluate(world, world.tasks("validation", TASKS, 0), speakers, 0)
            rows.append((f"{name}, {way}", summarise(results)))
    await engine.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER)
    folder = parser.parse_args().folder
    torch.set_num_threads(2)
    recipe = json.loads((folder / "recipe.json").read_text())
    rows = asyncio.run(measure(folder))
    lines = ["| world | success | turns |", "|---|---|---|"]
    for name, row in rows:
        low, high = row["success_ci95"]
        lines.append(f"| {name} | {row['success']:.3f} ({low:.3f}-{high:.3f}) | {row['turns']:.2f} |")
    model = load_model(str(folder))
    card = CARD.format(
        **recipe,
        parameters=model.num_parameters(),
        vocabulary=model.config.vocab_size,
        steps=recipe["stable"] + recipe["decay"] + recipe["bunglers"],
        minutes=recipe["seconds"] / 60,
        tasks=TASKS,
        table="\n".join(lines),
    )
    (folder / "README.md").write_text(card)
    print(card)


if __name__ == "__main__":
    main()
