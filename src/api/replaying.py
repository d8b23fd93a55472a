"""A stored episode, forked at any turn: the stored continuation beside new ones by other policies or other sampling."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from rich.console import Console

from ..errors import ConfigError, Natural, Positive, check_fields, nearest, number_of
from ..evaluation.assignment import AgentSource, LocalPolicy, RemotePolicy, ScriptedPolicy
from ..evaluation.conditions import Condition
from ..evaluation.episodes import Actor, EpisodeResult, play_to_end
from ..evaluation.records import file_name
from ..evaluation.replay import Fork, replay_to, take
from ..evaluation.request import EvalRequest, given_sampling
from ..evaluation.stored import StoredEpisode, StoredMessage, locate_episode
from ..experience import Task
from ..models.pools.checkpoint import STATE
from ..reports.console import ShownContinuation, show_replay
from ..rollout.engines.requests import derive
from ..runs.files import CHECKPOINTS, CONFIG, EVALUATIONS, read_object
from ..runs.run import RunReader
from ..setup.checks import set_threads
from ..setup.evaluation import TeamSource, build_conditions, read_request, trained_team
from ..setup.evaluation_actors import ActorFactory
from ..setup.trust import Trust


@dataclass(frozen=True)
class Place:
    """Where a stored episode is forked: where ``turn`` begins, from 1, or where ``agent`` is to speak in it; or at
    ``node``, from 0, of a tree.  ``sample``, from 0, is one of several episodes of the task.  ``candidate``, from 1, is
    the candidate there that goes on; None: a new message.  ``samples`` are the continuations.

    Raises :class:`ConfigError` naming the key that is wrong.
    """

    turn: Positive | None
    agent: str | None
    node: Natural | None
    sample: Natural | None
    candidate: Positive | None
    samples: Positive

    def __post_init__(self) -> None:
        check_fields(self, error=ConfigError)
        if self.turn is not None and self.node is not None:
            raise ConfigError("turn and node both say where the fork is: give one of them")
        if self.node is not None and self.agent is not None:
            raise ConfigError("node and agent both say who speaks at the fork: give one of them")

    def check(self, episode: StoredEpisode) -> None:
        """Raise :class:`ConfigError` where ``episode`` has no such place."""
        turns = episode.messages[-1].turn + 1
        has = f"{episode.place} has {number_of(turns, 'turn')}"
        if self.turn is None and self.node is None:
            raise ConfigError(f"give either turn=T, from 1, or node=N of a training tree, from 0: {has}")
        if self.turn is not None and self.turn > turns:
            raise ConfigError(f"turn={self.turn}: {has}")


@dataclass(frozen=True)
class Replay:
    """A stored ``episode``, its messages ``before`` the fork, what followed it in the file and the ``new`` episodes,
    whole.  Their first ``forced`` messages after the fork are those of a candidate, not of a policy; ``checked`` says
    how many answers of the world were compared."""

    episode: StoredEpisode
    turn: int
    agent: str
    before: Sequence[Mapping[str, Any]]
    stored: ShownContinuation
    new: Sequence[EpisodeResult]
    speakers: Mapping[str, str]
    checked: Mapping[str, int]
    forced: int = 0
    weights: str = ""
    """A sentence, where others play than those that sampled the episode."""

    def continued(self, number: int) -> list[dict[str, Any]]:
        """The messages of new episode ``number`` after the fork; those that were forced have the key ``forced``."""
        messages = self.new[number].messages[len(self.before) :]
        return [message | ({"forced": True} if n < self.forced else {}) for n, message in enumerate(messages)]

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        stored = {"success": self.stored.success, "turns": self.stored.turns, "messages": list(self.stored.messages)}
        new = [
            {"success": each.success, "turns": each.turns, "messages": self.continued(number)}
            for number, each in enumerate(self.new)
        ]
        place = {"episode": self.episode.place, "sample": self.episode.sample, "turn": self.turn + 1}
        place |= {"agent": self.agent, "speakers": dict(self.speakers), "checked": dict(self.checked)}
        return place | {"replayed": list(self.before), "stored": stored, "new": new}


def replay_episode(keys: Mapping[str, Any], console: Console | None = None) -> Replay:
    """Replay what ``keys``, those of ``configs/replay.yaml``, describe, and show it.

    Raises ``ValueError`` (or a subclass) naming the key that is wrong, and
    :class:`~troupe.evaluation.replay.ReplayError` where the world does not repeat the stored episode.
    """
    console = console or Console(highlight=False)
    team = trained_team("run", _required(keys, "run"), Trust.of(keys["trust"]))
    assert team.run is not None
    run = RunReader(team.run.path, tolerant=True)
    asked, place = _required(keys, "episode"), Place(**{each.name: keys[each.name] for each in fields(Place)})
    episode = locate_episode(run, asked, place.sample, place.node)
    place.check(episode)
    set_threads(keys["threads"], team.config["threads"])
    request = read_request(_request_keys(keys, episode, team), team)
    condition = _condition(episode, build_conditions(request, team))
    task = _task(episode, condition.tasks)
    _check_agent(place, condition)
    replay = asyncio.run(_replay(episode, place, condition, task, request, team))
    if keys["json"]:
        console.print(json.dumps(replay.record()), markup=False, soft_wrap=True)
    else:
        _show(console, replay, run)
    return replay


# ---- the keys -------------------------------------------------------------------------------------------------------


def _required(keys: Mapping[str, Any], key: str) -> str:
    if keys[key] is None:
        raise ConfigError(f"replay needs {key}=: run=DIR episode=FILE/TASK turn=T")
    return str(keys[key])


def _request_keys(keys: Mapping[str, Any], episode: StoredEpisode, team: TeamSource) -> dict[str, Any]:
    """The keys of the evaluation whose tasks hold that of ``episode``, with the policies that ``keys`` name."""
    config, run = team.config, team.run
    assert run is not None
    changed = given_sampling(keys["sampling"])
    sampling = {key: value for key, value in changed.items() if key != "temperature"}
    request = {key: keys[key] for key in ("checkpoint", "seed", "swap", "agents", "silence", "echo")}
    request |= {"samples": 1, "temperature": changed.get("temperature", "own"), "world": {}, "benchmark": []}
    request |= {"data": {}, "tasks": None, "task_seed": None, "split": episode.split}
    if "/" in episode.name:
        folder = run.path / EVALUATIONS / episode.name.partition("/")[0]
        own = read_object(run.path, f"{EVALUATIONS}/{folder.name}/{CONFIG}")[0]
        if missing := [key for key in request if key not in own]:
            raise ConfigError(f"{folder / CONFIG} has no '{missing[0]}': its world and tasks are not known")
        changes = {key: value for key, value in request.items() if key in keys and not _is_default(value)}
        changes |= {key: changed[key] for key in ("temperature",) if key in changed}
        return own | changes | {"sampling": {**(own.get("sampling") or {}), **sampling}}
    if episode.split == "train":
        assert episode.iteration is not None
        row = next((row for row in run.rows if row["iteration"] == episode.iteration + 1), {})
        count = row.get("rollout/tasks", config["loop"].get("tasks_per_iteration"))
        request |= {"tasks": count, "task_seed": derive(config["seed"], "train", episode.iteration)}
    return request | {"sampling": sampling}


def _is_default(value: Any) -> bool:
    """Whether the key of the command was left as it is; 0 is a seed."""
    return value is None or value is False or value in ({}, [])


def _condition(episode: StoredEpisode, conditions: Sequence[Condition]) -> Condition:
    """That of ``episode``: of a later evaluation the one that its file is named after, but for its temperature."""
    name = episode.name.partition("/")[2]

    def fit(condition: Condition) -> tuple[bool, int]:
        world = file_name(condition.name.rpartition(",")[0])
        return file_name(condition.name) == name, len(world) if name.startswith(world) else -1

    return max(conditions, key=fit)


def _task(episode: StoredEpisode, tasks: Sequence[Task]) -> Task:
    if (task := next((task for task in tasks if task.task_id == episode.task_id), None)) is not None:
        return task
    raise ConfigError(
        f"{episode.place}: the world no longer draws this task: it is not among the {len(tasks)} tasks of "
        f"{episode.split or 'the evaluation'} that the run's configuration asks for"
    )


def _check_agent(place: Place, condition: Condition) -> None:
    agents = condition.world.agents
    if place.agent is not None and place.agent not in agents:
        raise ConfigError(f"agent={place.agent}: the world has no agent '{place.agent}'{nearest(place.agent, agents)}")


# ---- the replay -----------------------------------------------------------------------------------------------------


async def _replay(
    episode: StoredEpisode,
    place: Place,
    condition: Condition,
    task: Task,
    request: EvalRequest,
    team: TeamSource,
) -> Replay:
    factory, world = ActorFactory(team.config["engine"]), condition.world
    try:
        await world.open()
        fork = await replay_to(world, task, episode, (place.turn or 1) - 1, place.agent, place.node)
        before, turn, agents = list(fork.result.messages), fork.world.turn, fork.world.next_agents()
        if place.agent is not None and len(agents) > 1:
            raise ConfigError(
                f"agent={place.agent}: {', '.join(agents)} speak at once in turn {turn + 1}, and a fork is where all "
                "of them begin; leave agent out"
            )
        stored = _stored(fork, episode, before)
        if place.candidate is not None:
            await take(fork, _siblings(fork.rest[: len(agents)], place.candidate))
        actors = factory.team(condition.assignment, condition.temperature)
        new = [await _continued(fork, task, actors, request, number) for number in range(place.samples)]
    finally:
        await world.close()
        await factory.close()
    speakers = {name: _speaker(source) for name, source in condition.assignment.items()}
    forced = len(agents) if place.candidate is not None else 0
    weights = _other_weights(episode, request.checkpoint, team.run)
    return Replay(episode, turn, ", ".join(agents), before, stored, new, speakers, fork.checked, forced, weights)


def _other_weights(episode: StoredEpisode, checkpoint: str, run: RunReader | None) -> str:
    """What plays in place of the weights of a training tree; "" where they are the same."""
    if run is None or not episode.name.startswith("train_"):
        return ""
    state = {} if checkpoint == "base" else read_object(run.path, f"{CHECKPOINTS}/{checkpoint}/{STATE}")[0]
    iterations = 0 if checkpoint == "base" else state.get("iteration")
    if iterations == episode.iteration:
        return ""
    after = "" if iterations is None else f" (after {number_of(iterations, 'iteration')})"
    return f"the tree's weights, after {episode.iteration}, are not kept: {checkpoint}{after} plays"


async def _continued(
    fork: Fork, task: Task, actors: Mapping[str, Actor], request: EvalRequest, number: int
) -> EpisodeResult:
    """With the seeds of an evaluation: the policies that played a stored episode give its messages again."""
    seed = derive(request.seed, "eval", request.split, *([number] if number else []))
    return await play_to_end(fork.world, task, actors, seed, copy.deepcopy(fork.result), fork.earlier)


def _siblings(messages: Sequence[StoredMessage], candidate: int) -> dict[str, str]:
    for message in messages:
        if message.node is None:
            raise ConfigError("candidate: an evaluated episode has one message per prompt; only trees have candidates")
        if candidate > (count := len(message.candidates)):
            raise ConfigError(f"candidate={candidate}: the prompt of {message.agent} has {count} candidates")
    return {message.agent: message.candidates[candidate - 1] for message in messages}


def _stored(fork: Fork, episode: StoredEpisode, before: Sequence[Mapping[str, Any]]) -> ShownContinuation:
    messages = [
        {"turn": message.turn, "agent": message.agent, "said": message.said, **message.rewards}
        | {key: value for key, value in message.answer.items() if value is not None}
        for message in fork.rest
    ]
    pictures = {message.turn: message.picture for message in reversed(fork.rest) if message.picture}
    title = f"stored, {episode.name}"
    return ShownContinuation(title, messages, episode.success, episode.turns, pictures, episode.end)


def _speaker(source: AgentSource) -> str:
    if isinstance(source, LocalPolicy):
        return f"{source.policy}, {source.weights}"
    if isinstance(source, RemotePolicy):
        return f"{source.policy}, {source.server.url}"
    if isinstance(source, ScriptedPolicy):
        return "silent" if source.skill == "silent" else f"demonstrator, {source.skill}"
    return f"echo of {source.of}"


# ---- what is shown --------------------------------------------------------------------------------------------------


def _show(console: Console, replay: Replay, run: RunReader) -> None:
    checked = ", ".join(number_of(n, kind[:-1]) for kind, n in replay.checked.items())
    proof = (
        f"the world repeats the stored episode up to there: compared {checked}" if checked else "forked at the start"
    )
    heads = [f"{replay.episode.place}, forked at turn {replay.turn + 1}, {replay.agent}", str(run.path), proof]
    heads += [replay.weights] if replay.weights else []
    heads += [f"{agent}: {speaker}" for agent, speaker in replay.speakers.items()]
    news = [
        _new(result, replay.continued(n), f"new{f' {n + 1}' if len(replay.new) > 1 else ''}")
        for n, result in enumerate(replay.new)
    ]
    show_replay(console, heads, replay.before, [replay.stored, *news])


def _new(result: EpisodeResult, messages: Sequence[Mapping[str, Any]], title: str) -> ShownContinuation:
    texts = [each["text"] if isinstance(each, dict) else "\n".join(each) for each in result.pictures]
    pictures = dict(enumerate(texts))
    return ShownContinuation(title, messages, result.success, result.turns, pictures, texts[-1] if texts else "")
