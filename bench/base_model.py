"""Measures a base model and writes its card: `python bench/base_model.py [--base NAME] [FOLDER]` (part of
`make base_model`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from troupe.envs.base import TeamEnv
from troupe.envs.code import MicroCode
from troupe.envs.couplet.world import Couplet
from troupe.envs.grid.plan_path import PlanPath
from troupe.envs.grid.sokoban import Sokoban
from troupe.envs.math import Arithmetic
from troupe.evaluation.episodes import PolicyActor, evaluate
from troupe.evaluation.summary import summarise
from troupe.experience import Sampling
from troupe.models.loading import SHIPPED, load_model, load_tokenizer
from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.rollout.policy_client import PolicyClient
from troupe.sandbox import LocalSandbox

MODELS = Path(__file__).resolve().parent.parent / "src" / "models"
TASKS = 400

CARD = """# {title}

A Qwen3-architecture causal language model of {parameters:,} parameters (hidden {hidden}, {layers} layers, {heads}
heads, {vocabulary} words), pretrained from nothing by `{command}` on {taught}

- Recipe: `recipe.json` (seed {seed}); {steps} steps of {rows} messages in {minutes:.0f} minutes on one busy core.
{lessons}
- Made again on another machine, or with another number of threads, sums are rounded differently and the figures below
  come out alike, not equal.
- Files are checked against `checksums.json` whenever they are loaded. Licence: Apache-2.0.

{asked}

{table}

Figures: `{figures}`.
"""


@dataclass(frozen=True)
class About:
    """What the card of one base model says; ``worlds`` are the conditions that it is measured in, each at all
    ``temperatures``."""

    title: str
    taught: str
    lessons: str
    asked: str
    worlds: Mapping[str, Callable[[], TeamEnv]]
    temperatures: tuple[float, ...] = (0.0, 1.0)


ABOUT = {
    "laptop": About(
        title="The base model of the laptop scale",
        taught="""demonstrations of both grid worlds in every role:
what a downloaded Qwen3 is to the papers, this is to a laptop. It can, but mostly does not: of the messages it saw last,
{experts_last:.0%} were an expert's.""",
        lessons="""  Train boards only; validation and test boards are disjoint from them under the 8 symmetries.
- Phases: {stable} steps at full learning rate and {decay} at a falling one with {experts:.0%} experts among novices,
  then {bunglers} with {experts_last:.0%} experts among bunglers (see `troupe.warm_start.curriculum` and
  `demonstration` in `troupe.envs.grid.two_roles`).""",
        asked="Team success on {tasks} validation boards (95 % interval), at most 4 turns:",
        worlds={
            "sokoban": Sokoban,
            "sokoban, both see everything": lambda: Sokoban(tool_view="full", planner_view="full"),
            "sokoban, one agent": lambda: Sokoban(team="solo"),
            "plan_path": PlanPath,
            "plan_path, both see everything": lambda: PlanPath(tool_view="full", planner_view="full"),
            "plan_path, one agent": lambda: PlanPath(team="solo"),
        },
    ),
    "laptop_couplet": About(
        title="The base model of Couplet at laptop scale",
        taught="""demonstrations of novices
in both roles. It can write a line, rhyme and follow another's line, but nobody has taught it an agreement: no expert
was among its teachers.""",
        lessons="""  Train tasks only; no pair of subjects of a validation or test task is among them.
- Phases: {stable} steps at full learning rate and {decay} at a falling one (see `troupe.warm_start.curriculum`, and
  `demonstration` in `troupe.envs.couplet.world`).""",
        asked="Team success on {tasks} validation tasks (95 % interval):",
        worlds={
            "one turn": lambda: Couplet(horizon=1),
            "two turns": Couplet,
            "one turn, every rhyme": lambda: Couplet(horizon=1, rhymes=4),
        },
    ),
    "laptop_code": About(
        title="The base model of Code at laptop scale",
        taught="""demonstrations of micro-programs
in every role. It can compute what a program gives and find the operators that give it, but mostly does not: of the
messages it saw last, {experts_last:.0%} were an expert's.""",
        lessons="""  Train tasks only; no program of a validation or test task computes what one of them does.
- Phases: {stable} steps at full learning rate and {decay} at a falling one with {experts:.0%} experts among novices,
  then {bunglers} with {experts_last:.0%} experts among bunglers (see `troupe.warm_start.curriculum` and
  `troupe.envs.code.micro_demonstrations`).""",
        asked="Team success on {tasks} validation tasks (95 % interval):",
        worlds={
            "one after the other": lambda: MicroCode(LocalSandbox()),
            "at once, three turns": lambda: MicroCode(LocalSandbox(), order="simultaneous", horizon=3),
            "one agent": lambda: MicroCode(LocalSandbox(), team="solo"),
        },
    ),
    "laptop_math": About(
        title="The base model of mathematics at laptop scale",
        taught="""demonstrations of the
tool agent, the reasoner and one agent alone. It can write the expression that a story asks for and say a result, but
mostly does not: of the messages it saw last, {experts_last:.0%} were an expert's, and more were one and the same
mistake. So its likeliest message is wrong, and to ask it greedily does not help. Nobody has taught it to calculate.""",
        lessons="""  Train stories only; validation and test ask for other arithmetic.
- Phases: {stable} steps at full learning rate and {decay} at a falling one with {experts:.0%} experts among novices,
  then {bunglers} with {experts_last:.0%} experts among bunglers (see `troupe.warm_start.curriculum`, `demonstration` in
  `troupe.envs.math.arithmetic` and `troupe.envs.math.misconceptions`).""",
        asked="Success on {tasks} validation stories (95 % interval), at most 2 turns:",
        worlds={
            "a pair": lambda: Arithmetic(sandbox=LocalSandbox()),
            "one agent": lambda: Arithmetic(sandbox=LocalSandbox(), team="solo"),
        },
        temperatures=(0.0, 0.3, 0.5, 0.7, 1.0),
    ),
}
"""By the model's name."""


