"""The yaml of a table, ``configs/reproduce/NAME.yaml``, read and checked before anything heavy is imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from ...errors import ConfigError, nearest
from ...setup.arguments import check_complete
from ..shapes import check_shapes, with_base
from ..yaml_file import read_yaml
from .pairs import PLACES, Regime, Team, cross_teams

Scale = Literal["laptop", "smollm2", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)
Figure = Literal["rows", "rewards"]
FIGURES: tuple[Figure, ...] = get_args(Figure)
SILENT = "the paper is silent"
"""What ``sections`` says of a setting that no publication has."""

Section = TypeVar("Section")


@dataclass(frozen=True)
class ScalePlan:
    """The ``overrides`` of all runs of a table at one scale, budgets among them, and the number of ``seeds``."""

    seeds: int
    overrides: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.seeds, int) or self.seeds < 1:
            raise ConfigError(f"seeds must be a whole number of at least 1, got {self.seeds!r}")


@dataclass(frozen=True)
class Part:
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
        for key, by_scale in (("overrides", self.overrides), ("without", self.without)):
            for scale in by_scale:
                if scale not in self.scales:
                    raise ConfigError(f"{key}: scale '{scale}' is unknown{nearest(scale, self.scales)}")

    def filled(self, text: str) -> str:
        """``text`` with the names of the agents."""
        for place, agent in zip(PLACES, self.agents, strict=True):
            text = text.replace(place, agent)
        return text


@dataclass(frozen=True)
class Row:
    """A row of the table: the ``metric`` of a setting or team beside published figures, in per cent unless ``unit``
    says otherwise: by part, under the name of what was measured.  ``most``: by scale, the highest value of a metric
    that is no share, such as a return.

    ``not_tested`` is the reason why there is no setting.
    """

    setting: str = ""
    metric: str = "after"
    paper: Mapping[str, Mapping[str, float | str]] = field(default_factory=dict)
    most: Mapping[Scale, float] = field(default_factory=dict)
    not_tested: str = ""
    section: str = ""

    def __post_init__(self) -> None:
        if bool(self.setting) == bool(self.not_tested):
            raise ConfigError("a row has a setting, or says why it is not tested")


@dataclass(frozen=True)
class TableClaim:
    """What a publication claims, as ``claim`` of a sweep (:class:`~troupe.sweep.verdicts.Claim`), with its thresholds.

    ``paper`` is what it reports; ``parts`` are those that the claim is about (all, if none is named).
    """

    claim: str
    setting: str = ""
    at_least: float = 0.0
    over: str = ""
    metric: str = "after"
    over_metric: str = ""
    low_above: float | None = None
    paper: str = ""
    parts: Sequence[str] = ()
    not_tested: str = ""

    def __post_init__(self) -> None:
        if bool(self.setting) == bool(self.not_tested):
            raise ConfigError(f"claim '{self.claim}' has a setting, or says why it is not tested")

    @property
    def tested(self) -> dict[str, Any]:
        """The fields of a sweep's claim."""
        return {
            key: value
            for key, value in vars(self).items()
            if key not in ("paper", "parts", "not_tested") and value != ""
        }


