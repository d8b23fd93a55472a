"""The critics of a run: which there are, and whether they can read what they judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ..algorithms.credit.actor_critic import TEAM, ActorCritic
from ..algorithms.credit.base import CreditRule
from ..errors import ConfigError
from ..models.bases.base_models import resolve
from ..models.learning.settings import CriticSettings
from ..models.learning.train_config import MakeOptimizer
from ..models.pools.strategies import StrategySettings
from .instantiation import partially
from .policies import PolicySpec
from .sections import RunConfig

KEY = "algorithm.critic"


@dataclass(frozen=True)
class CriticSpec:
    """One critic: its base model, how it learns, and the ``policies`` whose tokens it reads.  ``place`` is its strategy
    where it is an actor of Ray, None in the run's process.
    """

    name: str
    base: str
    optimizer: MakeOptimizer
    settings: CriticSettings
    policies: tuple[str, ...]
    place: StrategySettings | None = None


def read_critics(
    run: RunConfig,
    credit: CreditRule,
    policies: Mapping[str, PolicySpec],
    resample: int,
    strategy: StrategySettings,
) -> dict[str, CriticSpec]:
    """The critics that ``credit`` needs, by name; none where it needs no values.  Each learns in one process.

    Raises :class:`ConfigError`.
    """
    section, rule = run.algorithm.critic, type(credit).__name__
    if not isinstance(credit, ActorCritic):
        if section is not None:
            raise ConfigError(f"{KEY} has no effect: algorithm.credit ({rule}) needs no values; give null")
        return {}
    if section is None:
        raise ConfigError(f"{KEY} is missing: algorithm.credit ({rule}) needs values; algorithm=iac and maac have one")
    if resample:
        raise ConfigError(
            f"algorithm.sampler.resample={resample} has no effect with algorithm.credit ({rule}), which compares no "
            "groups; give 0"
        )
    place = replace(strategy, strategy="auto", devices=1, num_nodes=1) if run.execution.on_ray else None
    if place is None and strategy.strategy != "auto":
        raise ConfigError(f"{KEY}: a critic learns in one process so far; give strategy=single_device")
    readers = {TEAM: tuple(policies)}
    if not credit.centralised:
        readers = {name: (name,) for name, spec in policies.items() if spec.train_config is not None}
    optimizer = partially(f"{KEY}.optimizer", section.optimizer)
    return {
        name: CriticSpec(name, section.base or _common_base(read, policies), optimizer, section, read, place)
        for name, read in readers.items()
    }


def _common_base(read: tuple[str, ...], policies: Mapping[str, PolicySpec]) -> str:
    """The base of the policies whose tokens a critic reads.  Raises :class:`ConfigError` where they have several."""
    for name in read:
        if not policies[name].has_model:
            kind = "remote" if policies[name].remote else "scripted"
            raise ConfigError(
                f"{KEY}: a centralised critic reads what all agents read, and of the {kind} policy '{name}' no tokens "
                "are known; algorithm=iac has a critic for each policy that learns"
            )
    bases = {resolve(policies[name].base): policies[name].base for name in read}
    if len(bases) > 1:
        raise ConfigError(
            f"{KEY}.base is null, but the policies have the bases {', '.join(bases.values())}: name the critic's"
        )
    return next(iter(bases.values()))
