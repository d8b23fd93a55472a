"""The interface of engines, token ids in and token ids out, and their counters: whatever a run reports of them.

An engine's class may have a static method ``check(policies, model, tokenizer, ranks, **settings)``, which raises
``ValueError``, naming the key, where ``settings``, all that the constructor would be given, are wrong for the names
``policies`` on ``model``.  That lies on torch's meta device, and is for Troupe's own engines perhaps an outline.  The
tokenizer is None where it is not on this machine; ``ranks`` has the policies with adapters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from ...experience import Completion, Request


class EngineError(RuntimeError):
    """An engine that cannot go on: nothing that it generated now could be trained on.  The message names the policy."""


class RequestFailedError(EngineError):
    """A request that an engine could not serve, also after its retries; it may serve others."""


class ContextExceededError(RequestFailedError):
    """A prompt that is too long for the model of a server, whose context is not known here."""


class UnsupportedModelError(ValueError):
    """A model or tokenizer that an engine cannot run; the message names policy and reason."""


class EngineClosedError(RuntimeError):
    """The engine was closed before or while it served a request."""


@runtime_checkable
class Engine(Protocol):
    """Generates completions with the current weights of one or several policies."""

    async def generate(self, request: Request) -> list[Completion]:
        """``request.n`` completions of ``request.prompt_ids``, drawn with ``request.seed``."""
        ...

    async def load(self, policy: str, weights: Mapping[str, Tensor], version: int) -> Mapping[str, float]:
        """Replace the weights of ``policy``; completions sampled from now on carry ``version``.

        Returns measurements of it, by metric.
        """
        ...

    async def sleep(self) -> None:
        """Release what can be released while the learner runs.  :meth:`load` may be called meanwhile, generate not."""
        ...

    async def wake(self) -> Mapping[str, float]:
        """Undo :meth:`sleep`.  Returns measurements of it, as :meth:`load` does."""
        ...

    async def close(self) -> None:
        """Release everything; no call may follow."""
        ...


class Weightless:
    """What an engine without weights on this machine does of :class:`Engine`: there is nothing to release."""

    async def sleep(self) -> None:
        """Nothing."""

    async def wake(self) -> Mapping[str, float]:
        """Nothing to measure."""
        return {}


@runtime_checkable
class Counting(Protocol):
    """An engine with counters for the metrics."""

    def drain(self) -> Mapping[str, float]:
        """The counts since the last call, by metric."""
        ...


@runtime_checkable
class Stateful(Protocol):
    """An engine with a state that its completions depend on, beside weights: a checkpoint keeps it."""

    def state_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned."""
        ...


@runtime_checkable
class Remembering(Protocol):
    """An engine that may keep what it has computed of earlier prompts, for prompts that begin with them."""

    async def forget(self) -> None:
        """Keep nothing of it: completions depend on no request of before, not in their last bits either."""
        ...


def largest(metrics: Iterable[Mapping[str, float]]) -> dict[str, float]:
    """The largest value of each metric."""
    found: dict[str, float] = {}
    for each in metrics:
        found |= {key: max(value, found.get(key, value)) for key, value in each.items()}
    return found


def drain_counters(engines: Iterable[Engine]) -> dict[str, float]:
    """What ``engines``, each named once, have counted since the last call, summed by metric."""
    totals: Counter[str] = Counter()
    for engine in engines:
        if isinstance(engine, Counting):
            totals.update(engine.drain())
    return dict(totals)
