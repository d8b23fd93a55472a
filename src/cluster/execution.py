"""The section ``execution``: where the parts of a run are."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from ..errors import AboveZero, Natural, NotNegative, check_fields

ADDRESS = re.compile(r"auto|ray://\S+|(\[[0-9a-fA-F:.%]+\]|[^\s:/\[\]]+):\d{1,5}")
"""What Ray connects to; an IPv6 address has brackets."""


@dataclass(frozen=True)
class Resources:
    """What Ray keeps free for one process.  Raises ``ValueError`` naming the key."""

    cpus: NotNegative = 1
    gpus: NotNegative = 0

    def __post_init__(self) -> None:
        check_fields(self)
        if not self.cpus and not self.gpus:
            raise ValueError("cpus and gpus are 0: Ray has no bundle of nothing")

    @property
    def bundle(self) -> dict[str, float]:
        """As a placement group has it."""
        return {name: value for name, value in (("CPU", self.cpus), ("GPU", self.gpus)) if value}


@dataclass(frozen=True)
class ResourceMap:
    """By kind of process."""

    pool: Resources = field(default_factory=Resources)
    engine: Resources = field(default_factory=Resources)
    critic: Resources = field(default_factory=Resources)
    worlds: Resources = field(default_factory=Resources)


@dataclass(frozen=True)
class Execution:
    """The section ``execution``; ``configs/execution/ray.yaml`` says what each key is.

    Raises ``ValueError`` naming the key.
    """

    kind: Literal["local", "ray"] = "local"
    address: str | None = None
    resources: ResourceMap = field(default_factory=ResourceMap)
    worlds: Natural = 0
    restarts: Natural = 3
    start_s: AboveZero = 300

    def __post_init__(self) -> None:
        check_fields(self, "execution.")
        if self.address is not None and not (isinstance(self.address, str) and ADDRESS.fullmatch(self.address)):
            raise ValueError(f"execution.address must be null, auto, HOST:PORT or ray://..., got {self.address!r}")
        if self.worlds and self.kind == "local":
            raise ValueError(f"execution.worlds={self.worlds} has no effect with execution=local; give execution=ray")

    @property
    def on_ray(self) -> bool:
        return self.kind == "ray"