@dataclass(frozen=True)
class ReproductionTable:
    """The content of a table's yaml.

    Settings come from the ``sweep`` of that name, with its claims, or from ``settings``, or from both.  ``papers`` says
    of claims of the sweep, which has no figures of publications, what the publication reports.  ``sections``
    says of each setting and team what the publication has on it, or :data:`SILENT`.  ``cross_play``: the regimes of a
    matrix, whose teams are among ``teams``.  ``alone``: runs are timed, so that
    they are never started side by side.  ``figure``: ``rows`` (intervals and published figures) or ``rewards`` (each
    agent's standardised reward over training).
    """

    name: str
    title: str
    question: str
    publication: str
    sections: Mapping[str, str]
    scales: Mapping[Scale, ScalePlan]
    parts: Mapping[str, Part]
    rows: Mapping[str, Row]
    claims: Sequence[TableClaim] = ()
    sweep: str = ""
    papers: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    teams: Mapping[str, Team] = field(default_factory=dict)
    cross_play: Mapping[str, Regime] = field(default_factory=dict)
    notes: Sequence[str] = ()
    alone: bool = False
    figure: Figure = "rows"
    unit: str = "%"

    @classmethod
    def read(cls, name: str) -> ReproductionTable:
        """The table ``name``, or the yaml at that path.  Raises :class:`ConfigError` naming the key that is wrong."""
        known, stem = table_names(), Path(name).stem
        if name.endswith((".yaml", ".yml")):
            if not Path(name).is_file():
                raise ConfigError(f"table={name}: there is no such file")
        elif name not in known:
            raise ConfigError(f"table={name} is unknown{nearest(name, [*known, 'all'])}")
        try:
            content = read_yaml(_file(name) if name in known else Path(name))
            if stem in known and name != stem and content != read_yaml(_file(stem)):
                taken = f"Troupe has a table {stem}, whose results it would replace"
                raise ConfigError(f"{taken}; give the file another name")
            return cls.of(stem, content)
        except (ConfigError, TypeError) as error:  # of a list in place of a literal
            raise ConfigError(f"table={name}: {error}") from error

    @classmethod
    def of(cls, name: str, content: Any) -> ReproductionTable:
        """Raises :class:`ConfigError`."""
        check_shapes(cls, content)
        _check_keys("", cls, content)
        sweep = _sweep_file(content.get("sweep", ""))
        claims = [
            _section(f"claims[{number}]", TableClaim, one) for number, one in enumerate(content.get("claims", []))
        ]
        for number, one in enumerate(content.get("claims", [])):
            if "setting" in one and not {"at_least", "low_above"} & one.keys():
                raise ConfigError(f"claims[{number}] has no threshold: at_least, or low_above")
        papers = content.get("papers", {})
        own = [
            _section("verdicts", TableClaim, {**one, "paper": papers.get(one["claim"], "")})
            for one in sweep.get("verdicts", [])
        ]
        names = [claim.claim for claim in own]
        if unknown := [name for name in papers if name not in names]:
            raise ConfigError(f"papers: the sweep has no claim '{unknown[0]}'{nearest(unknown[0], names)}")
        scales = {key: _section(f"scales.{key}", ScalePlan, one) for key, one in content.get("scales", {}).items()}
        for scale in scales:
            check_scale(scale)
        read = {
            "claims": [*own, *claims],
            "settings": {**sweep.get("settings", {}), **content.get("settings", {})},
            "scales": scales,
            "parts": {key: _section(f"parts.{key}", Part, one) for key, one in content.get("parts", {}).items()},
            "rows": {key: _section(f"rows.{key}", Row, one) for key, one in content.get("rows", {}).items()},
        }
        teams = {key: _section(f"teams.{key}", Team, one) for key, one in content.get("teams", {}).items()}
        regimes = {
            key: _section(f"cross_play.{key}", Regime, one) for key, one in content.get("cross_play", {}).items()
        }
        crossed = cross_teams(regimes, teams)
        read |= {"cross_play": regimes, "teams": {**teams, **crossed}}
        read["sections"] = {**content.get("sections", {}), **dict.fromkeys(crossed, SILENT)}
        whole = {"name": name, "question": sweep.get("question", ""), **content, **read}
        check_complete("", cls, whole)
        return cls(**whole)

    def __post_init__(self) -> None:
        if not self.parts or not self.settings or not self.rows:
            raise ConfigError("settings, parts and rows must name at least one of each")
        named = [*self.settings, *self.teams]
        if missing := [name for name in named if name not in self.sections]:
            raise ConfigError(f"sections lacks {', '.join(missing)}: the paper's section, or '{SILENT}'")
        if unknown := [name for name in self.sections if name not in named]:
            raise ConfigError(f"sections: setting '{unknown[0]}' is unknown{nearest(unknown[0], named)}")
        used = [(f"rows.{key}", row.setting) for key, row in self.rows.items()]
        used += [(f"claim '{one.claim}'", name) for one in self.claims for name in (one.setting, one.over)]
        for where, name in used:
            if name and name not in named:
                raise ConfigError(f"{where}: setting '{name}' is unknown{nearest(name, named)}")
        for key, regime in self.cross_play.items():
            for name in (regime.first, regime.second):
                if name not in self.settings:
                    known = list(self.settings)
                    raise ConfigError(f"cross_play.{key}: setting '{name}' is unknown{nearest(name, known)}")
        for key, team in self.teams.items():
            for name in (team.setting, *team.agents.values()):
                if name not in self.settings:
                    raise ConfigError(f"teams.{key}: setting '{name}' is unknown{nearest(name, list(self.settings))}")
        for key, part in self.parts.items():
            if key in ("", ".", "..") or "/" in key:
                raise ConfigError(f"parts: '{key}' cannot be the name of a folder")
            for scale in part.scales:
                if scale not in self.scales:
                    raise ConfigError(f"parts.{key}: scales has no {scale}")
            for name in (name for reasons in part.without.values() for name in reasons):
                if name not in named:
                    raise ConfigError(f"parts.{key}.without: setting '{name}' is unknown{nearest(name, named)}")
        about = [(f"rows.{key}.paper", list(row.paper)) for key, row in self.rows.items()]
        about += [(f"claim '{one.claim}': parts", list(one.parts)) for one in self.claims]
        for where, names in about:
            for name in names:
                if name not in self.parts:
                    raise ConfigError(f"{where}: part '{name}' is unknown{nearest(name, list(self.parts))}")
        for key in self.parts:
            texts = [one.claim for one in self.claims if not one.parts or key in one.parts]
            if twice := next((text for text in texts if texts.count(text) > 1), ""):
                raise ConfigError(f"claim '{twice}' is there twice for part {key}")
        for key, row in self.rows.items():
            for scale in row.most:
                if scale not in self.scales:
                    raise ConfigError(f"rows.{key}.most: scale '{scale}' is unknown{nearest(scale, list(self.scales))}")
        if self.figure not in FIGURES:
            raise ConfigError(f"figure={self.figure} is unknown{nearest(self.figure, FIGURES)}")

    def parts_at(self, scale: Scale) -> dict[str, Part]:
        """The parts that have ``scale``.  Raises :class:`ConfigError` where none has it."""
        parts = {name: part for name, part in self.parts.items() if scale in part.scales}
        if not parts:
            raise ConfigError(f"table={self.name} has no scale={scale}; it has {', '.join(self.scales)}")
        return parts

    def overrides_at(self, scale: Scale, part: Part) -> list[str]:
        """Of all runs of ``part`` at ``scale``, without those of settings; later ones replace earlier ones."""
        return [
            *_sweep_file(self.sweep).get("overrides", []),
            f"experiment={part.experiment}",
            *self.scales[scale].overrides,
            *part.overrides.get(scale, ()),
        ]

    def settings_at(self, scale: Scale, part: Part) -> dict[str, list[str]]:
        """The settings that are run, with their overrides."""
        without = part.without.get(scale, {})
        return {
            name: [part.filled(text) for text in overrides]
            for name, overrides in self.settings.items()
            if name not in without
        }

    def teams_at(self, scale: Scale, part: Part) -> dict[str, Team]:
        """The teams that are played: those whose settings are run."""
        return {name: team for name, team in self.teams.items() if not self.reason_without(scale, part, name)}

    def reason_without(self, scale: Scale, part: Part, name: str) -> str:
        """Why the setting or team ``name`` is not tested in ``part``; "" where it is."""
        team = self.teams.get(name)
        names = (name, team.setting, *team.agents.values()) if team else (name,)
        reasons = part.without.get(scale, {})
        return next((reasons[each] for each in names if each in reasons), "")


