"""What the laptop scale's base models are taught: for each, its worlds, its words and its recipe."""

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
from ..envs.grid.plan_path import PlanPath
from ..envs.grid.sokoban import Sokoban
from ..envs.grid.two_roles import vocabulary as grid_vocabulary
from ..envs.math.arithmetic import Arithmetic
from ..envs.math.arithmetic import words as arithmetic_words
from ..experience import Message
from ..sandbox import LocalSandbox


@dataclass(frozen=True)
class Recipe:
    """How a base model is made.

    Three phases: ``stable`` steps and then ``decay`` steps among experts and novices (the skill is learnt), at last
    ``bunglers`` steps among mostly bunglers (the skill becomes latent: the model can, but mostly does not).
    ``experts`` and ``experts_last`` are the shares of expert messages before and in the last phase; the others are
    novices' before and bunglers' in it.  ``rows`` is the number of examples (messages) a step, taken in ``parts``
    sorted by length to save padding.  The learning rates are
    those of the stable phase; they fall linearly to a tenth over the decay phase and stay there.
    """

    hidden: int = 128
    layers: int = 4
    heads: int = 4
    stable: int = 6000
    decay: int = 2250
    bunglers: int = 350
    rows: int = 96
    parts: int = 2
    learning_rate: float = 3e-3
    muon_learning_rate: float = 0.02
    weight_decay: float = 0.01
    warmup: int = 100
    experts: float = 0.8
    experts_last: float = 0.12
    seed: int = 0

    @property
    def steps(self) -> int:
        return self.stable + self.decay + self.bunglers

    def skill(self, step: int, rng: Random) -> Skill:
        """A demonstrator's skill at ``step``."""
        last = step >= self.stable + self.decay
        if rng.random() < (self.experts_last if last else self.experts):
            return "expert"
        return "bungler" if last else "novice"

    def rate(self, step: int) -> float:
        """The learning rate at ``step`` as a share of its peak."""
        if step < self.stable:
            return min(1.0, (step + 1) / self.warmup)
        return max(0.1, 1 - 0.9 * (step - self.stable) / max(1, self.decay))


@dataclass(frozen=True)
class Course:
    """What one base model is taught.

    ``worlds`` take turns, a step each; ``variant`` makes the one of a step.  ``words`` are its tokenizer's, special
    tokens aside.
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
    """Where demonstrators' programs run; one a process."""
    return LocalSandbox(workers=1)


@cache
def _coding(kind: str) -> MicroCode:
    """One of the variants of micro-programs; each keeps what programs did, as long as the process lives."""
    if kind == "solo":
        return MicroCode(_sandbox(), team="solo")
    return MicroCode(_sandbox(), order="simultaneous", horizon=3) if kind == "simultaneous" else MicroCode(_sandbox())


def _code_variant(world: Any, rng: Random) -> TeamEnv:
    """Mostly one after the other, sometimes at once or a team of one."""
    return _coding(rng.choices(("sequential", "simultaneous", "solo"), (0.7, 0.15, 0.15))[0])


def _arithmetic_variant(world: Any, rng: Random) -> TeamEnv:
    """Mostly a pair, sometimes one agent."""
    return world(sandbox=_sandbox(), team="pair" if rng.random() < 0.7 else "solo")


COURSES = {
    # Plan-Path, the harder one, twice as often.
    "laptop": Course(
        worlds=(PlanPath, PlanPath, Sokoban),
        variant=_grid_variant,
        words=(*grid_vocabulary(10), PlanPath.name, Sokoban.name),
    ),
    # Novices alone: each writes well, and nobody has agreed on anything.
    "laptop_couplet": Course(
        worlds=(Couplet,),
        variant=lambda world, rng: world(),
        words=couplet_vocabulary(),
        recipe=Recipe(hidden=96, layers=3, stable=1000, decay=500, bunglers=0, experts=0.0, experts_last=0.0),
    ),
    "laptop_code": Course(
        worlds=(MicroCode,),
        variant=_code_variant,
        words=code_vocabulary(),
        recipe=Recipe(hidden=96, layers=3, stable=1500, decay=700, bunglers=200, experts=0.8, experts_last=0.12),
    ),
    "laptop_math": Course(
        worlds=(Arithmetic,),
        variant=_arithmetic_variant,
        words=arithmetic_words(),
        recipe=Recipe(hidden=96, layers=3, stable=700, decay=300, bunglers=600, experts_last=0.3),
    ),
}
"""The course of each shipped base model, by the model's name."""


async def messages(
    env: TeamEnv, count: int, skill: Callable[[Random], Skill], rng: Random
) -> list[tuple[list[Message], str]]:
    """At least ``count`` messages of demonstrators on train tasks: (what the agent saw, what it said)."""
    examples: list[tuple[list[Message], str]] = []
    while len(examples) < count:
        (task,) = env.tasks("train", 1, rng.getrandbits(48))
        world = env.fork()
        world.reset(task)
        while acting := world.next_agents():
            said = {agent: world.demonstration(agent, rng, skill=skill(rng)) for agent in acting}
            examples += [(list(world.observe(agent)), text) for agent, text in said.items()]
            await world.step(said)
    return examples
