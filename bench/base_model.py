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
from hydra import compose, initialize_config_module
from hydra.utils import instantiate

from troupe.envs.base import TeamEnv
from troupe.envs.code import MicroCode
from troupe.envs.code_collab import MicroCollab
from troupe.envs.couplet.world import Couplet
from troupe.envs.delegation import Delegation
from troupe.envs.grid.plan_path import PlanPath
from troupe.envs.grid.sokoban import Sokoban
from troupe.envs.grid.sudoku import Sudoku
from troupe.envs.kuhn import Kuhn
from troupe.envs.math import Arithmetic
from troupe.envs.search import FactSearch
from troupe.envs.signalling.world import Signalling
from troupe.envs.writing import Writing
from troupe.evaluation.base_model import play_base
from troupe.evaluation.summary import summarise
from troupe.experience import Sampling
from troupe.models.bases.base_models import SHIPPED
from troupe.models.bases.loading import load_model, load_tokenizer
from troupe.sandbox import LocalSandbox

MODELS = Path(__file__).resolve().parent.parent / "src" / "models"
TASKS = 400

CARD = """# {title}

A Qwen3-architecture causal language model of {parameters:,} parameters (hidden {hidden}, {layers} layers, {heads}
heads, {vocabulary} words), pretrained from scratch by `{command}` on {demonstrations}

- Recipe: `recipe.json` (seed {seed}); {steps} steps of {batch_size} messages in {minutes:.0f} minutes on one busy core.
{phases}
- On another machine, or with another number of threads, sums are rounded differently: the figures below then are
  similar, not equal.
- Files are checked against `checksums.json` whenever they are loaded. Licence: Apache-2.0.

{measure}

{table}

Figures: `{figures}`.
"""


def grid(name: str, **settings: Any) -> TeamEnv:
    """A grid world of configs/env, at laptop scale."""
    with initialize_config_module("troupe.configs", version_base="1.3"):
        config = compose("train", overrides=[f"env={name}"]).env
    world: TeamEnv = instantiate(config, **settings)
    return world


@dataclass(frozen=True)
class About:
    """The texts of one base model's card; ``worlds`` are the conditions of the measurement, each at all
    ``temperatures``."""

    title: str
    demonstrations: str
    phases: str
    measure: str
    worlds: Mapping[str, Callable[[], TeamEnv]]
    temperatures: tuple[float, ...] = (0.0, 1.0)
    tasks: int = TASKS


