"""What stands in the configuration: strict keys and choices, and objects made from it with the key in every error."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import accumulate
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from lightning.fabric.utilities.exceptions import MisconfigurationException

from ..errors import ConfigError, nearest
from ..runs.fingerprint import FETCHING, flat, matches

RUN = (
    "env algorithm policies team engine strategy scale loop logger name seed run_dir resume dry_run threads "
    "allow_unsafe_execution"
)

READ = {
    "": RUN.split(),
    "algorithm.": "sampler credit objective update".split(),
    "policies.*.sampling.": "train eval".split(),
}
"""The keys that :func:`build` reads itself; others are arguments of what they configure, which refuses strangers."""

TUNINGS = {
    "full": ("base optimizer scheduler sampling", "tuning schedule algorithm chat"),
    "lora": ("base optimizer scheduler sampling tuning lora", "schedule algorithm chat"),
    "frozen": ("base sampling tuning", "chat"),
    "remote": ("remote sampling tuning", ""),
}
"""What ``policies.NAME.tuning`` may be, with the keys of such a policy that must be there, and those that may be."""

SPEAKING = ("frozen", "remote")
"""Tunings of policies that speak and never learn."""

LEARNING = ("optimizer", "scheduler", "lora", "schedule", "algorithm")
"""Keys of policies that learn."""

FREE = (
    *"loop.iterations loop.completions loop.checkpoint logger run_dir resume dry_run allow_unsafe_execution".split(),
    *FETCHING,
)
"""What may differ when a run is continued, with whatever lies below these keys; ``*`` stands for one name."""


def binding(config: Mapping[str, Any]) -> dict[str, Any]:
    """The dotted keys that a continued run must have in common with the run before."""
    return {key: value for key, value in flat(config) if not matches(key, FREE)}


def check_equal(before: Mapping[str, Any], asked: Mapping[str, Any], remedy: str) -> None:
    """Raises :class:`ConfigError` naming the keys whose values differ, if any, and the ``remedy``."""
    nothing = object()
    differing = [
        f"{key} ({before.get(key, 'nothing')!r} in the run, {asked.get(key, 'nothing')!r} here)"
        for key in sorted(before.keys() | asked.keys())
        if before.get(key, nothing) != asked.get(key, nothing)
    ]
    if differing:
        raise ConfigError(f"a continued run cannot change {'; '.join(differing)}. {remedy}")


def check_keys(config: dict[str, Any], unresolved: str | None) -> None:
    """Refuse unknown keys and keys that are not there.  ``unresolved`` is the yaml with interpolations;
    where there is none (a continued run), the keys of ``scale`` were checked before.

    Raises :class:`ConfigError`.
    """
    for prefix, section, known in _sections(config):
        if not isinstance(section, dict):
            raise ConfigError(f"{prefix.rstrip('.')} must hold keys, got {section!r}")
        for key in section:
            if known and key not in known:
                raise ConfigError(f"{prefix}{key} is an unknown key{nearest(key, known)}")
        for key in known:
            if key not in section:
                raise ConfigError(f"{prefix}{key} is missing")
    if unresolved is None:
        return
    texts = unresolved + "".join(file.read_text() for file in _yamls(files("troupe.configs")))
    for leaf, _ in flat(config["scale"]):
        if not any(f"${{scale.{key}}}" in texts for key in accumulate(leaf.split("."), "{}.{}".format)):
            raise ConfigError(f"scale.{leaf} is an unknown key")


def _sections(config: dict[str, Any]) -> Iterator[tuple[str, Any, list[str]]]:
    """(Prefix, section, known keys or none); each is to be checked before the next is asked for."""
    yield "", config, READ[""]
    for name in ("env", "algorithm", "policies", "team", "engine", "strategy", "scale", "loop", "logger"):
        yield f"{name}.", config[name], READ.get(f"{name}.", [])
    yield "loop.checkpoint.", config["loop"].get("checkpoint"), []
    for name, part in config["algorithm"].items():
        yield f"algorithm.{name}.", part, []
    for name, policy in config["policies"].items():
        yield f"policies.{name}.", policy, []
        _check_policy(f"policies.{name}", policy)
        for part in (*LEARNING, "remote"):
            if policy.get(part) is not None:
                yield f"policies.{name}.{part}.", policy[part], []
        for part in policy.get("algorithm") or {}:
            if part not in ("objective", "update"):
                raise ConfigError(f"policies.{name}.algorithm.{part}: only objective and update are a policy's own")
            yield f"policies.{name}.algorithm.{part}.", policy["algorithm"][part], []
        yield f"policies.{name}.sampling.", policy["sampling"], READ["policies.*.sampling."]
        for way, values in policy["sampling"].items():
            yield f"policies.{name}.sampling.{way}.", values, []


def _check_policy(key: str, policy: Mapping[str, Any]) -> None:
    """Refuse keys that a policy of this tuning does not have; null says that there is none of it."""
    tuning = policy.get("tuning") or "full"
    if tuning not in TUNINGS:
        raise ConfigError(f"{key}.tuning={tuning} is unknown{nearest(str(tuning), list(TUNINGS))}")
    needed, more = (words.split() for words in TUNINGS[tuning])
    everywhere = {word for words in TUNINGS.values() for word in " ".join(words).split()}
    for name, value in policy.items():
        if name not in everywhere:
            raise ConfigError(f"{key}.{name} is an unknown key{nearest(name, [*needed, *more])}")
        if name not in needed + more and not _empty(value):
            why = f": a {tuning} policy speaks and never learns" if tuning in SPEAKING and name in LEARNING else ""
            raise ConfigError(f"{key}.{name} is an unknown key with {key}.tuning={tuning}{why}; give null")
    for name in needed:
        if policy.get(name) is None:
            raise ConfigError(f"{key}.{name} is missing")


def instantiated(key: str, node: dict[str, Any]) -> Any:
    """Hydra's ``instantiate``.  Raises :class:`ConfigError` naming ``key``."""
    if "_target_" not in node:
        raise ConfigError(f"{key}._target_ is missing: the name of a class")
    try:
        return instantiate(node)
    except InstantiationException as error:
        raise ConfigError(_explain(key, error.__cause__ or error)) from error


