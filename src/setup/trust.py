"""What a stored run may make this machine do: its configuration is data, and names no code and no server by itself.

The user's own words (the command line, ``trust=[...]``, the folders of ``--config-dir`` and of installed packages) are
trusted; a run directory never adds to them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from hydra.utils import get_object
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..algorithms.credit.base import CreditRule
from ..algorithms.objectives.base import Objective
from ..envs.base import TeamEnv
from ..envs.code import ProblemSet
from ..envs.datasets import ItemSource
from ..errors import ConfigError
from ..models.pools.strategies import Sharded
from ..rollout.engines.local import LocalEngine
from ..rollout.samplers.chain import ChainSampler
from ..rollout.samplers.sampler import EpisodeSampler
from ..runs.callbacks import EarlyStop
from ..runs.files import check_links
from ..runs.loggers import CsvLogger, TensorBoardLogger, TrackioLogger, WandbLogger
from ..runs.own_code import own_packages
from ..runs.run import RunReader
from ..sandbox import Limits, LocalSandbox
from .composition import user_configurations
from .policies import check_names

KINDS = (
    *(TeamEnv, ItemSource, ProblemSet, LocalSandbox, Limits),
    *(EpisodeSampler, ChainSampler, CreditRule, Objective, Optimizer, LRScheduler),
    *(LocalEngine, Sharded, CsvLogger, TensorBoardLogger, TrackioLogger, WandbLogger, EarlyStop),
)
"""What Troupe's and torch's classes in a configuration are.  None of them runs what its arguments say."""

ROOMS = (
    *("troupe.algorithms", "troupe.envs", "troupe.models.learning.train_config", "troupe.models.pools.strategies"),
    *("troupe.rollout", "troupe.runs.loggers", "troupe.runs.callbacks", "troupe.sandbox", "torch.optim"),
)
"""Where these classes are: the modules that are imported to look at one."""

SCHEDULES = "transformers.optimization"
"""The module of functions ``get_..._schedule...``, which make schedulers."""

UNSAFE = "allow_unsafe_execution"


@dataclass(frozen=True)
class Trust:
    """What the user trusts beside Troupe: ``packages`` (or modules), whole ``targets``, and ``servers`` by their URL or
    its beginning up to the host; whether programs may run ``unsafe``, where they cannot be isolated."""

    packages: frozenset[str] = frozenset()
    targets: frozenset[str] = frozenset()
    servers: frozenset[str] = frozenset()
    unsafe: bool = False

    @classmethod
    def of(cls, words: Any, configurations: Sequence[Mapping[str, Any]] = ()) -> Trust:
        """The values ``words`` of the key ``trust``, the user's packages and folders of configurations, and what
        ``configurations`` name, which are the user's, too.  Raises :class:`ConfigError`."""
        if not isinstance(words, Sequence) or isinstance(words, str) or not all(isinstance(w, str) for w in words):
            raise ConfigError(f"trust must be a list of packages and servers, trust=[PACKAGE,URL], got {words!r}")
        packages, yamls = user_configurations()
        own = [*yamls, *configurations]
        urls = [url for each in configurations for _, url in _servers(each)]
        return cls(
            packages=frozenset({*packages, *own_packages(own), *(word for word in words if "/" not in word)})
            - {UNSAFE},
            targets=frozenset(target for each in own for _, target in _targets("", each) if isinstance(target, str)),
            servers=frozenset(word.rstrip("/") for word in [*words, *urls] if "/" in word),
            unsafe=UNSAFE in words or any(each.get(UNSAFE) is True for each in configurations),
        )

    def check(self, config: Mapping[str, Any]) -> None:
        """:meth:`check_targets` and :meth:`check_server` for all of the stored ``config``."""
        self.check_targets("", config)
        for key, url in _servers(config):
            self.check_server(key, url)

    def check_server(self, key: str, url: str) -> None:
        """Raise :class:`ConfigError` for a server that the user has not named: prompts, and perhaps a key of the
        environment, would be sent there."""
        place = urlsplit(url)
        if not {url.rstrip("/"), f"{place.scheme}://{place.netloc}"} & self.servers:
            raise ConfigError(
                f"{key}.url={url} is a server that a stored run names: prompts would be sent there, and the key of "
                f"key_env; if you trust it, give trust=[{url}]"
            )

    def check_targets(self, key: str, section: Any) -> None:
        """Raise :class:`ConfigError`, naming key, class and remedy, for a ``_target_`` at ``key`` of a stored run, or
        anywhere below it, that is not one of Troupe's or torch's own kinds and that the user does not trust."""
        for place, target in _targets(key, section):
            if not isinstance(target, str) or not self._allows(target):
                package, _, rest = target.partition(".") if isinstance(target, str) else ("PACKAGE", "", "")
                package = target.rpartition(".")[0] if package == "troupe" and rest else package
                raise ConfigError(
                    f"{place}={target}: a stored run may name Troupe's worlds, rules and engines and torch's "
                    f"optimizers, and this is another's code; if you know and trust it, give trust=[{package}]"
                )
        if not self.unsafe and (unsafe := _unsafe(key, section)):
            raise ConfigError(
                f"{unsafe}=true: the stored run would run programs where they cannot be isolated; if you accept that, "
                f"give trust=[{UNSAFE}]"
            )

    def _allows(self, target: str) -> bool:
        if target in self.targets:
            return True
        packages = [package for package in self.packages if _within(target, package)]
        if not packages and not any(_within(target, room) for room in (*ROOMS, SCHEDULES)):
            return False  # and is not imported
        try:
            thing = get_object(target)
        except Exception:  # importing a module may raise any; building says why it is not there, and runs nothing
            return True
        # Where it is defined counts, not the path to it: `mine.world.subprocess.run` is not mine.
        home = getattr(thing, "__module__", None) or ""
        if isinstance(thing, type) and issubclass(thing, KINDS):
            return any(_within(home, place) for place in (*ROOMS, *packages))
        if home == SCHEDULES:
            return thing.__name__.startswith("get_") and "_schedule" in thing.__name__
        return callable(thing) and any(_within(home, package) for package in packages)


