"""The engine's interface: token ids in, token ids out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from torch import Tensor

from ..experience import Completion, Request


@runtime_checkable
class Engine(Protocol):
    """Generates completions with the current weights of one or several policies."""

    async def generate(self, request: Request) -> list[Completion]:
        """``request.n`` completions of ``request.prompt_ids``, drawn with ``request.seed``."""
        ...

    async def load(self, policy: str, weights: Mapping[str, Tensor], version: int) -> None:
        """Replace the weights of ``policy``; completions sampled from now on carry ``version``."""
        ...

    async def sleep(self) -> None:
        """Release what can be released while the learner runs."""
        ...

    async def wake(self) -> None:
        """Undo :meth:`sleep`."""
        ...

    async def close(self) -> None:
        """Release everything; no call may follow."""
        ...