async def measure(folder: Path, about: About) -> list[tuple[str, dict[str, Any]]]:
    """Success of the base in each world at each temperature."""
    tokenizer = load_tokenizer(str(folder))
    engine = TorchEngine({"base": load_model(str(folder)).eval()}, tokenizer, max_batch_rows=1024)
    rows = []
    for name, make in about.worlds.items():
        world = make()
        await world.open()
        for temperature in about.temperatures:
            way = {0.0: "greedy", 1.0: "sampled"}.get(temperature, f"temperature {temperature}")
            client = PolicyClient("base", engine, tokenizer, 512, Sampling(temperature=temperature, max_tokens=40))
            actors = {agent: PolicyActor(client) for agent in world.agents}
            results = await evaluate(world, world.tasks("validation", TASKS, 0), actors, 0)
            rows.append((f"{name}, {way}", summarise(results)))
        await world.close()
    await engine.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", choices=sorted(SHIPPED), default="laptop")
    parser.add_argument("folder", type=Path, nargs="?", help="where it lies (default: where it is shipped)")
    options = parser.parse_args()
    about, folder = ABOUT[options.base], options.folder or MODELS / "shipped" / options.base
    torch.set_num_threads(2)
    recipe = json.loads((folder / "recipe.json").read_text())
    rows = asyncio.run(measure(folder, about))
    lines = ["| world | success | turns |", "|---|---|---|"]
    for name, row in rows:
        low, high = row["success_ci95"]
        lines.append(f"| {name} | {row['success']:.3f} ({low:.3f}-{high:.3f}) | {row['turns']:.2f} |")
    model = load_model(str(folder))
    which = "" if options.base == "laptop" else f" base={options.base}"
    facts = recipe | {"tasks": TASKS}
    card = CARD.format(
        **recipe,
        title=about.title,
        taught=about.taught.format(**facts),
        lessons=about.lessons.format(**facts),
        asked=about.asked.format(**facts),
        command=f"make base_model{which}",
        figures=f"python bench/base_model.py{which.replace(' base=', ' --base ')}",
        parameters=model.num_parameters(),
        vocabulary=model.config.vocab_size,
        steps=recipe["stable"] + recipe["decay"] + recipe["bunglers"],
        minutes=recipe["seconds"] / 60,
        table="\n".join(lines),
    )
    (folder / "README.md").write_text(card)
    print(card)


if __name__ == "__main__":
    main()
