"""What ``troupe eval`` would refuse of a table's teams, said before the runs that they are made of are trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hydra import compose
from omegaconf import OmegaConf

from ...errors import ConfigError, nearest
from ...evaluation.assignment import LocalPolicy, assign
from ...evaluation.request import Checkpoint, EvalRequest, requested
from ...experience import Sampling
from ...setup.command_line import ANY_RUN, check_overrides, with_open_keys
from .pairs import EVALUATION, Team
from .table import Part


@dataclass(frozen=True)
class PlannedPolicies:
    """The policies of the runs of ``setting``, whose ``team`` is agents to policies; none is trained yet."""

    setting: str
    team: Mapping[str, str]

    def policy(self, key: str, agent: str, checkpoint: Checkpoint) -> LocalPolicy:
        """That of ``agent``; a single agent's can act for any.  Raises :class:`ConfigError` naming ``key``."""
        if agent not in self.team and len(self.team) > 1:
            raise ConfigError(f"{key}: setting '{self.setting}' has no agent '{agent}'")
        return LocalPolicy(key, self.team.get(agent) or next(iter(self.team.values())), "", Sampling())


def check_teams(part: Part, teams: Mapping[str, Team], configs: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise :class:`ConfigError` for keys of a team that ``troupe eval`` refuses, and for ``agents`` of ``part`` that
    no run has; ``configs`` are the configurations of runs, by setting.  Hydra must be initialised.

    Left to the evaluation: keys of worlds, and the order in which agents act.
    """
    policies = {setting: PlannedPolicies(setting, config["team"]) for setting, config in configs.items()}
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
    if known and unknown and tuple(part.agents) != Part.agents:
        raise ConfigError(f"agents: no run has an agent '{unknown[0]}'{nearest(unknown[0], known)}")


def _requested(keys: Sequence[str]) -> EvalRequest:
    words = with_open_keys(["run=none", *EVALUATION, *keys])
    check_overrides("eval", words)
    values: Any = OmegaConf.to_container(compose("eval", overrides=words), resolve=True)
    return requested(values, ANY_RUN, trained=True)


def _check(part: Part, team: Team, request: EvalRequest, policies: Mapping[str, PlannedPolicies]) -> None:
    own = policies[team.setting]
    others = {part.filled(agent): policies[setting] for agent, setting in team.agents.items()}
    places = {**request.agents, **dict.fromkeys(others, "none@last")}
    agents = sorted(own.team, key=lambda agent: agent in request.echo)
    assign(replace(request, agents=places), agents, own, dict.fromkeys(places, own) | others)