def partially(key: str, node: dict[str, Any]) -> Callable[..., Any]:
    """``node``, to be called with what configuration does not hold; errors name ``key``."""
    return partial(call, key, instantiated(key, node | {"_partial_": True}))


def call(key: str, target: Callable[..., Any], /, *arguments: Any, **keywords: Any) -> Any:
    """``target(*arguments, **keywords)``.  Raises :class:`ConfigError` naming ``key`` where it refuses them."""
    try:
        return target(*arguments, **keywords)
    except ConfigError:
        raise
    except (TypeError, ValueError, MisconfigurationException) as error:
        raise ConfigError(_explain(key, error)) from error


def _explain(key: str, error: BaseException) -> str:
    text = str(error)
    if stranger := re.search(r"unexpected keyword argument '(\w+)'", text):
        return f"{key}.{stranger[1]} is an unknown key"
    if absent := re.search(r"missing \d+ required .* argument.*: '(\w+)'", text):
        return f"{key}.{absent[1]} is missing"
    named = rf"{re.escape(key)}\b|env\.\w"  # the key itself, or one of the world's, which says more
    return text if re.match(named, text) else f"{key}: {text}"


def _empty(value: Any) -> bool:
    """Whether a key says nothing: null, 0, or only keys that do."""
    return all(map(_empty, value.values())) if isinstance(value, Mapping) else not value


def _yamls(folder: Traversable) -> Iterator[Traversable]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _yamls(entry)
        elif entry.name.endswith(".yaml"):
            yield entry
