"""What ``troupe eval`` would refuse of a table's teams, said before the runs that they are made of are trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hydra import compose
from omegaconf import OmegaConf

from ..errors import ConfigError, nearest
from ..evaluation.assignment import LocalPolicy, assign
from ..evaluation.conditions import world_variants
from ..evaluation.request import Checkpoint, EvalRequest, requested
from ..experience import Sampling
from ..setup.command_line import ANY_RUN, check_overrides, with_open_keys
from ..setup.instantiation import build_world
from .table_file import PlayedTeam, TablePart

EVALUATION = ("checkpoint=last", "temperature=own")
"""Keys of ``troupe eval`` that every team is evaluated with."""


@dataclass(frozen=True)
class PlannedPolicies:
    """The policies of the runs of ``setting``, whose ``team`` is agents to policies and whose world has the
    configuration ``world``; none is trained yet.
    """

    setting: str
    team: Mapping[str, str]
    world: Mapping[str, Any]

    def policy(self, key: str, agent: str, checkpoint: Checkpoint) -> LocalPolicy:
        """That of ``agent``; a single agent's can act for any.  Raises :class:`ConfigError` naming ``key``."""
        if agent not in self.team and len(self.team) > 1:
            raise ConfigError(f"{key}: setting '{self.setting}' has no agent '{agent}'")
        return LocalPolicy(key, self.team.get(agent) or next(iter(self.team.values())), "", Sampling())


def check_teams(part: TablePart, teams: Mapping[str, PlayedTeam], configs: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise :class:`ConfigError` for keys of a team that ``troupe eval`` refuses, and for ``agents`` of ``part`` that
    no run has; ``configs`` are the configurations of runs, by setting.  Hydra must be initialised.
    """
    policies = {name: PlannedPolicies(name, config["team"], config["env"]) for name, config in configs.items()}
    requests: dict[tuple[str, ...], EvalRequest] = {}  # most teams have the same keys: none
    for name, team in teams.items():
        keys = tuple(map(part.filled, team.keys))
        try:
            if keys not in requests:
                requests[keys] = _requested(keys)
            _check(part, team, requests[keys], policies)
        except ConfigError as error:
            raise ConfigError(f"teams.{name}: {error}") from error
    known = list(dict.fromkeys(agent for own in policies.values() if len(own.team) > 1 for agent in own.team))
    unknown = [agent for agent in part.agents if agent not in known]
    if known and unknown and tuple(part.agents) != TablePart.agents:
        raise ConfigError(f"agents: no run has an agent '{unknown[0]}'{nearest(unknown[0], known)}")


def _requested(keys: Sequence[str]) -> EvalRequest:
    words = with_open_keys(["run=none", *EVALUATION, *keys])
    check_overrides("eval", words)
    values: Any = OmegaConf.to_container(compose("eval", overrides=words), resolve=True)
    return requested(values, ANY_RUN, trained=True)


def _check(part: TablePart, team: PlayedTeam, request: EvalRequest, policies: Mapping[str, PlannedPolicies]) -> None:
    own = policies[team.setting]
    others = {part.filled(agent): policies[setting] for agent, setting in team.agents.items()}
    places = {**request.agents, **dict.fromkeys(others, "none@last")}
    for agents in _agents(request, own):
        assign(replace(request, agents=places), agents, own, dict.fromkeys(places, own) | others)


def _agents(request: EvalRequest, own: PlannedPolicies) -> Iterator[Sequence[str]]:
    """The agents of each world that is played, in the order in which they act, which ``echo`` hangs on.  Worlds may
    load data: they are built for these keys only.
    """
    if not request.world and not request.echo:
        yield list(own.team)
        return
    for _, config in world_variants(request.world, own.world):
        yield build_world("world", config).agents
