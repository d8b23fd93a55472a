"""The keys of an evaluation, checked before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from ..errors import ConfigError, nearest
from ..experience import Split

Checkpoint = Literal["best", "last", "base"]
Temperature = float | Literal["own"]


@dataclass(frozen=True)
class EvalRequest:
    """What is to be evaluated; the fields are the keys of ``configs/eval.yaml``.

    Raises :class:`ConfigError` naming the key that is wrong.
    """

    checkpoint: Checkpoint
    split: Split
    tasks: int
    samples: int
    temperature: tuple[Temperature, ...]
    seed: int
    world: Mapping[str, Any] = field(default_factory=dict)
    swap: bool | Mapping[str, str] = False
    agents: Mapping[str, str] = field(default_factory=dict)
    silence: tuple[str, ...] = ()
    echo: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key, known in (("checkpoint", get_args(Checkpoint)), ("split", get_args(Split))):
            if getattr(self, key) not in known:
                raise ConfigError(f"{key}={getattr(self, key)} is unknown{nearest(str(getattr(self, key)), known)}")
        for key in ("tasks", "samples"):
            if not _is_integer(getattr(self, key)) or getattr(self, key) < 1:
                raise ConfigError(f"{key} must be a whole number of at least 1, got {getattr(self, key)!r}")
        if not _is_integer(self.seed):
            raise ConfigError(f"seed must be a whole number, got {self.seed!r}")
        if not self.temperature:
            raise ConfigError("temperature must name at least one: own, or a number of at least 0")
        for value in self.temperature:
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if value != "own" and not (number and value >= 0):
                raise ConfigError(f"temperature must be own or a number of at least 0, got {value!r}")
        for key in ("world", "agents", "echo"):
            if not isinstance(getattr(self, key), Mapping):
                raise ConfigError(f"{key} must hold keys, got {getattr(self, key)!r}")
        if not isinstance(self.swap, (bool, Mapping)):
            raise ConfigError(f"swap must be true, false or agents to agents, got {self.swap!r}")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
