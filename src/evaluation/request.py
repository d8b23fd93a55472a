"""The keys of an evaluation, checked before anything is loaded."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from ..errors import ConfigError, Positive, Whole, check_fields, nearest
from ..experience import Sampling, Split

Checkpoint = str
"""``best``, ``last``, ``base`` (no training), or ``iteration_NNNNN``."""
NAMED = ("best", "last", "base")
Temperature = float | Literal["own"]
MOST_EPISODES = 10_000_000
SAMPLING = ("top_p", "top_k", "max_tokens")


@dataclass(frozen=True)
class EvalRequest:
    """What is to be evaluated; the fields are the keys of ``configs/eval.yaml``.

    Raises :class:`ConfigError` naming the key that is wrong.
    """

    checkpoint: Checkpoint
    split: Split
    tasks: Positive | None
    samples: Positive
    temperature: tuple[Temperature, ...]
    seed: Whole
    task_seed: Whole = 0
    world: Mapping[str, Any] = field(default_factory=dict)
    swap: bool | Mapping[str, str] = False
    agents: Mapping[str, str] = field(default_factory=dict)
    silence: tuple[str, ...] = ()
    echo: Mapping[str, str] = field(default_factory=dict)
    benchmark: tuple[str, ...] = ()
    data: Mapping[str, str] = field(default_factory=dict)
    pass_at: tuple[int, ...] = ()
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """``top_p``, ``top_k`` and ``max_tokens`` of every policy, where they are not to be those of its ``sampling.eval``.
    """

    def __post_init__(self) -> None:
        check_checkpoint(f"checkpoint={self.checkpoint} is unknown", self.checkpoint)
        if self.split not in get_args(Split):
            raise ConfigError(f"split={self.split} is unknown{nearest(str(self.split), get_args(Split))}")
        if self.benchmark and self.split != "test":
            raise ConfigError(f"benchmark={','.join(self.benchmark)} has a test split only, not split={self.split}")
        check_fields(self, error=ConfigError)
        if self.tasks is None and not self.benchmark:  # else all of them
            raise ConfigError("tasks must be a whole number of at least 1, got None")
        for k in self.pass_at:
            if not _is_integer(k) or not 1 <= k <= self.samples:
                raise ConfigError(f"pass_at must be whole numbers from 1 to samples={self.samples}, got {k!r}")
        if (self.tasks or 0) * self.samples > MOST_EPISODES:
            raise ConfigError(
                f"tasks={self.tasks} with samples={self.samples} are more than {MOST_EPISODES:,} episodes, and an "
                "evaluation holds all of them in memory; play several evaluations, with seeds of their own"
            )
        if not self.temperature:
            raise ConfigError("temperature must name at least one: own, or a number of at least 0")
        for value in self.temperature:
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if value != "own" and not (number and value >= 0):
                raise ConfigError(f"temperature must be own or a number of at least 0, got {value!r}")
        for key in ("world", "agents", "echo", "data", "sampling"):
            if not isinstance(getattr(self, key), Mapping):
                raise ConfigError(f"{key} must hold keys, got {getattr(self, key)!r}")
        if not isinstance(self.swap, (bool, Mapping)):
            raise ConfigError(f"swap must be true, false or agents to agents, got {self.swap!r}")
        for key in self.sampling:
            if key not in SAMPLING:
                raise ConfigError(f"sampling.{key} is an unknown key{nearest(str(key), SAMPLING)}")
        try:
            replace(Sampling(), **self.sampling)
        except ValueError as error:
            raise ConfigError(str(error)) from error


def check_checkpoint(error: str, name: Checkpoint) -> None:
    """Raise :class:`ConfigError` for what can be no name of a checkpoint."""
    if name not in NAMED and not re.fullmatch(r"iteration_\d{5,}", str(name)):
        raise ConfigError(f"{error}{nearest(str(name), [*NAMED, 'iteration_NNNNN'])}")


def requested(keys: Mapping[str, Any], config: Mapping[str, Any], trained: bool) -> EvalRequest:
    """The request of ``keys``; those that are null have the values of ``config``, a run's.  Raises
    :class:`ConfigError`."""
    loop, split, tasks = config["loop"], keys["split"], keys["tasks"]
    benchmark = _as_tuple(keys.get("benchmark") or [])
    if tasks is None and not benchmark:
        tasks = loop["test_tasks" if split == "test" else "validation_tasks"]
    return EvalRequest(
        checkpoint=keys["checkpoint"] or ("best" if trained else "base"),
        split=split,
        tasks=tasks,
        samples=keys["samples"],
        temperature=_as_tuple(keys["temperature"]),
        seed=config["seed"] if keys["seed"] is None else keys["seed"],
        task_seed=own_task_seed(config, split) if keys.get("task_seed") is None else keys["task_seed"],
        silence=_as_tuple(keys["silence"]),
        benchmark=benchmark,
        data=keys.get("data") or {},
        pass_at=_as_tuple(keys.get("pass_at") or []),
        sampling=given_sampling(keys.get("sampling")),
        **{key: keys[key] for key in ("world", "swap", "agents", "echo")},
    )


def own_task_seed(config: Mapping[str, Any], split: Split) -> int:
    """The seed that draws the tasks of the run with this ``config``; 0 for training tasks, and for older runs."""
    return 0 if split == "train" else int(config["loop"].get("task_seed", 0))


def check_source(keys: Mapping[str, Any]) -> None:
    """Raise :class:`ConfigError` unless one of ``keys`` names a team, and nothing else."""
    ways = {"run": "run=DIR, a run directory", "exp": "exp=NAME, an experiment", "env_name": "env=NAME, a world"}
    known = {key: way for key, way in ways.items() if key in keys}
    if sum(keys[key] is not None for key in known) != 1:
        raise ConfigError(f"give one of {', or '.join(known.values())}")
    folder, at, checkpoint = str(keys["run"] or "").partition("@")
    if at:  # which belongs to agents.NAME=DIR@CHECKPOINT
        raise ConfigError(f"run={keys['run']}: give run={folder} checkpoint={checkpoint}")


def given_sampling(section: Any) -> dict[str, Any]:
    """The keys of the section ``sampling`` that are not null.  Raises :class:`ConfigError` where it is no section."""
    if section is None:
        return {}
    if not isinstance(section, Mapping):
        raise ConfigError(f"sampling must hold keys, got {section!r}")
    given = {key: value for key, value in section.items() if value is not None}
    if _is_integer(given.get("top_p")):
        given["top_p"] = float(given["top_p"])  # 1 and 1.0 are one evaluation
    return given


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, list) else (value,)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
