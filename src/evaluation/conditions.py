"""Conditions: the worlds, temperatures and assignments of one evaluation, played and summarised."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from ..envs.base import TeamEnv
from ..errors import ConfigError
from ..experience import Sampling, Task
from ..rollout.engines.requests import derive
from ..rollout.playing import Answer, prompt_of
from ..rollout.policy_client import PromptError
from ..runs.faults import DEFAULT_FAULTS, FaultSettings
from .assignment import Assignment
from .episodes import Actor, Earlier, EpisodeResult, PolicyActor, evaluate
from .partial import NOTHING_KEPT, PartialEvaluation, PlayedSample
from .request import EvalRequest, Temperature
from .summary import lost_failures, summarise_samples

CUT = "cut_messages"
"""Of an agent: the share of its messages that ended at ``sampling.max_tokens``."""


@dataclass(frozen=True)
class Condition:
    """One column of an evaluation: a world with its tasks, an assignment, and a temperature.

    ``world_config`` is the world's configuration; ``samples`` episodes are played per task.
    """

    name: str
    world_config: Mapping[str, Any]
    world: TeamEnv
    tasks: Sequence[Task]
    assignment: Assignment
    temperature: Temperature
    samples: int

    @property
    def episodes(self) -> int:
        return self.samples * len(self.tasks)


@dataclass(frozen=True)
class ConditionResult:
    """The episodes of each sample of a condition, in the order of the tasks, and their summary."""

    condition: Condition
    samples: list[list[EpisodeResult]]
    summary: dict[str, Any]
    seconds: float = 0.0
    """It took so long to play."""


def world_variants(
    changes: Mapping[str, Any], world_config: Mapping[str, Any]
) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """(Labels, configuration) of every combination of the values that ``changes`` lists for keys of ``world_config``.

    Raises :class:`ConfigError` for a key that the world does not have.
    """
    keys = dict(_keys(changes, world_config))
    values = [list(value) if isinstance(value, list) else [value] for value in keys.values()]
    for key, listed in zip(keys, values, strict=True):
        if not listed:
            raise ConfigError(f"world.{key}=[] names no value")
    for combination in product(*values):
        variant = dict(zip(keys, combination, strict=True))
        yield [f"{key}={value}" for key, value in variant.items()], _changed(world_config, variant)


def _keys(changes: Mapping[str, Any], config: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted keys of ``changes`` with their values: of a section those within it, unless another class is given."""
    for key, value in changes.items():
        path, own = f"{above}{key}", config.get(key)
        if key not in config or key == "_target_":
            known = ", ".join(sorted(f"{above}{name}" for name in set(config) - {"_target_"}))
            raise ConfigError(f"world.{path} is an unknown key. Known: {known}")
        if not isinstance(value, Mapping) or "_target_" in value:
            yield path, value
        elif isinstance(own, Mapping):
            yield from _keys(value, own, f"{path}.")
        else:
            raise ConfigError(f"world.{path} is {own!r} in this world, and has no key {', '.join(map(str, value))}")


def _changed(config: Mapping[str, Any], variant: Mapping[str, Any]) -> dict[str, Any]:
    """``config`` with other values of the dotted keys of ``variant``; it stays as it is itself."""
    changed = dict(config)
    for path, value in variant.items():
        *above, last = path.split(".")
        section = changed
        for key in above:
            section[key] = dict(section[key])
            section = section[key]
        section[last] = value
    return changed


def condition_name(labels: Sequence[str], temperature: Temperature) -> str:
    """``horizon=2,sampled``: what differs from the run's world, and the sampling."""
    return ",".join([*labels, {"own": "sampled", 0: "greedy"}.get(temperature, f"temperature={temperature}")])


def sampling_at(temperature: Temperature, sampling: Sampling) -> Sampling:
    """``sampling``, a policy's own, at ``temperature``."""
    return sampling if temperature == "own" else replace(sampling, temperature=float(temperature))


@dataclass
class Played:
    """How much of an evaluation has been played: episodes that have ended, ``kept`` of them by an earlier call, which
    took ``kept_s``, and messages of all episodes.
    """

    episodes: int = 0
    messages: int = 0
    kept: int = 0
    kept_s: float = 0.0

    def take(self, sample: PlayedSample) -> None:
        """Count what was played by an earlier call."""
        self.episodes += len(sample.episodes)
        self.kept += len(sample.episodes)
        self.messages += sum(sample.messages.values())
        self.kept_s += sample.seconds

    def end_episode(self, result: EpisodeResult) -> None:
        self.episodes += 1


