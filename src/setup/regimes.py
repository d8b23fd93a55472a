"""Regimes: one rule that makes the policies and the team of a run from the agents of its world.

A world's yaml declares in ``_world_`` its agents, the file of ``policy/`` for each scale, and its variant with one
agent (:class:`World`); a regime's yaml declares in ``_regime_`` which agents share a policy (:class:`Regime`).
:func:`team_config` makes of both a configuration, which :mod:`.composition` passes to Hydra.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from ..errors import ConfigError, nearest
from .instantiation import construct, instantiated

OTHERS = "others"
"""The key of ``_world_.policies`` for every scale that has no key of its own."""

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
    """The section ``_world_`` of a world's yaml, for regimes and scales.

    ``policies`` maps a scale, or ``others``, to a file of ``policy/``; null: not this scale.  ``figures`` maps the
    figures of a scale (``laptop``, ``paper``) to the keys of a run that differ in this world.
    """

    agents: Sequence[str]
    policies: Mapping[str, str | None]
    solo: Solo | None = None
    figures: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Regime:
    """The section ``_regime_`` of a regime's yaml.

    ``policies``: one per agent, or one for all.  ``solo``: the world's variant with one agent.  ``over``: files of
    ``policy/`` that are merged over each policy.
    """

    policies: Sharing
    solo: bool = False
    over: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.policies not in get_args(Sharing):
            raise ConfigError(
                f"_regime_.policies={self.policies} is unknown{nearest(self.policies, get_args(Sharing))}"
            )


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
    team = {agent: agent if rule.policies == "per_agent" else "shared" for agent in agents}
    defaults: list[Any] = []
    for policy in dict.fromkeys(team.values()):
        defaults.append({f"/policy@policies.{policy}": base})
        defaults += [f"/policy/{layer}@policies.{policy}" for layer in rule.over]
    return {"defaults": [*defaults, "_self_"], "team": team, **({"env": env} if env else {})}


def _policy(scale: str, name: str, world: World, scales: Sequence[str], *, others: bool) -> str:
    """The file of ``policy/`` that the world's policies are at ``scale``."""
    file = world.policies.get(scale, world.policies.get(OTHERS) if others else None)
    if file is None:
        known = [each for each in world.policies if each != OTHERS] + (list(scales) if OTHERS in world.policies else [])
        has = [each for each in dict.fromkeys(known) if world.policies.get(each, OTHERS) is not None]
        raise ConfigError(f"scale={scale}: env={name} does not have this scale. Scales that it has: {', '.join(has)}")
    return file