def table_names() -> list[str]:
    """The tables of the package ``troupe.configs``."""
    folder = files("troupe.configs") / "reproduce"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def _file(name: str) -> Traversable:
    """The yaml of a table of :func:`table_names`."""
    return files("troupe.configs") / "reproduce" / f"{name}.yaml"


def check_scale(scale: str) -> Scale:
    """Raises :class:`ConfigError` for one that there is not."""
    if scale not in SCALES:
        raise ConfigError(f"scale={scale} is unknown{nearest(scale, SCALES)}")
    return scale


def _sweep_file(name: str) -> dict[str, Any]:
    """The keys of ``configs/sweep/NAME.yaml``, with those of its base; none without a name.  Raises
    :class:`ConfigError`."""
    return with_base(_sweep_keys(name), _sweep_keys) if name else {}


def _sweep_keys(name: str) -> dict[str, Any]:
    file = files("troupe.configs") / "sweep" / f"{name}.yaml"
    if not file.is_file():
        raise ConfigError(f"sweep={name}: there is no such sweep")
    content: dict[str, Any] = read_yaml(file)
    return content


def _section(key: str, kind: type[Section], content: Any) -> Section:
    """``kind`` of the keys of ``content``.  Raises :class:`ConfigError` naming ``key``."""
    check_shapes(kind, content, key)
    _check_keys(f"{key}.", kind, content)
    check_complete(key, kind, content)
    try:
        return kind(**content)
    except ConfigError as error:
        raise ConfigError(f"{key}: {error}") from error


def _check_keys(above: str, kind: type, content: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` for one that is no field of ``kind``; ``name`` is that of the file."""
    known = [one.name for one in fields(kind) if (above, one.name) != ("", "name")]
    for name in content:
        if name not in known:
            raise ConfigError(f"{above}{name} is unknown{nearest(str(name), known)}")
