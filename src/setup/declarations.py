"""What worlds and regimes declare in their yamls, and what follows from both: policies, teams, experiments.

A world's yaml declares in ``_world_`` its agents, its policies at each scale, and its variant with one agent
(:class:`World`); a regime's yaml declares in ``_regime_`` which agents share a policy (:class:`Regime`).
:mod:`.composition` passes the configurations that are made of them to Hydra, and removes the two sections.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any, Literal, get_args

from hydra.core.object_type import ObjectType
from hydra.plugins.config_source import ConfigResult, ConfigSource
from omegaconf import DictConfig, OmegaConf, open_dict

from ..errors import ConfigError, nearest
from .instantiation import construct, instantiated

SECTIONS = {"env/": "_world_", "regime/": "_regime_"}
"""Folder -> the section that its files may contain."""

OTHERS = "others"
"""The key of ``_world_.policies`` for every scale that has no key of its own."""

FILE = "policy"
"""The key, in a world's policy at a scale, for the file of ``policy/`` that its other keys change."""

Sharing = Literal["per_agent", "shared"]
"""One policy per agent, named after it; or one for all, named ``shared``."""


@dataclass(frozen=True)
class Solo:
    """The variant of a world with one agent: the agent's name, and the keys of ``env`` that differ; ``at``: those that
    differ at a scale, too."""

    agent: str
    env: Mapping[str, Any] = field(default_factory=dict)
    at: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class World:
    """The section ``_world_`` of a world's yaml, for regimes, scales and experiments.

    ``policies`` maps a scale, or ``others``, to a file of ``policy/``; to the keys that differ from the file with the
    scale's name, or from that which the key ``policy`` names (``policy=SCALE_WORLD`` is the result); null: not this
    scale.  ``figures`` maps a scale, or the figures that several have (``paper``), to the keys of a run that differ in
    this world.  ``opponents``: the agents that play against the team, each with the agent whose past they are.
    ``algorithm`` is that of ``experiment=WORLD_REGIME``, or the keys that it has otherwise.
    """

    agents: Sequence[str]
    policies: Mapping[str, str | Mapping[str, Any] | None]
    solo: Solo | None = None
    figures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    algorithm: str | Mapping[str, Any] | None = None
    opponents: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Regime:
    """The section ``_regime_`` of a regime's yaml.

    ``policies``: one per agent, or one for all.  ``solo``: the world's variant with one agent.  ``over``: files of
    ``policy/`` that are merged over each policy.  ``algorithm``: of ``experiment=WORLD_REGIME``, whatever the world.
    """

    policies: Sharing
    solo: bool = False
    over: Sequence[str] = ()
    algorithm: str | None = None

    def __post_init__(self) -> None:
        if self.policies not in get_args(Sharing):
            raise ConfigError(
                f"_regime_.policies={self.policies} is unknown{nearest(self.policies, get_args(Sharing))}"
            )