ABOUT = {
    "laptop": About(
        title="The base model of the laptop scale",
        demonstrations="""demonstrations of both grid
worlds in every role. It is to the laptop scale what a downloaded Qwen3 is to the papers' scale. It has the skill, but
mostly does not use it: in the last phase of training {last_expert_share:.0%} of the messages were an expert's.""",
        phases="""  Train boards only; validation and test boards are disjoint from them under the 8 symmetries.
- Phases: {stable_steps} steps at full learning rate and {decay_steps} at a falling one with {expert_share:.0%} experts
  among novices, then {flawed_steps} with {last_expert_share:.0%} experts among flawed demonstrators (see
  `troupe.warm_start.curriculum` and `demonstration` in `troupe.envs.grid.walks`).""",
        measure="Team success on {tasks} validation boards (95 % interval), at most 4 turns:",
        worlds={
            "sokoban": Sokoban,
            "sokoban, both see everything": lambda: Sokoban(tool_view="full", planner_view="full"),
            "sokoban, one agent": lambda: Sokoban(team="solo"),
            "plan_path": PlanPath,
            "plan_path, both see everything": lambda: PlanPath(tool_view="full", planner_view="full"),
            "plan_path, one agent": lambda: PlanPath(team="solo"),
        },
    ),
    "laptop_gap": About(
        title="The base model of the grid worlds with headroom",
        demonstrations="""demonstrations of both
grid worlds in every role. Every demonstrator is an expert, and every instance has a short solution: Sokoban with one
box and at most 6 moves, Plan-Path on 8x8 cells with at most 5. What is longer, or has two boxes, it has never seen.""",
        phases="""  Train boards only; validation and test boards are disjoint from them under the 8 symmetries.
- Phases: {stable_steps} steps at full learning rate and {decay_steps} at a falling one, {expert_share:.0%} experts (see
  `troupe.warm_start.curriculum` and `demonstration` in `troupe.envs.grid.walks`).""",
        measure="Team success on {tasks} validation boards (95 % interval); short: instances as in its training:",
        worlds={
            "sokoban, short": lambda: grid("sokoban_hard", boxes=1, min_moves=1, max_solution=6),
            "sokoban_hard": lambda: grid("sokoban_hard"),
            "sokoban_hard, one agent": lambda: grid("sokoban_hard", team="solo"),
            "plan_path, short": lambda: grid("plan_path_hard", min_distance=1, max_distance=5),
            "plan_path_hard": lambda: grid("plan_path_hard"),
            "plan_path_hard, one agent": lambda: grid("plan_path_hard", team="solo"),
        },
        tasks=200,  # drawing boards with two boxes takes long
    ),
    "laptop_couplet": About(
        title="The base model of Couplet at laptop scale",
        demonstrations="""demonstrations of
novices in both roles. It can write a line, rhyme and follow the other's line, but it has no convention: none of the
demonstrators was an expert.""",
        phases="""  Train tasks only; no pair of subjects of a validation or test task is among them.
- Phases: {stable_steps} steps at full learning rate and {decay_steps} at a falling one (see
  `troupe.warm_start.curriculum`, and `demonstration` in `troupe.envs.couplet.world`).""",
        measure="Team success on {tasks} validation tasks (95 % interval):",
        worlds={
            "one turn": lambda: Couplet(horizon=1),
            "two turns": Couplet,
            "one turn, every rhyme": lambda: Couplet(horizon=1, rhymes=4),
        },
    ),
    "laptop_writing": About(
        title="The base model of Writing at laptop scale",
        demonstrations="""demonstrations of
novices in every role. It writes lines about the article, of any length and form.""",
        phases="""  Train tasks only; one turn or two, a pair or one agent.
- Phases: {stable_steps} steps at full learning rate and {decay_steps} at a falling one (see
  `troupe.warm_start.curriculum`, and `demonstration` in `troupe.envs.writing.world`).""",
        measure="Team success on {tasks} validation tasks (95 % interval):",
        worlds={
            "one turn": lambda: Writing(on_topic=1.0),
            "two turns": lambda: Writing(on_topic=1.0, horizon=2),
            "one agent": lambda: Writing(on_topic=1.0, team="solo"),
        },
    ),
    "laptop_sudoku": About(
        title="The base model of Sudoku at laptop scale",
        demonstrations="""demonstrations of the
tool agent, the planner and one agent alone. It has the skill, but mostly does not use it: in the last phase of training
{last_expert_share:.0%} of the messages were an expert's.""",
        phases="""  Train puzzles only, 4x4 with 6 to 8 empty cells, which differ from those of validation and test
  up to symmetry.
- Phases: {stable_steps} steps at full learning rate and {decay_steps} at a falling one with {expert_share:.0%} experts
  among novices, then {flawed_steps} with {last_expert_share:.0%} experts among flawed demonstrators (see
  `troupe.warm_start.curriculum`, and `demonstration` in `troupe.envs.grid.sudoku`).""",
        measure="Team success on {tasks} validation puzzles (95 % interval), at most 4 turns:",
        worlds={"a pair": Sudoku, "one agent": lambda: Sudoku(team="solo")},
        tasks=200,  # the split has some 260
    ),
    "laptop_code_collab": About(
        title="The base model of Code collaboration at laptop scale",
        demonstrations="""demonstrations of
novices in every role. It writes functions that do a part of the task, and does not know which part the other does.""",
        phases="""  Train tasks only; one turn or two, a pair or one agent, every kind of feedback.
- Phases: {stable_steps} steps at full learning rate and {decay_steps} at a falling one (see
  `troupe.warm_start.curriculum`, and `demonstration` in `troupe.envs.code_collab.micro`).""",
        measure="Team success on {tasks} validation tasks (95 % interval):",
        worlds={
            "one turn": lambda: MicroCollab(LocalSandbox(workers=1)),
            "two turns": lambda: MicroCollab(LocalSandbox(workers=1), horizon=2, feedback="level_passed"),
            "one agent": lambda: MicroCollab(LocalSandbox(workers=1), team="solo"),
        },
    ),
    "laptop_kuhn": About(
        title="The base model of Kuhn poker at laptop scale",
        demonstrations="""demonstrations of
novices in both seats, who bet by their card, as if nobody looked: no equilibrium was shown.""",
        phases="""- Phases: {stable_steps} steps at full learning rate and {decay_steps} at a falling one (see
  `troupe.warm_start.curriculum`, and `demonstration` in `troupe.envs.kuhn`).""",
        measure="Games won against itself, of {tasks} (95 % interval):",
        worlds={"kuhn": Kuhn},
        tasks=12,  # all there are
    ),
    "laptop_signalling": About(
        title="The base model of Signalling at laptop scale",
        demonstrations="""demonstrations of
novices in both roles. It names what it sees by one of four words each, and reads each word as one of four colours, at
random: it has no code.""",
        phases="""  Train tasks only; sequences of 3 to 8 colours.
- Phases: {stable_steps} steps at full learning rate and {decay_steps} at a falling one (see
  `troupe.warm_start.curriculum`, and `demonstration` in `troupe.envs.signalling.world`).""",
        measure="Team success on {tasks} validation tasks (95 % interval):",
        worlds={
            "two turns": Signalling,
            "one turn": lambda: Signalling(horizon=1),
            "one turn, six colours": lambda: Signalling(horizon=1, length=6),
        },
    ),
    "laptop_code": About(
        title="The base model of Code at laptop scale",
        demonstrations="""demonstrations of
micro-programs in every role. It can compute the outputs of a program and find the operators that give them, but mostly
does not: in the last phase of training {last_expert_share:.0%} of the messages were an expert's.""",
        phases="""  Train tasks only; no program of a validation or test task computes the function of one of them.
- Phases: {stable_steps} steps at full learning rate and {decay_steps} at a falling one with {expert_share:.0%} experts
  among novices, then {flawed_steps} with {last_expert_share:.0%} experts among flawed demonstrators (see
  `troupe.warm_start.curriculum` and `troupe.envs.code.micro`).""",
        measure="Team success on {tasks} validation tasks (95 % interval):",
        worlds={
            "one after the other": lambda: MicroCode(LocalSandbox()),
            "at once, three turns": lambda: MicroCode(LocalSandbox(), order="simultaneous", horizon=3),
            "one agent": lambda: MicroCode(LocalSandbox(), team="solo"),
        },
    ),
    "laptop_math": About(
        title="The base model of mathematics at laptop scale",
        demonstrations="""demonstrations of the
tool agent, the reasoner and one agent alone. It can write the expression of a story and say a result, but mostly does
not: in the last phase of training {last_expert_share:.0%} of the messages were an expert's, and more were one and the
same mistake. So its likeliest message is wrong, and greedy sampling does not help. It has not learnt to calculate.""",
        phases="""  Train stories only; the arithmetic of validation and test is different.
- Phases: {stable_steps} steps at full learning rate and {decay_steps} at a falling one with {expert_share:.0%} experts
  among novices, then {flawed_steps} with {last_expert_share:.0%} experts among flawed demonstrators (see
  `troupe.warm_start.curriculum`, `demonstration` in `troupe.envs.math.arithmetic`).""",
        measure="Success on {tasks} validation stories (95 % interval), at most 2 turns:",
        worlds={
            "a pair": lambda: Arithmetic(sandbox=LocalSandbox()),
            "one agent": lambda: Arithmetic(sandbox=LocalSandbox(), team="solo"),
        },
        temperatures=(0.0, 0.3, 0.5, 0.7, 1.0),
    ),
    "laptop_delegation": About(
        title="The base model of Delegation at laptop scale",
        demonstrations="""demonstrations of the
orchestrator and the workers. It can call the right workers and say the numbers, but mostly does not: in the last phase
of training {last_expert_share:.0%} of the messages were an expert's; other orchestrators mostly called for the first
name alone or called too many, and other workers said their first number.""",
        phases="""  Train tasks only; no question of validation or test, names with their workers and numbers, is among
  them.
- Phases: {stable_steps} steps at full learning rate and {decay_steps} at a falling one with {expert_share:.0%} experts
  among novices, then {flawed_steps} with {last_expert_share:.0%} experts among flawed demonstrators (see
  `troupe.warm_start.curriculum` and `troupe.envs.delegation.world`).""",
        measure="Team success on {tasks} validation tasks (95 % interval), at most 3 messages of the orchestrator:",
        worlds={
            "workers at the same time": Delegation,
            "workers one by one": lambda: Delegation(order="sequential"),
        },
    ),
    "laptop_search": About(
        title="The base model of search at laptop scale",
        demonstrations="""demonstrations of the
searcher, the reasoner and one agent alone. It can look up both facts of a question and say the answer, but mostly does
not: in the last phase of training {last_expert_share:.0%} of the messages were an expert's, and most of the others left
out the first hop.""",
        phases="""  Train questions only, each over facts of its own; no question of validation or test is among them.
- Phases: {stable_steps} steps at full learning rate and {decay_steps} at a falling one with {expert_share:.0%} experts
  among novices, then {flawed_steps} with {last_expert_share:.0%} experts among flawed demonstrators (see
  `troupe.warm_start.curriculum`, and `demonstration` in `troupe.envs.search.fact_search`).""",
        measure="Team success on {tasks} validation questions (95 % interval), at most 3 turns:",
        worlds={
            "a pair": FactSearch,
            "one agent": lambda: FactSearch(team="solo"),
        },
    ),
}
"""By the model's name."""


