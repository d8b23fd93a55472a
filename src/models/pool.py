"""The pool handle: one backbone with one policy, its Fabric set-up, optimizer and update."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import lightning as L
from torch import Tensor

from ..algorithms.objectives.base import ObjectiveOutput
from ..experience import Sample, TokenBatch
from ..rollout.engines.weights import load_strictly
from .learner import Learner, NonFiniteError, Step, Update, UpdateSettings
from .policy import PolicyModule
from .ranks import Ranks

__all__ = ["Backbone", "LocalPool", "NonFiniteError", "PolicyHandle"]

Batches = Mapping[str, Sequence[Sequence[Sample]]]
"""By policy, its groups of samples."""


class Backbone(Protocol):
    """What learns in one piece: a pool, with all the policies that it hosts."""

    async def learn(self, batches: Batches) -> dict[str, dict[str, float]]:
        """One iteration's update of every policy in ``batches``; their metrics, by policy.

        Raises :class:`NonFiniteError`.
        """
        ...


class PolicyHandle(Protocol):
    """One policy of a pool: what the loop, the engines and the checkpoints know of it."""

    version: int

    @property
    def pool(self) -> Backbone:
        """Where it learns."""
        ...

    async def weights(self) -> Mapping[str, Tensor]:
        """The present weights by checkpoint name; not a copy."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next update depends on; the weights under ``model``."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Undo whatever happened since :meth:`state_dict`.  Raises ``ValueError`` for a state that does not fit."""
        ...

    def export(self, folder: Path) -> None:
        """Write the weights as libraries read them."""
        ...


class LocalPool(Learner):
    """A pool in this process, with one policy.  Its methods are asynchronous, so that pools update side by side (in
    threads).  ``update`` are the fields of :class:`.learner.UpdateSettings`.

    A cancelled :meth:`update` still runs to its end in its thread, since a thread cannot be stopped; whatever reads the
    pool waits for it, so that nobody meets weights half-way through an update.
    """

    def __init__(
        self,
        name: str,
        module: PolicyModule,
        fabric: L.Fabric,
        *,
        pad_id: int,
        seed: int = 0,
        ranks: Ranks | None = None,
        **update: Any,
    ) -> None:
        settings = UpdateSettings(**update)
        super().__init__(name, fabric, module.objective, settings, pad_id=pad_id, seed=seed, ranks=ranks)
        configured = module.configure_optimizers()
        self.scheduler = configured["lr_scheduler"]
        self.module, self.optimizer = fabric.setup(module, configured["optimizer"])
        self._at_rest = threading.Lock()

    @property
    def pool(self) -> Backbone:
        return self

    async def learn(self, batches: Batches) -> dict[str, dict[str, float]]:
        """See :class:`Backbone`."""
        return {self.name: await self.update(batches[self.name])}

    async def update(self, groups: Sequence[Sequence[Sample]]) -> dict[str, float]:
        """One iteration's update from ``groups`` of samples; returns metrics.  The version grows by one.

        Raises :class:`NonFiniteError`.
        """
        return await asyncio.to_thread(self._update, groups)

    async def weights(self) -> Mapping[str, Tensor]:
        """The model's present weights by checkpoint name; not a copy."""
        with self._at_rest:
            return {k: v.detach() for k, v in self.module.model.state_dict().items()}

    def _update(self, groups: Sequence[Sequence[Sample]]) -> dict[str, float]:
        with self._at_rest:
            self.module.train()
            update = self.begin(groups)
            for step in update.steps:
                self._step(update, step)
            return self.end(update)

    def _step(self, update: Update, step: Step) -> None:
        self.gather(update, step)
        self.clip(update)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _output(self, batch: TokenBatch, old_logprobs: Tensor | None) -> ObjectiveOutput:
        output: ObjectiveOutput = self.module.training_step(batch, old_logprobs)
        return output

    def _logprobs(self, batch: TokenBatch) -> Tensor:
        logprobs: Tensor = self.module.module(batch)
        return logprobs

    def _clipped(self) -> Tensor:
        norm = self.fabric.clip_gradients(
            self.module, self.optimizer, max_norm=self.settings.clip_norm, error_if_nonfinite=False
        )
        assert norm is not None  # None is what clipping by value returns
        return norm

    def _drop(self) -> None:
        self.optimizer.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next update depends on."""
        with self._at_rest:
            return {
                "version": self.version,
                "model": self.module.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "scheduler": self.scheduler.state_dict(),
            }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Undo whatever happened since :meth:`state_dict`.  Raises ``ValueError`` for a state that does not fit."""
        with self._at_rest:
            self.version = state["version"]
            load_strictly(self.name, self.module.model, state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.scheduler.load_state_dict(state["scheduler"])

    def export(self, folder: Path) -> None:
        """Write the weights as ``from_pretrained`` reads them."""
        with self._at_rest:
            self.module.model.save_pretrained(folder)
