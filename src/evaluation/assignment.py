"""Which agent acts with which policy: its own, another agent's, another run's, a base model's, or none."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from ..envs.base import ScriptedSkill
from ..errors import ConfigError, nearest
from ..experience import Sampling
from ..rollout.engines.remote.settings import RemoteSettings
from .episodes import EchoActor
from .request import Checkpoint, EvalRequest, check_checkpoint


@dataclass(frozen=True)
class LocalPolicy:
    """A policy whose weights are loaded here, not loaded yet.

    ``weights`` is a folder or a hub name.  Where they are an adapter, ``base_model`` is the model under it; else that
    is None.  ``policy`` is the name that engines give it, ``configured_as`` its name in its run, ``chat`` the arguments
    of its chat template, ``engine`` the keys of an engine of its own.  ``key`` is the evaluation's key that asks for
    it, for errors.
    """

    key: str
    policy: str
    weights: str
    sampling: Sampling
    base_model: str | None = None
    chat: Mapping[str, Any] = field(default_factory=dict)
    configured_as: str = ""
    engine: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RemotePolicy:
    """A policy behind a server."""

    policy: str
    server: RemoteSettings
    sampling: Sampling


@dataclass(frozen=True)
class ScriptedPolicy:
    """A policy in whose place the world's demonstrator speaks."""

    policy: str
    skill: ScriptedSkill
    sampling: Sampling


TeamPolicy = LocalPolicy | RemotePolicy | ScriptedPolicy

SILENCE = ScriptedPolicy("silence", "silent", Sampling())
"""Nobody speaks for an agent."""

AgentSource = TeamPolicy | EchoActor
"""Where the messages of an agent come from."""

Assignment = Mapping[str, AgentSource]
"""By agent."""


class PolicySource(Protocol):
    """The policies of one team: a run's, or an experiment's that was never trained."""

    def policy(self, key: str, agent: str, checkpoint: Checkpoint) -> TeamPolicy:
        """The policy of ``agent`` at ``checkpoint``.  Raises :class:`ConfigError` naming ``key``."""
        ...


def assign(
    request: EvalRequest, agents: Sequence[str], team: PolicySource, others: Mapping[str, PolicySource]
) -> Assignment:
    """A source for each of ``agents``; ``others`` are the teams that ``agents.NAME=DIR[@CHECKPOINT]`` and
    ``agents.NAME=URL[@MODEL]`` name, by agent.  Without ``@CHECKPOINT`` it is the request's checkpoint, or ``best``
    beside an untrained team.

    Raises :class:`ConfigError` naming the key that is wrong.
    """
    _check_agents(request, agents)
    owners = _policy_owners(request, agents)
    assignment: dict[str, AgentSource] = {}
    for agent in agents:
        if agent in request.silence:
            assignment[agent] = SILENCE
        elif agent in request.echo:
            assignment[agent] = EchoActor(request.echo[agent])
        elif request.agents.get(agent) == "base":
            assignment[agent] = team.policy(f"agents.{agent}", agent, "base")
        elif agent in request.agents:
            assignment[agent] = others[agent].policy(f"agents.{agent}", agent, _other_checkpoint(request, agent))
        else:
            assignment[agent] = team.policy("checkpoint", owners[agent], request.checkpoint)
    assignment = {agent: _sampled(agent, source, request.sampling) for agent, source in assignment.items()}
    policies = {source.policy for source in assignment.values() if isinstance(source, TeamPolicy)}
    if request.swap and len(policies) == 1:
        raise ConfigError(f"swap changes nothing: all agents act with policy '{policies.pop()}'")
    return assignment


def _sampled(agent: str, source: AgentSource, changes: Mapping[str, Any]) -> AgentSource:
    """``source`` with other values of its sampling."""
    if not changes or not isinstance(source, TeamPolicy):
        return source
    if changes.get("top_k") and isinstance(source, RemotePolicy):
        raise ConfigError(f"sampling.top_k={changes['top_k']}: the server of agent '{agent}' takes no top_k")
    return replace(source, sampling=replace(source.sampling, **changes))


def server_address(place: str) -> tuple[str, str | None] | None:
    """(URL, model or None) of ``URL[@MODEL]``, the value of ``agents.NAME``; None where it is a folder."""
    match = re.fullmatch(r"(https?://[^/]*(?:/[^@]*)?)(?:@(.+))?", place)
    return (match[1], match[2]) if match else None


def _other_checkpoint(request: EvalRequest, agent: str) -> Checkpoint:
    """The checkpoint of the other run whose policy acts for ``agent``; a server has none to choose."""
    if server_address(request.agents[agent]):
        return "last"
    _, _, name = request.agents[agent].partition("@")
    if not name:
        return "best" if request.checkpoint == "base" else request.checkpoint
    check_checkpoint(f"agents.{agent}: checkpoint '{name}' is unknown", name)
    return name


def _check_agents(request: EvalRequest, agents: Sequence[str]) -> None:
    mentions = {f"agents.{agent}": agent for agent in request.agents}
    mentions |= {f"echo.{agent}": agent for agent in request.echo}
    mentions |= {f"silence={agent}": agent for agent in request.silence}
    mentions |= {f"echo.{agent}={of}": of for agent, of in request.echo.items()}
    for key, agent in mentions.items():
        if agent not in agents:
            raise ConfigError(f"{key}: the world has no agent '{agent}'{nearest(agent, agents)}")
    for agent, of in request.echo.items():
        if agents.index(of) >= agents.index(agent):
            raise ConfigError(f"echo.{agent}={of}: '{of}' does not act before '{agent}' in a turn")
    for agent in agents:
        keys = [key for key in ("silence", "echo", "agents") if agent in getattr(request, key)]
        if len(keys) > 1:
            raise ConfigError(f"{' and '.join(keys)} both decide the messages of agent '{agent}': give one of them")
    for key in ("silence", "echo", "agents"):
        if request.swap and getattr(request, key):
            raise ConfigError(f"swap and {key} both assign policies to agents: give one of them")


def _policy_owners(request: EvalRequest, agents: Sequence[str]) -> dict[str, str]:
    """Agent -> the agent whose policy it acts with."""
    if not request.swap:
        return {agent: agent for agent in agents}
    if request.swap is True:
        if len(agents) != 2:
            raise ConfigError(
                f"swap=true exchanges two agents, the world has {', '.join(agents)}: give swap={{AGENT:AGENT,...}}"
            )
        return dict(zip(agents, reversed(agents), strict=True))
    owners = {agent: request.swap.get(agent, agent) for agent in agents}
    for agent in [*request.swap, *request.swap.values()]:
        if agent not in agents:
            raise ConfigError(f"swap: the world has no agent '{agent}'{nearest(agent, agents)}")
    if sorted(owners.values()) != sorted(agents):
        raise ConfigError(f"swap={owners} is no permutation: each agent's policy must be used exactly once")
    return owners
