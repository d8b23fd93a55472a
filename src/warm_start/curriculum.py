"""The curricula of the base models at laptop scale: for each, its worlds, its words and its recipe."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any

from ..envs.base import Skill, TeamEnv
from ..envs.code.micro import MicroCode
from ..envs.code.micro_programs import vocabulary as code_vocabulary
from ..envs.couplet.lines import vocabulary as couplet_vocabulary
from ..envs.couplet.world import Couplet
from ..envs.grid.notation import vocabulary as grid_vocabulary
from ..envs.grid.plan_path import PlanPath
from ..envs.grid.sokoban import Sokoban
from ..envs.math.arithmetic import Arithmetic
from ..envs.math.arithmetic import words as arithmetic_words
from ..experience import Message
from ..sandbox import LocalSandbox


@dataclass(frozen=True)
class Recipe:
    """The hyperparameters of a base model.

    Three phases: ``stable_steps`` and then ``decay_steps`` on messages of experts and novices (the model learns the
    skill), at last ``flawed_steps`` on messages that mostly are flawed demonstrators' (the model has the skill, but
    mostly does not use it).  ``expert_share`` and ``last_expert_share`` are the shares of experts' messages before and
    in the last phase; the others are novices' before and flawed demonstrators' in it.  ``batch_size`` is the number of
    messages per step, in ``micro_batches`` sorted by length to save padding.  The learning rates are those of the
    stable phase; they fall linearly to a tenth over the decay phase and stay there.
    """

    hidden: int = 128
    layers: int = 4
    heads: int = 4
    stable_steps: int = 6000
    decay_steps: int = 2250
    flawed_steps: int = 350
    batch_size: int = 96
    micro_batches: int = 2
    learning_rate: float = 3e-3
    muon_learning_rate: float = 0.02
    weight_decay: float = 0.01
    warmup: int = 100
    expert_share: float = 0.8
    last_expert_share: float = 0.12
    seed: int = 0

    @property
    def steps(self) -> int:
        return self.stable_steps + self.decay_steps + self.flawed_steps

    def skill(self, step: int, rng: Random) -> Skill:
        """A demonstrator's skill at ``step``."""
        last_phase = step >= self.stable_steps + self.decay_steps
        if rng.random() < (self.last_expert_share if last_phase else self.expert_share):
            return "expert"
        return "flawed" if last_phase else "novice"

    def rate(self, step: int) -> float:
        """The learning rate at ``step`` as a share of its peak."""
        if step < self.stable_steps:
            return min(1.0, (step + 1) / self.warmup)
        return max(0.1, 1 - 0.9 * (step - self.stable_steps) / max(1, self.decay_steps))


@dataclass(frozen=True)
class Curriculum:
    """The training of one base model.

    ``worlds`` take turns, step by step; ``variant`` makes the variant of a step.  ``words`` are its tokenizer's,
    without the special tokens.
    """

    worlds: Sequence[Any]
    variant: Callable[[Any, Random], TeamEnv]
    words: Sequence[str]
    recipe: Recipe = field(default_factory=Recipe)

    def name(self, step: int) -> str:
        """The name of the world of ``step``."""
        return str(self.worlds[step % len(self.worlds)].name)

    def world(self, step: int, rng: Random) -> TeamEnv:
        """The world of ``step``, in one of its variants."""
        return self.variant(self.worlds[step % len(self.worlds)], rng)


def _grid_variant(world: Any, rng: Random) -> TeamEnv:
    """Mostly with the default views, sometimes full ones or a team of one."""
    kind = rng.random()
    if kind < 0.6:
        return world()
    if kind < 0.72:
        return world(tool_view="full", planner_view="full")
    return world(team="solo")


@cache
def _sandbox() -> LocalSandbox:
    """The sandbox of demonstrators' programs; one per process."""
    return LocalSandbox(workers=1)


@cache
def _micro_code(kind: str) -> MicroCode:
    """One of the variants of micro-programs; each keeps its cache of results as long as the process lives."""
    if kind == "solo":
        return MicroCode(_sandbox(), team="solo")
    return MicroCode(_sandbox(), order="simultaneous", horizon=3) if kind == "simultaneous" else MicroCode(_sandbox())


def _code_variant(world: Any, rng: Random) -> TeamEnv:
    """Mostly one after the other, sometimes at once or a team of one."""
    return _micro_code(rng.choices(("sequential", "simultaneous", "solo"), (0.7, 0.15, 0.15))[0])


def _arithmetic_variant(world: Any, rng: Random) -> TeamEnv:
    """Mostly a pair, sometimes one agent."""
    return world(sandbox=_sandbox(), team="pair" if rng.random() < 0.7 else "solo")


CURRICULA = {
    # Plan-Path, the harder one, twice as often.
    "laptop": Curriculum(
        worlds=(PlanPath, PlanPath, Sokoban),
        variant=_grid_variant,
        words=(*grid_vocabulary(10), PlanPath.name, Sokoban.name),
    ),
    # Novices alone: each writes well, and there is no convention.
    "laptop_couplet": Curriculum(
        worlds=(Couplet,),
        variant=lambda world, rng: world(),
        words=couplet_vocabulary(),
        recipe=Recipe(
            hidden=96,
            layers=3,
            stable_steps=1000,
            decay_steps=500,
            flawed_steps=0,
            expert_share=0.0,
            last_expert_share=0.0,
        ),
    ),
    "laptop_code": Curriculum(
        worlds=(MicroCode,),
        variant=_code_variant,
        words=code_vocabulary(),
        recipe=Recipe(hidden=96, layers=3, stable_steps=1500, decay_steps=700, flawed_steps=200),
    ),
    "laptop_math": Curriculum(
        worlds=(Arithmetic,),
        variant=_arithmetic_variant,
        words=arithmetic_words(),
        recipe=Recipe(hidden=96, layers=3, stable_steps=700, decay_steps=300, flawed_steps=600, last_expert_share=0.3),
    ),
}
"""The curriculum of each shipped base model, by the model's name."""


async def messages(
    env: TeamEnv, count: int, skill: Callable[[Random], Skill], rng: Random
) -> list[tuple[list[Message], str]]:
    """At least ``count`` messages of demonstrators on train tasks: (the agent's prompt, its message)."""
    examples: list[tuple[list[Message], str]] = []
    while len(examples) < count:
        (task,) = env.tasks("train", 1, rng.getrandbits(48))
        world = env.fork()
        world.reset(task)
        while acting := world.next_agents():
            actions = {agent: world.demonstration(agent, rng, skill=skill(rng)) for agent in acting}
            examples += [(list(world.observe(agent)), text) for agent, text in actions.items()]
            await world.step(actions)
    return examples
