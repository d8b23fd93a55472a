"""The examination: every condition that is asked, played and summed up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from ..envs.base import TeamEnv
from ..errors import ConfigError
from ..evaluation.episodes import Actor, PolicyActor, Result, evaluate, summarise_samples
from ..evaluation.request import Questions, Temperature
from ..experience import Task
from ..rollout.policy_client import PromptError
from ..rollout.seeds import derive
from .actors import ActorFactory, digest, identity
from .agent_assignment import Part, TeamSource, Weights, line_up
from .configuration import call, instantiated


@dataclass(frozen=True)
class Condition:
    """One column of an evaluation: a world with its tasks, who speaks, and how they are sampled.

    ``node`` is the world's configuration; ``samples`` episodes are played a task.
    """

    name: str
    node: Mapping[str, Any]
    world: TeamEnv
    tasks: Sequence[Task]
    parts: Mapping[str, Part]
    temperature: Temperature
    samples: int

    @property
    def episodes(self) -> int:
        return self.samples * len(self.tasks)


@dataclass(frozen=True)
class Outcome:
    """What a condition gave: the episodes of each sample, in the order of the tasks, and their summary."""

    condition: Condition
    samples: list[list[Result]]
    summary: dict[str, Any]


def conditions(asked: Questions, run: TeamSource, others: Mapping[str, TeamSource]) -> list[Condition]:
    """Each world at each temperature.  A greedy team is played once a task: its samples would be equal.

    Raises :class:`ConfigError` naming the key that is wrong, and :class:`..runs.files.RunDirectoryError` where another
    version wrote the run and its world or engine cannot be built.
    """
    run.check_playable()
    found = []
    for label, changes in worlds(asked.world, run.config["env"]):
        node = {**run.config["env"], **changes}
        world = instantiated("world", node)
        parts = line_up(asked, run, others, world.agents)
        tasks = call(f"tasks={asked.tasks}, split={asked.split}", world.tasks, asked.split, asked.tasks, 0)
        for temperature in dict.fromkeys(asked.temperature):
            way = {"own": "sampled", 0: "greedy"}.get(temperature, f"temperature={temperature}")
            samples = 1 if temperature == 0 else asked.samples
            found.append(Condition(",".join([*label, way]), node, world, tasks, parts, temperature, samples))
    return found


def worlds(changes: Mapping[str, Any], node: Mapping[str, Any]) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """(Labels, changes) of every combination of the values that ``changes`` lists for keys of ``node``.

    Raises :class:`ConfigError` for a key that the world does not have.
    """
    for key in changes:
        if key not in node or key == "_target_":
            known = ", ".join(sorted(set(node) - {"_target_"}))
            raise ConfigError(f"world.{key} is an unknown key. Known: {known}")
    listed = [list(values) if isinstance(values, list) else [values] for values in changes.values()]
    for key, values in zip(changes, listed, strict=True):
        if not values:
            raise ConfigError(f"world.{key}=[] names no value")
    for combination in product(*listed):
        chosen = dict(zip(changes, combination, strict=True))
        yield [f"{key}={value}" for key, value in chosen.items()], chosen


def identities(asked: Questions, found: Sequence[Condition]) -> dict[str, Any]:
    """All that decides the episodes of ``found``, to be hashed."""
    weights = [part for condition in found for part in condition.parts.values() if isinstance(part, Weights)]
    digests = {base: digest(base) for part in weights for base in (part.base, part.below) if base}
    told = [
        {
            "world": dict(condition.node),
            "samples": condition.samples,
            "agents": {a: identity(part, condition.temperature, digests) for a, part in condition.parts.items()},
        }
        for condition in found
    ]
    return {"split": asked.split, "tasks": asked.tasks, "seed": asked.seed, "conditions": told}


async def examine(
    asked: Questions, found: Sequence[Condition], clients: ActorFactory, played: Callable[[Result], None]
) -> list[Outcome]:
    """Play everything; ``played`` hears of each episode.  Closes ``clients``.

    The seed of the first sample is that of a run's own evaluation, whose figures it repeats.  Raises ``ConfigError``
    where weights cannot be loaded or a policy cannot read a world, before anything is played.
    """
    try:
        clients.prepare(part for condition in found for part in condition.parts.values())
        actors = [
            {agent: clients.actor(part, condition.temperature) for agent, part in condition.parts.items()}
            for condition in found
        ]
        for condition, speaking in zip(found, actors, strict=True):
            check_readable(condition, speaking)
            await condition.world.open()
        outcomes = []
        for condition, speaking in zip(found, actors, strict=True):
            samples = []
            for sample in range(condition.samples):
                seed = derive(asked.seed, "eval", asked.split, *([sample] if sample else []))
                samples.append(await evaluate(condition.world, condition.tasks, speaking, seed, played))
            outcomes.append(Outcome(condition, samples, summarise_samples(samples)))
        return outcomes
    finally:
        await clients.close()
        for condition in found:
            await condition.world.close()


def check_readable(condition: Condition, actors: Mapping[str, Actor]) -> None:
    """Ask whoever opens an episode to read the task, before anything is played.  Raises :class:`ConfigError`."""
    world = condition.world.fork()
    for task in condition.tasks:
        world.reset(task)
        for agent in world.next_agents():
            actor = actors[agent]
            if isinstance(actor, PolicyActor):
                try:
                    actor.client.encode(agent, task.task_id, world.observe(agent))
                except PromptError as error:
                    raise ConfigError(f"world ({condition.name}): {error}") from error
