"""Curricula of small base models: those of the shipped ones, and that of any world with demonstrations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from random import Random
from typing import Any

from ..envs import kuhn
from ..envs.base import Skill, TeamEnv
from ..envs.code.micro import MicroCode
from ..envs.code.micro import vocabulary as code_vocabulary
from ..envs.code_collab import micro as collab
from ..envs.couplet import world as couplet
from ..envs.delegation import world as delegation
from ..envs.grid import board, sudoku
from ..envs.grid.plan_path import PlanPath
from ..envs.grid.sokoban import Sokoban
from ..envs.math import arithmetic
from ..envs.returned import TaskSource
from ..envs.search import fact_search
from ..envs.signalling import world as signalling
from ..envs.writing import Writing
from ..envs.writing.articles import small_words
from ..experience import Message
from ..rollout.playing import advance, prompt_of, start_env
from ..sandbox import LocalSandbox
from .recipe import Recipe


@dataclass(frozen=True)
class Curriculum:
    """The training of one base model.

    ``worlds`` take turns, step by step; ``variant`` makes the variant of a step.  ``words`` are its tokenizer's,
    without the special tokens; None for a tokenizer that writes any text, of ``vocabulary`` tokens at most.
    """

    worlds: Sequence[Any]
    variant: Callable[[Any, Random], TeamEnv]
    words: Sequence[str] | None
    recipe: Recipe = field(default_factory=Recipe)
    vocabulary: int = 512

    def name(self, step: int) -> str:
        """The name of the world of ``step``."""
        world = self.worlds[step % len(self.worlds)]
        return str(getattr(world, "name", type(world).__name__))

    def world(self, step: int, rng: Random) -> TeamEnv:
        """The world of ``step``, in one of its variants."""
        return self.variant(self.worlds[step % len(self.worlds)], rng)


def _as_is(world: Any, rng: Random) -> TeamEnv:
    """The world itself."""
    return world


def _default(world: Any, rng: Random) -> TeamEnv:
    """With the default settings."""
    return world()


def _grid_variant(world: Any, rng: Random) -> TeamEnv:
    """Mostly with the default views, sometimes full ones or a team of one."""
    kind = rng.random()
    if kind < 0.6:
        return world()
    if kind < 0.72:
        return world(tool_view="full", planner_view="full")
    return world(team="solo")


SHORT: dict[Any, dict[str, int]] = {
    PlanPath: {"size": 8, "min_distance": 1, "max_distance": 5},
    Sokoban: {"min_moves": 1, "max_solution": 6},
}
"""Instances with short solutions.  Their boards are as large as those of the test: a cell is one word, and a word that
no demonstration has would have no meaning."""


def _short_grid_variant(world: Any, rng: Random) -> TeamEnv:
    """The same views and teams, on instances with short solutions alone."""
    return _grid_variant(partial(world, **SHORT[world]), rng)


class _SharedSandbox(LocalSandbox):
    """Several worlds share it: when one closes it, it can be used again."""

    async def close(self) -> None:
        await super().close()
        self._closed = False


@cache
def _sandbox() -> LocalSandbox:
    """The sandbox of demonstrators' programs; one per process."""
    return _SharedSandbox(workers=1)


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


def _signalling_variant(world: Any, rng: Random) -> TeamEnv:
    """Sequences of any length from 3 on."""
    return world(length=rng.randint(3, 8))


def _pair_variant(world: Any, rng: Random) -> TeamEnv:
    """Mostly a pair, sometimes one agent."""
    return world(team="pair" if rng.random() < 0.7 else "solo")


def _writing_variant(world: Any, rng: Random) -> TeamEnv:
    """One turn or two, mostly a pair, sometimes one agent."""
    return world(horizon=rng.choice((1, 2)), team="pair" if rng.random() < 0.7 else "solo")


def _delegation_variant(world: Any, rng: Random) -> TeamEnv:
    """Questions of several lengths."""
    return world(asked=rng.randint(2, 4))


def _code_collab_variant(world: Any, rng: Random) -> TeamEnv:
    """Mostly one turn, sometimes two with feedback of any kind except an expert's; mostly a pair, else one agent."""
    return world(
        _sandbox(),
        team="pair" if rng.random() < 0.7 else "solo",
        horizon=rng.choice((1, 1, 1, 2)),
        feedback=rng.choice(("plain", "passed", "level_passed")),
        useful_aux=False,
    )


NOVICES = Recipe(
    hidden=64, layers=2, stable_steps=400, decay_steps=200, flawed_steps=0, expert_share=0.0, last_expert_share=0.0
)
"""Demonstrations by novices alone, of worlds in which there is a convention to be found."""

