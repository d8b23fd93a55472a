"""From the section ``env`` to a world: the class that it names, and what any world can be given besides."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Any

from ..envs.base import TeamEnv
from ..envs.history import WithHistory
from ..errors import ConfigError
from .instantiation import call, part

HISTORY = "history"


def build_world(key: str, node: Mapping[str, Any]) -> TeamEnv:
    """The world of ``node``, the section ``key``; with a memory where ``KEY.history`` is not false.

    Raises :class:`ConfigError` naming the key.
    """
    own = {name: value for name, value in node.items() if name != HISTORY}
    world: TeamEnv = part(key, own, "next_agents")
    turns = node.get(HISTORY, False)
    if HISTORY in inspect.signature(resolve_name(node["_target_"])).parameters:
        raise ConfigError(
            f"{key}._target_={node['_target_']} has an argument '{HISTORY}', which is Troupe's key for the memory of "
            "any world; call it otherwise"
        )
    if turns is None or turns is False:
        return world
    wrapped: TeamEnv = call(f"{key}.{HISTORY}", WithHistory, world, turns)
    return wrapped
