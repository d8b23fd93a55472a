"""Episodes with given policies: success, avg@k and pass@k with 95 % intervals, turns, rewards per role, cost.

Success is one episode from the start state, at most T turns, on held-out tasks.  ``Silence`` and ``Echo`` stand in
for an agent to ask what it contributes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Protocol

from ..envs.base import TeamEnv
from ..experience import Task
from ..rollout.playing import act, together
from ..rollout.policy_client import PolicyClient
from ..rollout.seeds import derive
from .statistics import bootstrap_interval, pass_at_k, wilson


@dataclass(frozen=True)
class Reply:
    """What was said, and what it cost: ``tokens`` generated and ``prompt_tokens`` read; 0 for a remote policy."""

    text: str
    tokens: int = 0
    prompt_tokens: int = 0


class Actor(Protocol):
    """Whatever can say something in an agent's place."""

    async def reply(self, env: TeamEnv, agent: str, task: Task, heard: Mapping[str, str], seed: int) -> Reply: ...


@dataclass(frozen=True)
class PolicyActor:
    """A policy, sampled."""

    client: PolicyClient

    async def reply(self, env: TeamEnv, agent: str, task: Task, heard: Mapping[str, str], seed: int) -> Reply:
        prompt = self.client.encode(agent, task.task_id, env.observe(agent))
        place = (task.task_id, env.turn, agent)
        (completion,) = await self.client.speak(prompt, 1, derive(seed, *place), place)
        read = 0 if completion.text_only else len(prompt)
        return Reply(completion.text, len(completion.token_ids), read)


class Silence:
    """Says nothing: what remains of the team without this agent's messages."""

    async def reply(self, env: TeamEnv, agent: str, task: Task, heard: Mapping[str, str], seed: int) -> Reply:
        return Reply("")


@dataclass(frozen=True)
class Echo:
    """Repeats what another agent said last: its proposal is executed as it is."""

    of: str

    async def reply(self, env: TeamEnv, agent: str, task: Task, heard: Mapping[str, str], seed: int) -> Reply:
        return Reply(heard.get(self.of, ""))


@dataclass
class Result:
    """One episode as played; ``tokens`` were generated and ``prompt_tokens`` read for it, in ``env_steps`` steps.

    ``pictures`` of the world: at the start and after each turn, where it offers any.  ``world``: see :class:`Task`.
    """

    task_id: str
    success: bool
    turns: int
    messages: list[dict[str, Any]] = field(default_factory=list)
    tokens: int = 0
    prompt_tokens: int = 0
    env_steps: int = 0
    pictures: list[tuple[str, ...]] = field(default_factory=list)
    world: str = ""


async def play(env: TeamEnv, task: Task, actors: Mapping[str, Actor], seed: int) -> Result:
    """One episode of ``task``."""
    world = env.fork()
    world.reset(task)
    heard: dict[str, str] = {}
    result = Result(task.task_id, False, 0, world=task.world)
    if picture := world.picture():
        result.pictures.append(picture)
    while acting := world.next_agents():
        turn = world.turn
        asked = (actors[agent].reply(world, agent, task, heard, seed) for agent in acting)
        said = dict(zip(acting, await together(*asked), strict=True))
        texts = {agent: reply.text for agent, reply in said.items()}
        seen = {agent: world.observe(agent)[-1]["content"] for agent in acting}
        step = await act(world, texts)
        heard.update(texts)
        for agent, reply in said.items():
            result.messages.append(
                {"turn": turn, "agent": agent, "saw": seen[agent], "said": reply.text, "team": step.team}
                | {"local": step.local[agent], **step.info}
            )
            result.tokens += reply.tokens
            result.prompt_tokens += reply.prompt_tokens
        result.env_steps += 1
        result.success = step.success
        if world.turn > turn and (picture := world.picture()):
            result.pictures.append(picture)
    result.turns = world.turn
    return result


async def evaluate(
    env: TeamEnv,
    tasks: Sequence[Task],
    actors: Mapping[str, Actor],
    seed: int,
    played: Callable[[Result], None] = lambda result: None,
) -> list[Result]:
    """One episode a task, side by side, in the order of ``tasks``; ``played`` hears of each as it ends.

    Raises :class:`..envs.base.WorldFailure` where the world fails: success over the others would be of other tasks.
    """

    async def one(task: Task) -> Result:
        result = await play(env, task, actors, seed)
        played(result)
        return result

    return await together(*(one(task) for task in tasks))


def summarise(results: Sequence[Result]) -> dict[str, Any]:
    """Flat metrics of one episode a task: success with its 95 % Wilson interval, average turns, what was generated,
    read and stepped in all, and per role the mean reward a message and the shares of malformed and blocked messages.
    """
    return _success(results) | _averages(results)


def summarise_samples(samples: Sequence[Sequence[Result]]) -> dict[str, Any]:
    """Flat metrics of several samples, each one episode a task, of the same tasks in the same order.

    ``success`` is that of the first sample alone; the averages are over all episodes.  With n > 1 samples also
    ``avg@n``, the mean success of all, and ``pass@k`` for the powers of two from 2 to n and n itself
    (:func:`.statistics.pass_at_k`), each a mean over tasks with its 95 % bootstrap interval over tasks.
    """
    summary = _success(samples[0]) | {"tasks": len(samples[0]), "samples": len(samples)}
    if (n := len(samples)) > 1:
        wins = [sum(result.success for result in task) for task in zip(*samples, strict=True)]
        ks = sorted({2**i for i in range(1, n.bit_length())} | {n})
        shares = {f"avg@{n}": [c / n for c in wins]} | {f"pass@{k}": [pass_at_k(n, c, k) for c in wins] for k in ks}
        for name, values in shares.items():
            summary |= {name: fmean(values), f"{name}_ci95": list(bootstrap_interval(values))}
    return summary | _averages([result for sample in samples for result in sample])


def _success(results: Sequence[Result]) -> dict[str, Any]:
    successes = sum(result.success for result in results)
    return {"success": successes / len(results), "success_ci95": list(wilson(successes, len(results)))}


def _averages(results: Sequence[Result]) -> dict[str, Any]:
    summary: dict[str, Any] = {"turns": fmean(result.turns for result in results), "episodes": len(results)}
    for world in sorted({result.world for result in results} - {""}):
        summary[f"success_{world}"] = fmean(result.success for result in results if result.world == world)
    for cost in ("tokens", "prompt_tokens", "env_steps"):
        summary[cost] = sum(getattr(result, cost) for result in results)
    spoken = [message for result in results for message in result.messages]
    for agent in sorted({message["agent"] for message in spoken}):
        mine = [message for message in spoken if message["agent"] == agent]
        summary[f"{agent}/reward"] = fmean(m["team"] + m["local"] for m in mine)
        for name in ("malformed", "blocked"):
            if all(name in m for m in mine):
                summary[f"{agent}/{name}"] = fmean(m[name] for m in mine)
    return summary