CURRICULA = {
    # Plan-Path, the harder one, twice as often.
    "laptop": Curriculum(
        worlds=(PlanPath, PlanPath, Sokoban),
        variant=_grid_variant,
        words=(*board.vocabulary(10), PlanPath.name, Sokoban.name),
    ),
    # Everything that it sees is right, and short: training has to teach what is longer.
    "laptop_gap": Curriculum(
        worlds=(PlanPath, Sokoban),
        variant=_short_grid_variant,
        words=(*board.vocabulary(8), PlanPath.name, Sokoban.name),
        recipe=Recipe(
            hidden=96,
            layers=3,
            stable_steps=500,
            decay_steps=250,
            flawed_steps=0,
            expert_share=1.0,
            last_expert_share=1.0,
        ),
    ),
    # Each writes well, and there is no convention.
    "laptop_couplet": Curriculum(
        worlds=(couplet.Couplet,),
        variant=_default,
        words=couplet.vocabulary(),
        recipe=replace(NOVICES, hidden=96, layers=3, stable_steps=1000, decay_steps=500),
    ),
    # Each word is of another code.
    "laptop_signalling": Curriculum(
        worlds=(signalling.Signalling,),
        variant=_signalling_variant,
        words=signalling.vocabulary(),
        recipe=NOVICES,
    ),
    # Each bets by its card, as if nobody looked.
    "laptop_kuhn": Curriculum(
        worlds=(kuhn.Kuhn,),
        variant=_default,
        words=kuhn.vocabulary(),
        recipe=replace(NOVICES, hidden=32, stable_steps=200, decay_steps=100),
    ),
    # Each writes about the article, at any length.
    "laptop_writing": Curriculum(
        worlds=(Writing,),
        variant=_writing_variant,
        words=small_words(),
        recipe=NOVICES,
    ),
    "laptop_sudoku": Curriculum(
        worlds=(sudoku.Sudoku,),
        variant=_pair_variant,
        words=(*sudoku.vocabulary(4), sudoku.Sudoku.name),
        recipe=Recipe(hidden=96, layers=4, stable_steps=450, decay_steps=220, flawed_steps=100),
    ),
    # Each writes functions that are right, if the other does the rest.
    "laptop_code_collab": Curriculum(
        worlds=(collab.MicroCollab,),
        variant=_code_collab_variant,
        words=collab.vocabulary(),
        recipe=replace(NOVICES, stable_steps=300, decay_steps=200),
    ),
    "laptop_code": Curriculum(
        worlds=(MicroCode,),
        variant=_code_variant,
        words=code_vocabulary(),
        recipe=Recipe(hidden=96, layers=3, stable_steps=1500, decay_steps=700, flawed_steps=200),
    ),
    "laptop_math": Curriculum(
        worlds=(arithmetic.Arithmetic,),
        variant=_arithmetic_variant,
        words=arithmetic.words(),
        recipe=Recipe(hidden=96, layers=3, stable_steps=700, decay_steps=300, flawed_steps=600, last_expert_share=0.3),
    ),
    "laptop_delegation": Curriculum(
        worlds=(delegation.Delegation,),
        variant=_delegation_variant,
        words=delegation.words(),
        recipe=Recipe(
            hidden=64,
            layers=2,
            stable_steps=350,
            decay_steps=150,
            flawed_steps=100,
            expert_share=0.9,
            last_expert_share=0.35,
        ),
    ),
    "laptop_search": Curriculum(
        worlds=(fact_search.FactSearch,),
        variant=_pair_variant,
        words=fact_search.words(),
        recipe=Recipe(
            hidden=64,
            layers=2,
            stable_steps=400,
            decay_steps=200,
            flawed_steps=150,
            expert_share=0.9,
            last_expert_share=0.3,
        ),
    ),
}
"""The curriculum of each shipped base model, by the model's name."""


def curriculum_of(world: TeamEnv, recipe: Recipe, vocabulary: int) -> Curriculum:
    """The curriculum of a world of the user's.  Raises ``ValueError`` where it has no demonstrations."""
    if not world.has_demonstrations:
        raise ValueError(
            f"{type(world).__name__} has no demonstrations; a base model learns a world from its method "
            "demonstration(agent, rng, skill=...)"
        )
    return Curriculum((world,), _as_is, None, recipe, vocabulary)


async def messages(
    env: TeamEnv, count: int, skill: Callable[[Random], Skill], rng: Random
) -> list[tuple[list[Message], str]]:
    """At least ``count`` messages of demonstrators on train tasks: (the agent's prompt, its message)."""
    await env.open()
    source = TaskSource(env)
    examples: list[tuple[list[Message], str]] = []
    while len(examples) < count:
        (task,) = source.tasks("train", 1, rng.getrandbits(48))
        world = await start_env(env, task)
        while acting := world.next_agents():
            actions = {agent: world.demonstration(agent, rng, skill=skill(rng)) for agent in acting}
            examples += [(list(prompt_of(world, agent)), text) for agent, text in actions.items()]
            if world.turn + 1 == world.horizon and acting == world.stages[-1]:
                break  # nothing is shown after it
            await advance(world, actions)
    return examples