@dataclass(frozen=True)
class Declarations:
    """The sections in the files of ``sources``.  Of several files with one path the first counts, as in Hydra."""

    sources: Sequence[ConfigSource]

    def has(self, path: str) -> bool:
        """Whether ``path`` is a file."""
        source = self._source(path)
        return source is not None and source.scheme() in ("file", "pkg")

    def without_section(self, path: str) -> ConfigResult:
        """The file ``path`` for Hydra to compose, which changes it."""
        source = self._source(path)
        assert source is not None  # has
        result = read(source, path)
        if path.startswith(tuple(SECTIONS)) and isinstance(result.config, DictConfig):
            with open_dict(result.config):
                result.config.pop(_name(path), None)
        return result

    def world(self, name: str) -> World | None:
        """None if the yaml has no ``_world_``.  Raises :class:`ConfigError` naming a wrong key."""
        section = self._section(f"env/{name}")
        return read_world(name, section) if section else None

    def regime(self, name: str) -> Regime | None:
        """None if the yaml has no ``_regime_``, but ``policies`` and ``team``.  Raises :class:`ConfigError`."""
        section = self._section(f"regime/{name}")
        return construct(f"regime={name}: _regime_", Regime, section) if section else None

    def names(self, group: str) -> list[str]:
        """The choices of ``group`` that are files."""
        lists = (source.list(group, ObjectType.CONFIG) for source in self.sources if source.is_group(group))
        return sorted({name for names in lists for name in names})

    def derived(self, group: str) -> Iterator[tuple[str, str, str]]:
        """The choices of ``experiment`` and ``policy`` that follow from names, each with its world and its regime or
        scale, whether or not a world declares what they need: :meth:`experiment` and :meth:`policy` say so."""
        worlds = self.names("env")
        if group == "experiment":
            yield from ((f"{world}_{regime}", world, regime) for regime in self.names("regime") for world in worlds)
        if group == "policy":
            yield from ((f"{scale}_{world}", world, scale) for scale in self.names("scale") for world in worlds)

    def named_after(self, path: str) -> tuple[str, str] | None:
        """World and regime of ``experiment/WORLD_REGIME``, world and scale of ``policy/SCALE_WORLD``; None where there
        are no such two, or where a file has the name."""
        folder, _, name = path.partition("/")
        if self._source(path) is not None:
            return None
        return next(((world, other) for each, world, other in self.derived(folder) if each == name), None)

    def experiment(self, world: str, regime: str) -> dict[str, Any]:
        """The configuration of ``experiment=WORLD_REGIME``."""
        algorithm = getattr(self.regime(regime), "algorithm", None) or getattr(self.world(world), "algorithm", None)
        choices = {"env": world, "regime": regime, **({"algorithm": algorithm} if isinstance(algorithm, str) else {})}
        keys = {"algorithm": algorithm} if isinstance(algorithm, Mapping) else {}
        return {"defaults": [{f"override /{group}": choice} for group, choice in choices.items()], **keys}

    def policy(self, world: str, scale: str) -> dict[str, Any]:
        """The configuration of ``policy=SCALE_WORLD``.  Raises :class:`ConfigError`."""
        declared = self.world(world)
        policy = declared.policies.get(scale) if declared else None
        if not isinstance(policy, Mapping):
            raise ConfigError(f"policy={scale}_{world} is unknown: env={world} declares no keys of its own for it")
        own = {key: value for key, value in policy.items() if key != FILE}
        return {"defaults": [policy.get(FILE, scale), "_self_"], **own}

    def _section(self, path: str) -> dict[str, Any]:
        """The section of ``path``, merged over those of the files of its defaults list."""
        source = self._source(path)
        if source is None:
            return {}
        file: Any = OmegaConf.to_container(read(source, path).config, resolve=False)
        if not isinstance(file, dict):
            raise ConfigError(f"{path}.yaml must hold keys, got {file!r}")
        sections = []
        for default in file.get("defaults", []):
            if isinstance(default, str) and default != "_self_":
                name, _, package = default.partition("@")
                if package in ("", "_here_"):
                    sections.append(self._section(normpath(join("/", dirname(path), name)).lstrip("/")))
        section = file.get(_name(path))
        if section is not None and not isinstance(section, dict):
            raise ConfigError(f"{path}.yaml: {_name(path)} must hold keys, got {section!r}")
        sections.append(section or {})
        merged = sections[0] if len(sections) == 1 else OmegaConf.to_container(OmegaConf.merge(*sections))
        return merged  # type: ignore[return-value]

    def _source(self, path: str) -> ConfigSource | None:
        return next((source for source in self.sources if source.is_config(path)), None)


def read(source: ConfigSource, path: str) -> ConfigResult:
    """The file ``path`` of ``source``.  It is parsed again only after a change: each composition reads many files, and
    a sweep composes each setting."""
    folder: Any = files(source.path) if source.scheme() == "pkg" else Path(source.path).resolve()
    file = folder / f"{path.removesuffix('.yaml')}.yaml"
    if not isinstance(file, Path) or not file.exists():  # in a zip, or not there
        return source.load_config(path)
    state = (file, file.stat().st_mtime_ns, file.stat().st_size)
    result: ConfigResult = pickle.loads(_parsed(type(source), source.provider, source.path, path, *state))
    return result