NOBODY = Trust()


def check_stored(run: RunReader) -> dict[str, Any]:
    """The configuration of ``run``, checked to be data: no interpolation, no policy's name that is a path, no link out
    of the directory.  Its classes and servers are checked by :class:`Trust` where they are used.

    Raises :class:`ConfigError` naming the key, and :class:`..runs.files.RunDirectoryError`.
    """
    check_links(run.path)
    config = run.config
    for key, value in _entries("", config):
        if "${" in key or (isinstance(value, str) and "${" in value):
            raise ConfigError(
                f"{run.path}: {key}={value!r} is an interpolation, and a stored configuration has none: it would read "
                "this machine's environment; write its value there"
            )
    policies, team = config.get("policies", {}), config.get("team", {})
    if not isinstance(policies, Mapping) or not isinstance(team, Mapping):
        raise ConfigError(f"{run.path}: policies and team must hold keys")
    check_names({str(name): None for name in policies})
    for agent, name in team.items():
        if name not in policies:
            raise ConfigError(f"{run.path}: team.{agent}={name!r} is none of the policies {', '.join(policies)}")
    for name, policy in policies.items():
        sampling = policy.get("sampling") if isinstance(policy, Mapping) else None
        if not isinstance(sampling, Mapping) or not isinstance(policy.get("base"), str | None):
            raise ConfigError(f"{run.path}: policies.{name} must hold keys, sampling and base among them")
        past = policy.get("past")
        if policy.get("tuning") == "past" and (not isinstance(past, Mapping) or past.get("of") not in policies):
            raise ConfigError(f"{run.path}: policies.{name}.past.of must be one of the policies {', '.join(policies)}")
    return config


def _within(name: str, package: str) -> bool:
    return name == package or name.startswith(f"{package}.")


def _targets(key: str, node: Any) -> Iterator[tuple[str, Any]]:
    """(Key, value) of every ``_target_`` in ``node``, whatever it holds."""
    return ((place, value) for place, value in _entries(key, node) if place.rpartition(".")[2] == "_target_")


def _entries(key: str, node: Any) -> Iterator[tuple[str, Any]]:
    """(Dotted key, value) of everything in ``node``, at any depth; an element of a list has its number as its name."""
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(node, Mapping):
        items = node.items()
    elif isinstance(node, list | tuple):
        items = enumerate(node)
    for name, value in items:
        place = f"{key}.{name}" if key else str(name)
        yield place, value
        yield from _entries(place, value)


def _unsafe(key: str, node: Any) -> str:
    """The key that lets programs run without isolation; "" where there is none."""
    return next((place for place, value in _entries(key, node) if place.endswith(UNSAFE) and value), "")


def _servers(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(Key, URL) of the remote policies of ``config``."""
    policies = config.get("policies") or {}
    for name, policy in policies.items():
        server = policy.get("remote") if isinstance(policy, Mapping) else None
        if isinstance(server, Mapping) and "url" in server:
            yield f"policies.{name}.remote", str(server["url"])
