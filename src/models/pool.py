"""A pool: one backbone in memory with its policies; and a policy as the rest of Troupe knows it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning as L
from torch import Tensor

from ..experience import Sample
from .learner import Groups, Learner
from .policy import PolicyModule
from .ranks import Ranks


class Pool:
    """The policies of ``module``, in this process: one with all weights of its model, or several that are adapters.

    Its methods are asynchronous, so that pools update side by side, each in a thread, and so that a pool may live in
    another process.  The policies of one pool learn one after another: they share a backbone, which computes for one
    adapter at a time, and the gradient of an adapter on a frozen base does not depend on the other adapters.
    """

    def __init__(
        self, module: PolicyModule, fabric: L.Fabric, *, pad_id: int, seed: int = 0, ranks: Ranks | None = None
    ) -> None:
        configured = module.configure_optimizers()
        self.module, *optimizers = fabric.setup(module, *(each["optimizer"] for each in configured))
        self.lock = threading.Lock()
        """Held during an update."""
        self.policies: dict[str, Policy] = {}
        common: dict[str, Any] = {"pad_id": pad_id, "seed": seed, "ranks": ranks or Ranks()}
        for (name, config), optimizer, each in zip(module.policies.items(), optimizers, configured, strict=True):
            learner = Learner(name, config, self.module, optimizer, each["lr_scheduler"], fabric, **common)
            self.policies[name] = Policy(self, learner)

    async def update(self, batches: Mapping[str, Groups]) -> dict[str, dict[str, float]]:
        """One iteration's update of every policy in ``batches``, from its groups of samples; metrics by policy.

        A cancelled call still runs to its end, since a thread cannot be stopped.  Whatever reads the pool waits for
        it, so that no caller reads weights during an update.  Raises :class:`.optimizer_steps.NonFiniteError`.
        """
        return await asyncio.to_thread(self._update, batches)

    def _update(self, batches: Mapping[str, Groups]) -> dict[str, dict[str, float]]:
        with self.lock:
            self.module.train()
            return {name: self.policies[name].learner.update(groups) for name, groups in batches.items()}


class Policy:
    """One policy of a pool, as the loop, the engines and the checkpoints know it.

    Its methods wait while the pool updates.
    """

    def __init__(self, pool: Pool, learner: Learner) -> None:
        self.pool, self.learner, self.name = pool, learner, learner.name

    @property
    def version(self) -> int:
        """How many updates it has had; completions and engines carry it."""
        return self.learner.version

    async def weights(self) -> Mapping[str, Tensor]:
        """The present weights by checkpoint name (of an adapter by peft's); not copies."""
        with self.pool.lock:
            return self.pool.module.weights(self.name)

    async def reference_logprobs(self, samples: Sequence[Sample]) -> list[tuple[float, ...]]:
        """Of each sample's tokens, nats: of the weights at the run's start."""

        def score() -> list[tuple[float, ...]]:
            with self.pool.lock:
                return self.learner.reference_logprobs(samples)

        return await asyncio.to_thread(score)

    def export(self, folder: Path) -> None:
        """Write the weights as libraries read them."""
        with self.pool.lock:
            self.pool.module.export(self.name, folder)

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next update depends on; the weights under ``model``."""
        with self.pool.lock:
            return {
                "version": self.learner.version,
                "model": self.pool.module.weights(self.name),
                "optimizer": self.learner.optimizer.state_dict(),
                "scheduler": self.learner.scheduler.state_dict(),
                "max_tokens": self.learner.max_tokens,
            }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that :meth:`state_dict` returned.  Raises ``ValueError`` for a state that does not fit."""
        with self.pool.lock:
            self.pool.module.load_weights(self.name, state["model"])
            self.learner.optimizer.load_state_dict(state["optimizer"])
            self.learner.scheduler.load_state_dict(state["scheduler"])
            self.learner.version = state["version"]
            # Checkpoints of older versions have none: there was no split.
            self.learner.max_tokens = state.get("max_tokens", self.learner.settings.max_tokens)
