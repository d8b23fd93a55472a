"""Pictures of a tree: what the world looked like before each message, and what it would look like after it.

A sampler leaves no worlds behind, so the tree is played once more, from its own texts.  A fork copies the random state,
so the world answers as it did.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..envs.base import TeamEnv
from ..experience import Episode, JointAction, Task
from ..rollout.playing import advance, drawn, failure_of, start_env

Picture = Mapping[str, str]
"""``text``, rows of characters, or ``svg`` with ``text`` that says the same."""


@dataclass
class Pictures:
    """By node its picture, and by (node, candidate) what followed the joint action of the candidates of that number:
    ``picture``, ``success``, ``done``.  ``problem``: why there are none, or no more; "" where all are there.
    """

    before: dict[int, Picture] = field(default_factory=dict)
    after: dict[tuple[int, int], dict[str, Any]] = field(default_factory=dict)
    problem: str = ""


async def pictures(world: TeamEnv, task: Task, episode: Episode) -> Pictures:
    """Play ``episode`` once more on a fork of ``world``.

    A fault of the world ends it; nothing else is lost by that.
    """
    result = Pictures()
    if not world.forkable:
        return Pictures(problem="the world cannot be played twice in the same way")
    branches = episode.branches
    queue: deque[tuple[TeamEnv, int]] = deque()
    try:
        if episode.nodes:
            queue.append((await start_env(world, task), 0))
        while queue:
            env, first = queue.popleft()
            edges = branches[first]
            nodes = {agent: node for agent, (node, _) in edges[0].members.items()}
            drawing = picture(env)
            for node in nodes.values():
                if drawing:
                    result.before[node] = drawing
            for members in _joint_actions(episode, nodes, edges):
                after = env.fork()
                texts = {
                    agent: episode.nodes[node].candidates[c].completion.text for agent, (node, c) in members.items()
                }
                step = (await advance(after, texts)).result
                if problem := _difference(episode, members, step.local):
                    return Pictures(problem=problem)
                told = {"success": step.success, "done": step.done, "picture": picture(after)}
                for node, c in members.values():
                    result.after.setdefault((node, c), told)
                edge = next((each for each in edges if dict(each.members) == members), None)
                if edge is not None and edge.child is not None:
                    queue.append((after, edge.child))
            await asyncio.sleep(0)  # engines and interrupts have their turn
    except Exception as error:
        if (failure := failure_of(error, task)) is None:
            raise
        result.problem = f"the world failed while its pictures were drawn: {failure.message}"
    return result


def picture(env: TeamEnv) -> Picture | None:
    """The world now: rows of characters, which a page draws itself, or the world's own SVG; None where it has none."""
    if rows := env.picture():
        return {"text": "\n".join(rows)}
    return drawn(env)


def _joint_actions(
    episode: Episode, nodes: Mapping[str, int], edges: Sequence[JointAction]
) -> list[dict[str, tuple[int, int]]]:
    """The aligned ones, candidate c of every agent, also those without an edge; then the others."""
    count = min(len(episode.nodes[node].candidates) for node in nodes.values())
    aligned = [{agent: (node, c) for agent, node in nodes.items()} for c in range(count)]
    known = [dict(edge.members) for edge in edges]
    return aligned + [members for members in known if members not in aligned]


def _difference(episode: Episode, members: Mapping[str, tuple[int, int]], local: Mapping[str, float]) -> str:
    """A sentence where the world did not answer as it did: its noise is not copied by a fork."""
    for agent, (node, c) in members.items():
        candidate = episode.nodes[node].candidates[c]
        joint_actions = sum((node, c) in edge.members.values() for edge in episode.edges)
        if joint_actions <= 1 and candidate.local != local[agent]:  # of several the candidate has the mean
            return f"played once more, the world gave {agent} {local[agent]:g} instead of {candidate.local:g}"
    return ""
