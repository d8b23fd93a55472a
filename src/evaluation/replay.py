"""A stored episode played once more up to a fork, and the proof that the world answers as it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..envs.base import TeamEnv
from ..experience import Task
from ..rollout.playing import Answer, Step, drawn, prompt_of, start_env
from .episodes import Earlier, EpisodeResult, with_messages
from .stored import StoredEpisode, StoredMessage

DIFFERS = "the world does not repeat the stored episode. The first difference is in"


class ReplayError(ValueError):
    """A stored episode that the world does not repeat; the message names the first difference."""


@dataclass
class Fork:
    """``world`` at a place of a stored episode: ``result`` is the episode until there, ``earlier`` its messages, of
    which no tokens are stored, and ``rest`` the stored messages that followed.  ``checked``: how many answers of the
    world were compared with the stored ones, by their kind.
    """

    world: TeamEnv
    result: EpisodeResult
    earlier: Earlier
    rest: Sequence[StoredMessage]
    checked: dict[str, int] = field(default_factory=dict)


async def replay_to(
    prototype: TeamEnv, task: Task, episode: StoredEpisode, turn: int, agent: str | None = None, node: int | None = None
) -> Fork:
    """Play the stored messages of ``episode`` up to ``turn``, from 0, where ``agent`` is to speak (None: the first of
    the turn), or up to ``node``.

    Every stored observation, reward, number and picture up to there is compared with the world's answer, exactly.
    Raises :class:`ReplayError`, naming the first difference, and where the episode has no such place.
    """
    world = await start_env(prototype, task)
    fork = Fork(world, EpisodeResult(task.task_id, False, 0, world=task.world), {}, list(episode.messages))
    fork.result.see(world, drawings=True)
    while not _reached(fork, turn, agent, node):
        await _step(fork, episode)
    following = fork.rest[: len(fork.world.next_agents())]
    _check_agents(fork, episode, following)
    _check_pictures(fork, following)
    for message in (message for message in following if "saw" in message.answer):
        saw = {"saw": prompt_of(fork.world, message.agent)[-1]["content"]}
        _compare(fork, replace(message, answer={"saw": message.answer["saw"]}), saw)
    return fork


def _reached(fork: Fork, turn: int, agent: str | None, node: int | None) -> bool:
    """Raises :class:`ReplayError` where the stored messages end before."""
    if not fork.rest:
        last = fork.result.turns
        where = f"node {node}" if node is not None else f"turn {turn + 1}{f' of {agent}' if agent else ''}"
        raise ReplayError(f"{where} is not there: the stored episode ends after {last} turn{'s' if last != 1 else ''}")
    if node is not None:
        return any(message.node == node for message in fork.rest[: len(fork.world.next_agents())])
    return fork.world.turn == turn and (agent is None or agent in fork.world.next_agents())


async def _step(fork: Fork, episode: StoredEpisode) -> None:
    stored = fork.rest[: len(fork.world.next_agents())]
    _check_agents(fork, episode, stored)
    _check_pictures(fork, stored)
    await take(fork, {message.agent: message.said for message in stored})
    for message, answer in zip(stored, fork.result.messages[-len(stored) :], strict=True):
        _compare(fork, message, answer)
    fork.rest = fork.rest[len(stored) :]


def _check_agents(fork: Fork, episode: StoredEpisode, stored: Sequence[StoredMessage]) -> None:
    turn, agents = fork.world.turn, fork.world.next_agents()
    if not agents:
        raise ReplayError(f"{episode.place}: the world's episode is over after turn {turn}, the stored one is not")
    if [(message.turn, message.agent) for message in stored] != [(turn, agent) for agent in agents]:
        said = ", ".join(f"{message.agent} in turn {message.turn + 1}" for message in stored)
        now = f"{', '.join(agents)} in turn {turn + 1}"
        raise ReplayError(f"{episode.place}: stored are messages of {said}, but the world now asks {now}")


async def take(fork: Fork, texts: Mapping[str, str]) -> None:
    """Step the fork's world with ``texts``, which become part of its episode."""
    step = await Step.take(fork.world, {agent: Answer(text) for agent, text in texts.items()})
    fork.result.add(step)
    fork.world, fork.earlier = step.transition.env, with_messages(fork.earlier, step.said)


def _compare(fork: Fork, stored: StoredMessage, answer: Mapping[str, Any]) -> None:
    for key, value in stored.answer.items():
        if key not in answer or not _same(answer[key], value):
            now = repr(answer[key]) if key in answer else "nothing"
            raise ReplayError(
                f"{DIFFERS} turn {stored.turn + 1}, agent {stored.agent}, {key}: stored {value!r}, now {now}"
            )
        kind = {"saw": "observations", "session": "sessions", "team": "rewards", "local": "rewards"}.get(key, "")
        if key not in ("turn", "agent", "said"):
            fork.checked[kind or "numbers"] = fork.checked.get(kind or "numbers", 0) + 1


def _same(now: Any, stored: Any) -> bool:
    return bool(now == stored) or (now != now and stored != stored)  # not a number is itself here


def _check_pictures(fork: Fork, stored: Sequence[StoredMessage]) -> None:
    """The world before the messages ``stored``."""
    for message in stored[:1]:
        if message.picture:
            rows = fork.world.picture()
            drawing = None if rows else drawn(fork.world)
            now = "\n".join(rows) if rows else drawing["text"] if drawing else ""
            if now != message.picture:
                raise ReplayError(
                    f"{DIFFERS} turn {message.turn + 1}, the picture before the message of {message.agent}: "
                    f"stored\n{message.picture}\nnow\n{now}"
                )
            fork.checked["pictures"] = fork.checked.get("pictures", 0) + 1
