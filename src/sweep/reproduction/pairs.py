"""Teams that are put together of finished runs, as a table's yaml has them, and the regimes of a cross-play matrix."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from ...errors import ConfigError, nearest

Pairing = Literal["same", "others", "all"]
PLACES = ("<first>", "<second>")
"""What stands for the names of a world's two agents."""
FIRST, SECOND = PLACES
EVALUATION = ("checkpoint=last", "temperature=own")
"""Keys of ``troupe eval`` that every team is evaluated with."""


@dataclass(frozen=True)
class Team:
    """A team that is evaluated, not trained: the last weights of the runs of ``setting``, seed by seed, in which the
    ``agents`` (``<first>``, ``<second>``) speak with the policies of the same agents in runs of other settings.

    ``seeds``: of these other runs, the one of the same seed, all but that, or all.  ``keys`` are further keys of
    ``troupe eval``.
    """

    setting: str
    agents: Mapping[str, str] = field(default_factory=dict)
    seeds: Pairing = "same"
    keys: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.seeds not in get_args(Pairing):
            raise ConfigError(f"seeds={self.seeds} is unknown{nearest(str(self.seeds), get_args(Pairing))}")
        for agent in self.agents:
            if agent not in PLACES:
                raise ConfigError(f"agents: '{agent}' is unknown{nearest(agent, PLACES)}")
        if len(set(self.agents.values())) > 1 and self.seeds != "same":
            raise ConfigError("agents of several settings are paired by seed: seeds=same")
        if not self.agents and not self.keys:
            raise ConfigError("a team needs agents or keys: else it is that of its setting")


@dataclass(frozen=True)
class Regime:
    """A row and a column of a cross-play matrix: the settings that the policies of the ``first`` and the ``second``
    agent are from.

    ``pair``: whether a run of it is a team of these two agents; a single agent's is not, and its policy plays in teams
    of the others.
    """

    first: str
    second: str
    pair: bool = True


def cross_name(row: str, column: str) -> str:
    """The name of the team in that cell of the matrix."""
    return f"second agent: {row}; first agent: {column}"


def cross_teams(regimes: Mapping[str, Regime], named: Mapping[str, Team]) -> dict[str, Team]:
    """A team for each cell of the matrix of ``regimes`` that no ``named`` team is, all seeds with all; the rows are the
    second agent's.  Raises :class:`ConfigError` where no regime is a team of the two agents.
    """
    pairs = [regime for regime in regimes.values() if regime.pair]
    if regimes and not pairs:
        raise ConfigError("cross_play needs a regime whose runs are teams of the two agents")
    own = {speakers(team) for team in named.values()}
    return {
        cross_name(row, column): _cell(second, first, pairs[0].second)
        for row, second in regimes.items()
        for column, first in regimes.items()
        if (first.first, second.second) not in own
    }


def _cell(second: Regime, first: Regime, world: str) -> Team:
    """The policy of the second agent of ``second`` beside that of the first agent of ``first``; where both are single
    agents, in the ``world`` of that setting."""
    if second.pair:
        alike = first.first == second.second
        return Team(second.second, {FIRST: first.first}, "others" if alike else "all")
    if first.pair:
        return Team(first.first, {SECOND: second.second}, "all")
    return Team(world, {FIRST: first.first, SECOND: second.second}, "same")


def speakers(team: Team) -> tuple[str, str] | None:
    """The settings that the first and the second agent's policies are from; None where ``keys`` decide it."""
    if team.keys:
        return None
    first, second = (team.agents.get(place, team.setting) for place in PLACES)
    return first, second
