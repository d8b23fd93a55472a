"""A stored episode, forked at any turn: the stored continuation beside new ones by other policies or other sampling."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.console import Console

from ..errors import ConfigError, nearest
from ..evaluation.assignment import LocalPolicy, RemotePolicy, ScriptedPolicy
from ..evaluation.conditions import Condition
from ..evaluation.episodes import Actor, EchoActor, EpisodeResult, PolicyActor, play_on
from ..evaluation.records import file_name
from ..evaluation.replay import Fork, replay_to, take
from ..evaluation.request import EvalRequest
from ..evaluation.stored import StoredEpisode, StoredMessage, locate_episode
from ..experience import Task
from ..reports.replay import Continuation, show_replay
from ..rollout.seeds import derive
from ..runs.files import CONFIG, EVALUATIONS, read_object
from ..runs.run import Run
from ..setup.actors import ActorFactory
from ..setup.evaluation import TeamSource, build_conditions, other_teams, read_request, trained_team
from ..setup.instantiation import call
from ..setup.preflight import set_threads
from ..setup.trust import Trust

SAMPLING = ("top_p", "top_k", "max_tokens")
"""The keys of ``sampling`` beside ``temperature``."""


@dataclass(frozen=True)
class Place:
    """Where a stored episode is forked: at ``turn``, from 0, where ``agent`` is to speak (None: the first of the turn),
    or at ``node`` of a tree.  ``candidate``, from 0: the candidate there that goes on; None: a new message.
    """

    turn: int
    agent: str | None
    node: int | None
    candidate: int | None


@dataclass(frozen=True)
class Replay:
    """A stored ``episode``, its messages ``before`` the fork, what followed it in the file and the ``new`` episodes,
    whole; ``checked`` says how many answers of the world were compared."""

    episode: StoredEpisode
    turn: int
    agent: str
    before: Sequence[Mapping[str, Any]]
    stored: Continuation
    new: Sequence[EpisodeResult]
    speakers: Mapping[str, str]
    checked: Mapping[str, int]

    def record(self) -> dict[str, Any]:
        """As JSON has it."""
        stored = {"success": self.stored.success, "turns": self.stored.turns, "messages": list(self.stored.messages)}
        new = [
            {"success": each.success, "turns": each.turns, "messages": each.messages[len(self.before) :]}
            for each in self.new
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
    place, samples = _place(keys), _whole("samples", keys["samples"], 1)
    team = trained_team("run", _required(keys, "run"), Trust.of(keys["trust"]))
    assert team.run is not None
    run = Run(team.run.path, tolerant=True)
    episode = locate_episode(run, _required(keys, "episode"), keys["sample"], place.node)
    if (threads := team.config["threads"] if keys["threads"] is None else keys["threads"]) is not None:
        call("threads", set_threads, threads)
    request = read_request(_request_keys(keys, episode, team), team)
    condition = _condition(episode, build_conditions(request, team, other_teams(request, team)))
    task = _task(episode, condition.tasks)
    _check_place(place, episode, condition)
    replay = asyncio.run(_replay(episode, place, samples, condition, task, request, keys["sampling"], team))
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


def _whole(key: str, value: Any, least: int) -> int:
    if type(value) is not int or value < least:
        raise ConfigError(f"{key} must be a whole number of at least {least}, got {value!r}")
    return value


def _place(keys: Mapping[str, Any]) -> Place:
    if (keys["turn"] is None) == (keys["node"] is None):
        raise ConfigError("give either turn=T, from 1, or node=N of a training tree, from 0")
    if keys["node"] is not None and keys["agent"] is not None:
        raise ConfigError("node and agent both say who speaks at the fork: give one of them")
    node = None if keys["node"] is None else _whole("node", keys["node"], 0)
    turn = 0 if keys["turn"] is None else _whole("turn", keys["turn"], 1) - 1
    candidate = None if keys["candidate"] is None else _whole("candidate", keys["candidate"], 1) - 1
    return Place(turn, keys["agent"], node, candidate)


def _request_keys(keys: Mapping[str, Any], episode: StoredEpisode, team: TeamSource) -> dict[str, Any]:
    """The keys of the evaluation whose tasks hold that of ``episode``, with the policies that ``keys`` name."""
    config, run = team.config, team.run
    assert run is not None
    request = {key: keys[key] for key in ("checkpoint", "seed", "swap", "agents", "silence", "echo")}
    request |= {"samples": 1, "temperature": keys["sampling"]["temperature"] or "own", "world": {}, "benchmark": []}
    if keys["sampling"]["temperature"] == 0:
        request["temperature"] = 0
    request |= {"data": {}, "tasks": None, "task_seed": None, "split": episode.split}
    if "/" in episode.name:
        folder = run.path / EVALUATIONS / episode.name.partition("/")[0]
        own = read_object(folder / CONFIG)[0]
        if missing := [key for key in request if key not in own]:
            raise ConfigError(f"{folder / CONFIG} has no '{missing[0]}': its world and tasks are not known")
        changes = {key: value for key, value in request.items() if key in keys and value not in (None, {}, [], False)}
        speaking = "temperature" if keys["sampling"]["temperature"] is not None else ""
        return own | changes | ({speaking: request[speaking]} if speaking else {})
    if episode.split == "train":
        assert episode.iteration is not None
        row = next((row for row in run.rows if row["iteration"] == episode.iteration + 1), {})
        count = row.get("rollout/tasks", config["loop"].get("tasks_per_iteration"))
        request |= {"tasks": count, "task_seed": derive(config["seed"], "train", episode.iteration)}
    return request


def _condition(episode: StoredEpisode, conditions: Sequence[Condition]) -> Condition:
    """That of ``episode``: of a later evaluation the one that its file is named after, but for its temperature."""
    name = episode.name.partition("/")[2]

    def fit(condition: Condition) -> tuple[bool, int]:
        world = file_name(condition.name.rpartition(",")[0])
        return file_name(condition.name) == name, len(world) if name.startswith(world) else -1

    return max(conditions, key=fit)


def _task(episode: StoredEpisode, tasks: Sequence[Task]) -> Task:
    for task in tasks:
        if task.task_id == episode.task_id:
            return task
    raise ConfigError(
        f"{episode.place}: the world no longer draws this task: it is not among the {len(tasks)} tasks of "
        f"{episode.split or 'the evaluation'} that the run's configuration asks for"
    )


def _check_place(place: Place, episode: StoredEpisode, condition: Condition) -> None:
    agents = condition.world.agents
    if place.agent is not None and place.agent not in agents:
        raise ConfigError(f"agent={place.agent}: the world has no agent '{place.agent}'{nearest(place.agent, agents)}")
    turns = episode.messages[-1].turn + 1
    if place.turn >= turns:
        raise ConfigError(f"turn={place.turn + 1}: {episode.place} has {turns} turn{'s' if turns > 1 else ''}")


# ---- the replay -----------------------------------------------------------------------------------------------------


async def _replay(
    episode: StoredEpisode,
    place: Place,
    samples: int,
    condition: Condition,
    task: Task,
    request: EvalRequest,
    sampling: Mapping[str, Any],
    team: TeamSource,
) -> Replay:
    factory, world = ActorFactory(team.config["engine"]), condition.world
    try:
        await world.open()
        fork = await replay_to(world, task, episode, place.turn, place.agent, place.node)
        before, turn, agent = list(fork.result.messages), fork.world.turn, fork.world.next_agents()[0]
        stored = _stored(fork, episode, before)
        if place.candidate is not None:
            await take(fork, _siblings(fork.rest[: len(fork.world.next_agents())], place.candidate))
        factory.prepare(condition.assignment.values())
        actors = {name: factory.actor(source, condition.temperature) for name, source in condition.assignment.items()}
        actors = {name: _sampling(actor, sampling) for name, actor in actors.items()}
        new = [await _continued(fork, task, actors, request, number) for number in range(samples)]
    finally:
        await world.close()
        await factory.close()
    speakers = {name: _speaker(source) for name, source in condition.assignment.items()}
    return Replay(episode, turn, agent, before, stored, new, speakers, fork.checked)


async def _continued(
    fork: Fork, task: Task, actors: Mapping[str, Actor], request: EvalRequest, number: int
) -> EpisodeResult:
    """With the seeds of an evaluation: the policies that played a stored episode give its messages again."""
    seed = derive(request.seed, "eval", request.split, *([number] if number else []))
    result, texts = copy.deepcopy(fork.result), dict(fork.last_texts)
    return await play_on(fork.world.fork(), task, actors, seed, result, texts)


def _siblings(messages: Sequence[StoredMessage], candidate: int) -> dict[str, str]:
    for message in messages:
        if message.node is None:
            raise ConfigError("candidate: an evaluated episode has one message per prompt; only trees have candidates")
        if candidate >= len(message.candidates):
            count = len(message.candidates)
            raise ConfigError(f"candidate={candidate + 1}: the prompt of {message.agent} has {count} candidates")
    return {message.agent: message.candidates[candidate] for message in messages}


def _sampling(actor: Actor, sampling: Mapping[str, Any]) -> Actor:
    changes = {key: sampling[key] for key in SAMPLING if sampling[key] is not None}
    if not changes or not isinstance(actor, PolicyActor):
        return actor
    client = actor.client
    return replace(actor, client=replace(client, sampling=call("sampling", replace, client.sampling, **changes)))


def _stored(fork: Fork, episode: StoredEpisode, before: Sequence[Mapping[str, Any]]) -> Continuation:
    messages = [
        {"turn": message.turn, "agent": message.agent, "said": message.said}
        | {key: value for key, value in message.answer.items() if value is not None}
        for message in fork.rest
    ]
    pictures = {message.turn: message.picture for message in reversed(fork.rest) if message.picture}
    title = f"stored, {episode.name}"
    return Continuation(title, messages, episode.success, episode.turns, pictures, episode.end)


def _speaker(source: Any) -> str:
    if isinstance(source, LocalPolicy):
        return f"{source.policy}, {source.weights}"
    if isinstance(source, RemotePolicy):
        return f"{source.policy}, {source.server.url}"
    if isinstance(source, ScriptedPolicy):
        return f"demonstrator, {source.skill}"
    return f"echo of {source.of}" if isinstance(source, EchoActor) else "silent"


# ---- what is shown --------------------------------------------------------------------------------------------------


def _show(console: Console, replay: Replay, run: Run) -> None:
    checked = ", ".join(f"{n} {kind[:-1] if n == 1 else kind}" for kind, n in replay.checked.items())
    proof = (
        f"the world repeats the stored episode up to there: compared {checked}" if checked else "forked at the start"
    )
    heads = [f"{replay.episode.place}, forked at turn {replay.turn + 1}, {replay.agent}", str(run.path), proof]
    heads += [f"{agent}: {speaker}" for agent, speaker in replay.speakers.items()]
    news = [
        _new(result, len(replay.before), f"new{f' {n}' if len(replay.new) > 1 else ''}")
        for n, result in enumerate(replay.new, 1)
    ]
    show_replay(console, heads, replay.before, [replay.stored, *news])


def _new(result: EpisodeResult, begin: int, title: str) -> Continuation:
    texts = [each["text"] if isinstance(each, dict) else "\n".join(each) for each in result.pictures]
    pictures = dict(enumerate(texts))
    messages = result.messages[begin:]
    return Continuation(title, messages, result.success, result.turns, pictures, texts[-1] if texts else "")
