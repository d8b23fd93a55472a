"""Errors for unknown keys and choices: the new name of a renamed one, otherwise the nearest known name."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..errors import ConfigError, near, nearest

KEYS = {
    "loop.boards": "loop.tasks_per_iteration",
    "env.data.max_hidden": "env.data.max_hidden_train",
    "algorithm.sampler.width": "algorithm.sampler.k_by_agent",
    "algorithm.sampler.continuation": "algorithm.sampler.selection",
    "algorithm.sampler.joint": "algorithm.sampler.pairing",
    "algorithm.sampler.tree": "algorithm.sampler.growth",
}
"""Old key -> new key."""

CHOICES = {
    "regime": {
        f"{family}_{regime}": regime
        for family in ("poets", "solvers", "coders")
        for regime in ("specialized", "shared", "lora", "single")
    },
    "policy": {f"{scale}_{world}": scale for scale in ("paper_1_7b", "paper_8b") for world in ("code", "math")},
}
"""Group -> old choice -> new choice."""


def unknown_key(key: str, known: Collection[str]) -> ConfigError:
    """The error for the dotted ``key``, where ``known`` are the names that its last part may be."""
    if key in KEYS:
        return ConfigError(f"{key} is now {KEYS[key]}")
    return ConfigError(f"{key} is an unknown key{nearest(key.rpartition('.')[2], list(known))}")


def unknown_path(key: str, known: Collection[str]) -> ConfigError:
    """The error for the dotted ``key``, where ``known`` are whole keys."""
    if key in KEYS:
        return ConfigError(f"{key} is now {KEYS[key]}")
    return ConfigError(f"{key} is an unknown key{near(key, known)} docs/configuration.md lists all keys")


def unknown_choice(group: str, name: str, known: Sequence[str]) -> ConfigError:
    """The error for ``group=name``."""
    new = CHOICES.get(group, {}).get(name)
    return ConfigError(
        f"{group}={name} is now {group}={new}" if new else f"{group}={name} is unknown{nearest(name, known)}"
    )
