"""Who stands behind each agent in an evaluation: weights of a run, weights of another one, or a stand-in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, get_args

from ..errors import ConfigError, nearest
from ..evaluation.episodes import Echo, Silence
from ..evaluation.request import Checkpoint, Questions
from ..experience import Sampling
from ..rollout.engines.remote.settings import RemoteSettings
from ..runs.fingerprint import flat
from ..runs.run import Run
from .policies import read_chat, read_remote, read_sampling


@dataclass(frozen=True)
class Weights:
    """A policy that is to speak: its weights (``base``: a folder or a hub name), and its own way of sampling.

    Where the weights are an adapter, it lies on the model ``below``; else that is None.  ``key`` is the key of the
    evaluation that asked for it.  ``chat`` is what the chat template is given; ``named`` is the policy's name in its
    run.
    """

    key: str
    policy: str
    base: str
    sampling: Sampling
    below: str | None = None
    chat: Mapping[str, Any] = field(default_factory=dict)
    named: str = ""


@dataclass(frozen=True)
class Remote:
    """A policy that speaks through a server, and its own way of sampling."""

    policy: str
    server: RemoteSettings
    sampling: Sampling


Part = Weights | Remote | Silence | Echo
"""What stands behind an agent."""


@dataclass(frozen=True)
class TeamSource:
    """Where the policies of a team come from: a run, or an experiment that was never trained (``run`` is None).

    ``config`` is its resolved configuration.
    """

    config: Mapping[str, Any]
    run: Run | None = None

    def check_playable(self) -> None:
        """Raise :class:`..runs.files.RunDirectoryError` where the run is of another version, in which its world or its
        engine had classes that are not there any more."""
        parts = {"env": self.config["env"], "engine": self.config["engine"]}
        targets = [value for key, value in flat(parts) if key.endswith("._target_")]
        if self.run is not None and not all(map(_importable, targets)):
            self.run.check_format()

    def policy(self, key: str, agent: str, checkpoint: Checkpoint) -> Weights | Remote:
        """The policy that speaks for ``agent`` in this run.  Raises :class:`ConfigError` naming ``key``."""
        team = self.config["team"]
        if agent not in team:
            source = self.run.path if self.run else "the experiment"
            raise ConfigError(f"{key}: {source} has no policy for agent '{agent}', only for {', '.join(team)}")
        name = team[agent]
        policy = self.config["policies"][name]
        sampling = read_sampling(f"policies.{name}.sampling.eval", policy["sampling"]["eval"])
        tuning = policy.get("tuning")
        if tuning == "remote":  # the same at every checkpoint
            return Remote(name, read_remote(f"policies.{name}", policy), sampling)
        chat = read_chat(f"policies.{name}", policy)
        weights = partial(Weights, key, sampling=sampling, chat=chat, named=name)
        if checkpoint == "base":
            return weights("base", policy["base"])
        folder = self._checkpoint(key, checkpoint) / name
        if tuning == "frozen":  # it has never been anything else
            return weights(name, policy["base"])
        return weights(name, str(folder), below=policy["base"] if tuning == "lora" else None)

    def _checkpoint(self, key: str, checkpoint: Checkpoint) -> Path:
        if self.run is None:
            raise ConfigError(f"checkpoint={checkpoint}: exp has no run; its untrained team is checkpoint=base")
        folder, names = self.run.checkpoint(checkpoint), self.run.checkpoints
        if checkpoint not in names:
            raise ConfigError(
                f"{key}={checkpoint if key == 'checkpoint' else self.run.path}: no checkpoint '{checkpoint}' in "
                f"{folder.parent}; there {'is ' + ', '.join(names) if names else 'are none'}"
            )
        return folder


def _importable(target: str) -> bool:
    try:
        return bool(resolve_name(target))
    except (ImportError, AttributeError, ValueError):
        return False


def line_up(
    asked: Questions, run: TeamSource, others: Mapping[str, TeamSource], agents: Sequence[str]
) -> dict[str, Part]:
    """What stands behind each of ``agents``; ``others`` are the runs that ``agents.NAME=DIR[@CHECKPOINT]`` names, by
    agent.  Without a checkpoint they give the one that is asked for, or their best beside an untrained team.

    Raises :class:`ConfigError` naming the key that is wrong.
    """
    _check_agents(asked, agents)
    spoken_with = _swapped(asked, agents)
    parts: dict[str, Part] = {}
    for agent in agents:
        if agent in asked.silence:
            parts[agent] = Silence()
        elif agent in asked.echo:
            parts[agent] = Echo(asked.echo[agent])
        elif asked.agents.get(agent) == "base":
            parts[agent] = run.policy(f"agents.{agent}", agent, "base")
        elif agent in asked.agents:
            parts[agent] = others[agent].policy(f"agents.{agent}", agent, _checkpoint_of(agent, asked))
        else:
            parts[agent] = run.policy("checkpoint", spoken_with[agent], asked.checkpoint)
    policies = {part.policy for part in parts.values() if isinstance(part, (Weights, Remote))}
    if asked.swap and len(policies) == 1:
        raise ConfigError(f"swap changes nothing: policy '{policies.pop()}' speaks for all agents")
    return parts


def _checkpoint_of(agent: str, asked: Questions) -> Checkpoint:
    """The checkpoint of another run that is to speak for ``agent``."""
    _, _, named = asked.agents[agent].partition("@")
    if not named:
        return "best" if asked.checkpoint == "base" else asked.checkpoint
    for known in get_args(Checkpoint):
        if named == known:
            return known
    raise ConfigError(f"agents.{agent}: checkpoint '{named}' is unknown{nearest(named, get_args(Checkpoint))}")


def _check_agents(asked: Questions, agents: Sequence[str]) -> None:
    named = {f"agents.{agent}": agent for agent in asked.agents} | {f"echo.{agent}": agent for agent in asked.echo}
    named |= {f"silence={agent}": agent for agent in asked.silence}
    named |= {f"echo.{agent}={of}": of for agent, of in asked.echo.items()}
    for key, agent in named.items():
        if agent not in agents:
            raise ConfigError(f"{key}: the world has no agent '{agent}'{nearest(agent, agents)}")
    for agent, of in asked.echo.items():
        if agents.index(of) >= agents.index(agent):
            raise ConfigError(f"echo.{agent}={of}: '{of}' does not speak before '{agent}' in a turn")
    for agent in agents:
        keys = [key for key in ("silence", "echo", "agents") if agent in getattr(asked, key)]
        if len(keys) > 1:
            raise ConfigError(f"{' and '.join(keys)} both decide what agent '{agent}' says")
    for key in ("silence", "echo", "agents"):
        if asked.swap and getattr(asked, key):
            raise ConfigError(f"swap and {key} both decide who speaks for whom: give one of them")


def _swapped(asked: Questions, agents: Sequence[str]) -> dict[str, str]:
    """Agent -> the agent with whose policy it speaks."""
    if not asked.swap:
        return {agent: agent for agent in agents}
    if asked.swap is True:
        if len(agents) != 2:
            raise ConfigError(
                f"swap=true exchanges two agents, the world has {', '.join(agents)}: name who becomes whom"
            )
        return dict(zip(agents, reversed(agents), strict=True))
    order = {agent: asked.swap.get(agent, agent) for agent in agents}
    for agent in [*asked.swap, *asked.swap.values()]:
        if agent not in agents:
            raise ConfigError(f"swap: the world has no agent '{agent}'{nearest(agent, agents)}")
    if sorted(order.values()) != sorted(agents):
        raise ConfigError(f"swap={order} is no permutation: each agent's policy must speak exactly once")
    return order