@lru_cache(maxsize=1024)
def _parsed(kind: type[ConfigSource], provider: str, folder: str, path: str, *state: object) -> bytes:
    """The pickled result, of which a copy costs a fifth of ``deepcopy``.  ``state``: which file it is now, and since
    when."""
    return pickle.dumps(kind(provider, f"{kind.scheme()}://{folder}").load_config(path))


def _name(path: str) -> str:
    return next(name for folder, name in SECTIONS.items() if path.startswith(folder))


def read_world(name: str, section: Mapping[str, Any]) -> World:
    """``_world_`` of ``env/NAME.yaml``.  ``agents`` are a list, or ``_target_`` and arguments of a function that gives
    one.  Raises :class:`ConfigError` naming the file and the key."""
    key = f"env={name}: _world_"
    if isinstance(rule := section.get("agents"), Mapping):  # a rule of the world's own
        section = {**section, "agents": list(instantiated(f"{key}.agents", rule))}
    world = construct(key, World, section)
    if not isinstance(world.agents, list) or not world.agents:
        raise ConfigError(f"{key}.agents must be a list of names, got {world.agents!r}")
    for agent in [*world.agents, *([world.solo.agent] if world.solo else [])]:
        if not re.fullmatch(r"\w[\w-]*", str(agent)):
            raise ConfigError(f"{key}: agent {agent!r}: a name is letters, digits, _ and -")
    for pair in world.opponents.items():
        if unknown := next((agent for agent in pair if agent not in world.agents), None):
            raise ConfigError(f"{key}.opponents: no agent '{unknown}'{nearest(str(unknown), world.agents)}")
    if len(set(world.agents)) < len(world.agents):
        raise ConfigError(f"{key}.agents names an agent twice: {', '.join(world.agents)}")
    return world


def team_config(
    regime: str,
    rule: Regime,
    scale: str,
    name: str,
    world: World,
    scales: Sequence[str] = (),
    *,
    others: bool = True,
) -> dict[str, Any]:
    """The configuration of ``policies`` and ``team`` for ``env=NAME``, with a defaults list, as a yaml would have it.
    ``scales`` are those that ``others`` stands for; where ``others`` is false, ``scale`` is none of them.

    Raises :class:`ConfigError` for a scale, or a variant with one agent, that the world does not declare.
    """
    base = _policy(scale, name, world, scales, others=others)
    env: Mapping[str, Any] = {}
    agents = world.agents
    if rule.solo:
        if world.solo is None:
            raise ConfigError(
                f"regime={regime}: env={name} has no variant with one agent: its yaml declares no _world_.solo"
            )
        known = [*world.policies, *scales]
        if unknown := next((each for each in world.solo.at if each not in known), None):
            raise ConfigError(f"env={name}: _world_.solo.at: scale '{unknown}' is unknown{nearest(unknown, known)}")
        agents, env = [world.solo.agent], {**world.solo.env, **world.solo.at.get(scale, {})}
    alone = rule.policies == "per_agent"
    team = {agent: agent if alone or agent in world.opponents else "shared" for agent in agents}
    past = {agent: {"past": {"of": team[of]}} for agent, of in world.opponents.items()}
    defaults: list[Any] = []
    for policy in dict.fromkeys(team.values()):
        defaults.append({f"/policy@policies.{policy}": base})
        layers = [*rule.over, *(["past"] if policy in past else [])]
        defaults += [f"/policy/{layer}@policies.{policy}" for layer in layers]
    more = {key: keys for key, keys in (("env", env), ("policies", past)) if keys}
    return {"defaults": [*defaults, "_self_"], "team": team, **more}


def _policy(scale: str, name: str, world: World, scales: Sequence[str], *, others: bool) -> str:
    """The file of ``policy/`` that the world's policies are at ``scale``."""
    file = world.policies.get(scale, world.policies.get(OTHERS) if others else None)
    if file is None:
        known = [each for each in world.policies if each != OTHERS] + (list(scales) if OTHERS in world.policies else [])
        has = [each for each in dict.fromkeys(known) if world.policies.get(each, OTHERS) is not None]
        raise ConfigError(f"scale={scale}: env={name} does not have this scale. Scales that it has: {', '.join(has)}")
    return file if isinstance(file, str) else f"{scale}_{name}"
