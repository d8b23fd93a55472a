"""The engine of each policy: the run's, or its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError


def own_engine(common: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """``common``, the run's engine, with the keys of ``own`` in place of its keys; ``own`` alone where that names a
    class, as ``policy/on_torch`` and ``policy/on_vllm`` do.
    """
    return dict(own) if "_target_" in own else {**common, **own}


def check_keys(key: str, own: object) -> None:
    """Raise :class:`ConfigError` for the engine of the policy under ``key`` where it is the name of one."""
    if own == "remote":
        raise ConfigError(
            f"{key}.engine=remote: no server takes the weights of a policy that learns; where a server speaks for a "
            f"policy that does not, give policy@{key}=[NAME,remote]"
        )
    if isinstance(own, str):
        raise ConfigError(
            f"{key}.engine={own} is no set of keys; for another engine than the run's, give "
            f"policy@{key}=[NAME,on_torch] or policy@{key}=[NAME,on_vllm]"
        )


def engine_name(engine: Mapping[str, Any]) -> str:
    """The name of its class."""
    return str(engine.get("_target_", "?")).rpartition(".")[2]


def count_of(engine: Mapping[str, Any], key: str) -> int:
    """The whole number ``engine[key]``; 1 where there is no such key, or another value, which the class refuses."""
    value = engine.get(key, 1)
    return value if isinstance(value, int) and value > 0 else 1


def engine_processes(engine: Mapping[str, Any]) -> int:
    """Those that hold a model, or a shard of one."""
    return count_of(engine, "tensor_parallel") * count_of(engine, "data_parallel")


def engine_identity(engine: Mapping[str, Any]) -> str:
    """Equal for engines with equal keys: policies with one model and one engine share both."""
    return json.dumps(engine, sort_keys=True, default=str)