async def measure(folder: Path, about: About) -> list[tuple[str, dict[str, Any]]]:
    """Success of the base in each world at each temperature."""
    model, tokenizer = load_model(str(folder)), load_tokenizer(str(folder))
    rows = []
    for name, make in about.worlds.items():
        world = make()
        await world.open()
        for temperature in about.temperatures:
            way = {0.0: "greedy", 1.0: "sampled"}.get(temperature, f"temperature {temperature}")
            tasks = world.tasks("validation", about.tasks, 0)
            sampling = Sampling(temperature=temperature, max_tokens=40)
            results = await play_base(model, tokenizer, world, tasks, sampling, max_batch_rows=1024)
            rows.append((f"{name}, {way}", summarise(results)))
        await world.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", choices=sorted(SHIPPED), default="laptop")
    parser.add_argument("folder", type=Path, nargs="?", help="its folder (default: the shipped one)")
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
    facts = recipe | {"tasks": about.tasks}
    card = CARD.format(
        **{key: value for key, value in recipe.items() if key != "steps"},
        title=about.title,
        demonstrations=about.demonstrations.format(**facts),
        phases=about.phases.format(**facts),
        measure=about.measure.format(**facts),
        command=f"make base_model{which}",
        figures=f"python bench/base_model.py{which.replace(' base=', ' --base ')}",
        parameters=model.num_parameters(),
        vocabulary=model.config.vocab_size,
        steps=recipe["stable_steps"] + recipe["decay_steps"] + recipe["flawed_steps"],
        minutes=recipe["seconds"] / 60,
        table="\n".join(lines),
    )
    (folder / "README.md").write_text(card)
    print(card)


if __name__ == "__main__":
    main()
