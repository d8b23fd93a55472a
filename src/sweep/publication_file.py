"""The yaml of a table, ``configs/reproduce/NAME.yaml``, read and checked before anything heavy is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import ConfigDict

from ..errors import ConfigError, nearest
from ..setup.instantiation import unknown_key
from .claims import Claim, check_claims, check_known, claim_entries
from .measures import MEASURES, METRICS
from .sweep_file import read_yaml, typed, with_base

Scale = Literal["laptop", "smollm2", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
SILENT = "the paper is silent"
"""What ``sections`` says of a setting that no publication has."""
FIRST, SECOND = PLACES = ("<first>", "<second>")
"""What stands for the names of a world's two agents."""


@dataclass(frozen=True)
class ScalePlan:
    """The ``overrides`` of all runs of a table at one scale, budgets among them, and the number of ``seeds``."""

    seeds: int
    overrides: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.seeds < 1:
            raise ConfigError(f"seeds must be a whole number of at least 1, got {self.seeds!r}")


@dataclass(frozen=True)
class TablePart:
    """One world of a table, at some of its scales.

    ``agents``: the names of the world's first and second agent, which ``<first>`` and ``<second>`` stand for in the
    overrides of settings.  ``overrides`` are further ones, by scale.  ``without``: by scale, settings that are not run
    and teams that are not played, each with the reason.
    """

    experiment: str
    scales: Sequence[Scale]
    agents: Sequence[str] = ("tool", "plan")
    overrides: Mapping[Scale, Sequence[str]] = field(default_factory=dict)
    without: Mapping[Scale, Mapping[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.agents) != 2 or self.agents[0] == self.agents[1]:
            raise ConfigError(f"agents must be the names of two agents, got {list(self.agents)}")
        check_known("overrides: scale", self.overrides, self.scales)
        check_known("without: scale", self.without, self.scales)

    def filled(self, text: str) -> str:
        """``text`` with the names of the agents."""
        for place, agent in zip(PLACES, self.agents, strict=True):
            text = text.replace(place, agent)
        return text


@dataclass(frozen=True)
class PublishedRow:
    """A row of the table: the ``metric`` of a setting or team beside published figures, in per cent unless ``unit``
    says otherwise: by part, under the name of what was measured.  ``most``: by scale, the highest value of a metric
    that is no share, such as a return.

    ``not_tested`` is the reason why there is no setting.
    """

    setting: str = ""
    metric: str = "after"
    paper: Mapping[str, Mapping[str, int | float | str]] = field(default_factory=dict)
    most: Mapping[Scale, float] = field(default_factory=dict)
    not_tested: str = ""
    section: str = ""

    def __post_init__(self) -> None:
        if bool(self.setting) == bool(self.not_tested):
            raise ConfigError("a row has a setting, or says why it is not tested")
        check_known("metric", [self.metric], (*METRICS, *MEASURES))


@dataclass(frozen=True)
class PlayedTeam:
    """A team that is evaluated, not trained: the last weights of the runs of ``setting``, seed by seed, in which the
    ``agents`` (``<first>``, ``<second>``) speak with the policies of the same agents in runs of other settings.

    ``seeds``: of these other runs, the one of the same seed, all but that, or all.  ``keys`` are further keys of
    ``troupe eval``.
    """

    setting: str
    agents: Mapping[str, str] = field(default_factory=dict)
    seeds: Literal["same", "others", "all"] = "same"
    keys: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_known("agents", self.agents, PLACES)
        if len(set(self.agents.values())) > 1 and self.seeds != "same":
            raise ConfigError("agents of several settings are paired by seed: seeds=same")
        if not self.agents and not self.keys:
            raise ConfigError("a team needs agents or keys: else it is that of its setting")

    @property
    def settings(self) -> tuple[str, ...]:
        """Of its own run and of its partners'."""
        return self.setting, *self.agents.values()

    @property
    def speakers(self) -> tuple[str, str] | None:
        """The settings that the first and the second agent's policies are from; None where ``keys`` decide it."""
        return None if self.keys else (self.agents.get(FIRST, self.setting), self.agents.get(SECOND, self.setting))


@dataclass(frozen=True)
class CrossRegime:
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


def cross_teams(regimes: Mapping[str, CrossRegime], named: Mapping[str, PlayedTeam]) -> dict[str, PlayedTeam]:
    """A team for each cell of the matrix of ``regimes`` that no ``named`` team is, all seeds with all; the rows are the
    second agent's.  Raises :class:`ConfigError` where no regime is a team of the two agents.
    """
    pairs = [regime for regime in regimes.values() if regime.pair]
    if regimes and not pairs:
        raise ConfigError("cross_play needs a regime whose runs are teams of the two agents")
    own = {team.speakers for team in named.values()}
    return {
        cross_name(row, column): _cell(second, first, pairs[0].second)
        for row, second in regimes.items()
        for column, first in regimes.items()
        if (first.first, second.second) not in own
    }


def _cell(second: CrossRegime, first: CrossRegime, world: str) -> PlayedTeam:
    """The policy of the second agent of ``second`` beside that of the first agent of ``first``; where both are single
    agents, in the ``world`` of that setting."""
    if second.pair:
        return PlayedTeam(second.second, {FIRST: first.first}, "others" if first.first == second.second else "all")
    if first.pair:
        return PlayedTeam(first.first, {SECOND: second.second}, "all")
    return PlayedTeam(world, {FIRST: first.first, SECOND: second.second}, "same")


@dataclass(frozen=True)
class TableFile:
    """The content of a table's yaml.

    Settings come from the ``sweep`` of that name, with its claims, or from ``settings``, or from both.  ``papers`` says
    of claims of the sweep, which has no figures of publications, what the publication reports.  ``sections``
    says of each setting and team what the publication has on it, or :data:`SILENT`.  ``cross_play``: the regimes of a
    matrix, whose teams are among ``teams``.  ``alone``: runs are timed, so that
    they are never started side by side.  ``figure``: ``rows`` (intervals and published figures) or ``rewards`` (each
    agent's standardised reward over training).  ``overrides`` are those of the sweep.
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    title: str
    question: str
    publication: str
    sections: Mapping[str, str]
    scales: Mapping[Scale, ScalePlan]
    parts: Mapping[str, TablePart]
    rows: Mapping[str, PublishedRow]
    claims: Sequence[Claim] = ()
    sweep: str = ""
    papers: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    teams: Mapping[str, PlayedTeam] = field(default_factory=dict)
    cross_play: Mapping[str, CrossRegime] = field(default_factory=dict)
    notes: Sequence[str] = ()
    alone: bool = False
    figure: Literal["rows", "rewards"] = "rows"
    unit: str = "%"
    overrides: Sequence[str] = ()

    @classmethod
    def read(cls, name: str) -> TableFile:
        """The table ``name``, or the yaml at that path.  Raises :class:`ConfigError` naming the key that is wrong."""
        known, stem = table_names(), Path(name).stem
        own = name.endswith((".yaml", ".yml"))
        if own and not Path(name).is_file():
            raise ConfigError(f"table={name}: there is no such file")
        if not own and name not in known:
            raise ConfigError(f"table={name} is unknown{nearest(name, [*known, 'all'])}")
        try:
            content = read_yaml(Path(name)) if own else _packaged("reproduce", name)
            if own and stem in known and content != _packaged("reproduce", stem):
                taken = f"Troupe has a table {stem}, whose results it would replace"
                raise ConfigError(f"{taken}; give the file another name")
            return cls.of(stem, content)
        except ConfigError as error:
            raise ConfigError(f"table={name}: {error}") from error

    @classmethod
    def of(cls, name: str, content: Any) -> TableFile:
        """Raises :class:`ConfigError`."""
        content = with_base(content, lambda base: {})
        if wrong := {"name", "overrides"} & content.keys():
            raise unknown_key(min(wrong), list(content))
        if sweep := content.get("sweep"):
            content = _with_sweep(content, with_base(_packaged("sweep", sweep), lambda base: _packaged("sweep", base)))
        claims = claim_entries("claims", content.get("claims", []))
        table = typed(cls, {**content, "claims": claims, "name": name})
        crossed = cross_teams(table.cross_play, table.teams)
        sections = {**table.sections, **dict.fromkeys(crossed, SILENT)}
        return replace(table, teams={**table.teams, **crossed}, sections=sections)

    def __post_init__(self) -> None:
        if not self.parts or not self.settings or not self.rows:
            raise ConfigError("settings, parts and rows must name at least one of each")
        named = [*self.settings, *self.teams]
        if missing := [name for name in named if name not in self.sections]:
            raise ConfigError(f"sections lacks {', '.join(missing)}: the paper's section, or '{SILENT}'")
        check_known("sections: setting", self.sections, named)
        for key, row in self.rows.items():
            check_known(f"rows.{key}: setting", [row.setting], named)
            check_known(f"rows.{key}.paper: part", row.paper, self.parts)
            check_known(f"rows.{key}.most: scale", row.most, self.scales)
        for key, regime in self.cross_play.items():
            check_known(f"cross_play.{key}: setting", (regime.first, regime.second), self.settings)
        for key, team in self.teams.items():
            check_known(f"teams.{key}: setting", team.settings, self.settings)
        for key, part in self.parts.items():
            if key in ("", ".", "..") or "/" in key:
                raise ConfigError(f"parts: '{key}' cannot be the name of a folder")
            check_known(f"parts.{key}: scale", part.scales, self.scales)
            for reasons in part.without.values():
                check_known(f"parts.{key}.without: setting", reasons, named)
        check_claims("claims", self.claims, named, (*METRICS, *MEASURES))
        for claim in self.claims:
            check_known(f"claim '{claim.claim}': part", claim.parts, self.parts)

    def parts_at(self, scale: Scale) -> dict[str, TablePart]:
        """The parts that have ``scale``.  Raises :class:`ConfigError` where none has it."""
        parts = {name: part for name, part in self.parts.items() if scale in part.scales}
        if not parts:
            raise ConfigError(f"table={self.name} has no scale={scale}; it has {', '.join(self.scales)}")
        return parts

    def overrides_at(self, scale: Scale, part: TablePart) -> list[str]:
        """Of all runs of ``part`` at ``scale``, without those of settings; later ones replace earlier ones."""
        own = part.overrides.get(scale, ())
        return [*self.overrides, f"experiment={part.experiment}", *self.scales[scale].overrides, *own]

    def settings_at(self, scale: Scale, part: TablePart) -> dict[str, list[str]]:
        """The settings that are run, with their overrides."""
        without = part.without.get(scale, {})
        return {
            name: [part.filled(text) for text in overrides]
            for name, overrides in self.settings.items()
            if name not in without
        }

    def teams_at(self, scale: Scale, part: TablePart) -> dict[str, PlayedTeam]:
        """The teams that are played: those whose settings are run."""
        return {name: team for name, team in self.teams.items() if not self.reason_without(scale, part, name)}

    def reason_without(self, scale: Scale, part: TablePart, name: str) -> str:
        """Why the setting or team ``name`` is not tested in ``part``; "" where it is."""
        team = self.teams.get(name)
        names = (name, *team.settings) if team else (name,)
        reasons = part.without.get(scale, {})
        return next((reasons[each] for each in names if each in reasons), "")


def table_names() -> list[str]:
    """The tables of the package ``troupe.configs``."""
    folder = files("troupe.configs") / "reproduce"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def _packaged(group: str, name: str) -> Any:
    """The content of a yaml of the package ``troupe.configs``.  Raises :class:`ConfigError`."""
    file = files("troupe.configs") / group / f"{name}.yaml"
    if not file.is_file():
        raise ConfigError(f"{group}={name}: there is no such {group}")
    return read_yaml(file)


def _with_sweep(content: dict[str, Any], sweep: Mapping[str, Any]) -> dict[str, Any]:
    """``content`` with the question, settings, overrides and claims of its ``sweep``, these with what ``papers`` says
    of them."""
    papers, claims = content.get("papers", {}), sweep.get("verdicts", [])
    check_known("papers: claim", papers, [claim["claim"] for claim in claims])
    own = [{**claim, "paper": papers.get(claim["claim"], "")} for claim in claims]
    return {
        "question": sweep["question"],
        **content,
        "overrides": sweep.get("overrides", []),
        "settings": {**sweep["settings"], **content.get("settings", {})},
        "claims": [*own, *content.get("claims", [])],
    }
