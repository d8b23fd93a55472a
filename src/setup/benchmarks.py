"""Published test sets: ``troupe eval benchmark=NAME``, from the configurations in ``configs/benchmarks``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from omegaconf import OmegaConf

from ..errors import ConfigError, nearest
from ..evaluation.request import EvalRequest
from .search_path import current_search_path

GROUP = "benchmarks"


@dataclass(frozen=True)
class Benchmark:
    """A published test set: the configuration of its world, and the papers' figures for it, percent, by their names."""

    name: str
    world: Mapping[str, Any]
    published: Mapping[str, float]


def names() -> list[str]:
    """Those of all benchmarks."""
    loader = GlobalHydra.instance().config_loader()
    return sorted(set(loader.get_group_options(GROUP, ObjectType.CONFIG)) - {"math", "code"})


def benchmarks(request: EvalRequest, config: Mapping[str, Any]) -> Iterator[Benchmark]:
    """Those that ``request`` asks for, for the team of a run with this ``config``.

    A team whose own world is of the same class keeps its settings, with the benchmark's data; any other gets the
    settings of the papers.  Raises :class:`ConfigError` naming the key that is wrong.
    """
    known = names() if request.benchmark else []
    for name in request.benchmark:
        if name not in known:
            raise ConfigError(f"benchmark={name} is unknown{nearest(name, known)}")
    for name in request.data:
        if name not in request.benchmark:
            raise ConfigError(f"data.{name}: benchmark has no {name}{nearest(name, request.benchmark)}")
    for name in request.benchmark:
        words = [*current_search_path(), f"allow_unsafe_execution={config.get('allow_unsafe_execution', False)}"]
        if name in request.data:
            words.append(f"data='{request.data[name]}'")
        found: Any = OmegaConf.to_container(compose(f"{GROUP}/{name}", overrides=words), resolve=True)
        own, world = config["env"], found["world"]
        if own["_target_"] == world["_target_"]:
            world = {**own, **{key: world[key] for key in ("train", *found["sources"]) if key in world}}
            world |= {"validation": []} if "validation" in own else {}
        else:
            world["team"] = "solo" if len(config["team"]) == 1 else "pair"
        yield Benchmark(name, world, found["published"])