@dataclass
class _Counted:
    """Counts the messages of ``actor``, and those that were cut at the most tokens of a completion."""

    actor: Actor
    played: Played
    messages: int = 0
    cut: int = 0

    async def act(self, env: TeamEnv, agent: str, task: Task, earlier: Earlier, seed: int) -> Answer:
        message = await self.actor.act(env, agent, task, earlier, seed)
        self.played.messages += 1
        self.messages += 1
        self.cut += any(each.finish_reason == "length" for each in message.completions)
        return message


async def play_conditions(
    request: EvalRequest,
    conditions: Sequence[Condition],
    actors: Sequence[Mapping[str, Actor]],
    played: Played,
    faults: FaultSettings = DEFAULT_FAULTS,
    partial: PartialEvaluation = NOTHING_KEPT,
) -> list[ConditionResult]:
    """Play and summarise every condition with its ``actors``; ``played`` counts meanwhile.

    Samples that ``partial`` has are not played again; the others are kept there, each when it is whole and no episode
    of it is lost.

    The seed of the first sample is that of a run's own evaluation, whose metrics it repeats.  Raises
    :class:`ConfigError` where a policy cannot read a world, before anything is played;
    :class:`..errors.LostEpisodesError` where more episodes of a condition are lost than ``faults`` allow.
    """
    try:
        for condition, team in zip(conditions, actors, strict=True):
            check_readable(condition, team)
            await condition.world.open()
        results = []
        for index, (condition, team) in enumerate(zip(conditions, actors, strict=True)):
            samples, tasks = [], [task.task_id for task in condition.tasks]
            for sample in range(condition.samples):
                known = partial.read(index, sample, tasks)
                if known is None:
                    seed = derive(request.seed, "eval", request.split, *([sample] if sample else []))
                    known = await _play_sample(condition, team, seed, played, faults)
                    if not lost_failures(known.episodes):
                        partial.write(index, sample, known)
                else:
                    played.take(known)
                samples.append(known)
            results.append(_result(condition, samples, request.pass_at))
        return results
    finally:
        for condition in conditions:
            await condition.world.close()


async def _play_sample(
    condition: Condition, team: Mapping[str, Actor], seed: int, played: Played, faults: FaultSettings
) -> PlayedSample:
    counted, start = {agent: _Counted(actor, played) for agent, actor in team.items()}, time.perf_counter()
    episodes = await evaluate(condition.world, condition.tasks, counted, seed, played.end_episode, faults)
    faults.check(lost_failures(episodes), len(episodes))
    messages, cut = ({agent: getattr(c, key) for agent, c in counted.items()} for key in ("messages", "cut"))
    return PlayedSample(episodes, time.perf_counter() - start, messages, cut)


def _result(condition: Condition, samples: Sequence[PlayedSample], pass_at: Sequence[int]) -> ConditionResult:
    messages, cut = Counter[str](), Counter[str]()
    for sample in samples:
        messages.update(sample.messages)
        cut.update(sample.cut)
    episodes = [sample.episodes for sample in samples]
    summary = summarise_samples(episodes, pass_at)
    summary |= {f"{agent}/{CUT}": cut[agent] / messages[agent] for agent in messages if cut[agent]}
    return ConditionResult(condition, episodes, summary, sum(sample.seconds for sample in samples))


def check_readable(condition: Condition, actors: Mapping[str, Actor]) -> None:
    """Encode the first observation of every task for the agents that act on it.  Raises :class:`ConfigError` where a
    policy cannot read one.
    """
    world = condition.world.fork()
    for task in condition.tasks:
        world.reset(task)
        if not world.begins_at_reset:  # the prompts are those of a program that does not run yet
            continue
        for agent in world.next_agents():
            actor = actors[agent]
            if isinstance(actor, PolicyActor):
                try:
                    actor.client.encode(agent, task.task_id, prompt_of(world, agent), world.tools(agent))
                except PromptError as error:
                    raise ConfigError(f"world ({condition.name}): {error}") from error
