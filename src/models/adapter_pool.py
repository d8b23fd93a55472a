"""A pool of LoRA policies: one frozen base, an adapter a policy, one optimizer with a group for each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins.precision.amp import MixedPrecision
from peft import PeftModel
from torch import Tensor

from ..algorithms.objectives.base import ObjectiveOutput
from ..experience import Sample, TokenBatch
from . import adapters
from .adapters import AdapterError
from .group_view import GroupView, joined
from .learner import Learner, Terms
from .policy import judged, token_logprobs, token_scores
from .pool import Backbone, Batches
from .ranks import Ranks


class AdapterModule(L.LightningModule):
    """A frozen base with an adapter for each policy in ``terms``.

    Where an objective holds its policy to a reference, that is the base without adapters: where LoRA starts from.
    """

    def __init__(self, model: PeftModel, terms: Mapping[str, Terms]) -> None:
        super().__init__()
        self.model, self.terms = model, terms

    def forward(self, policy: str, batch: TokenBatch) -> Tensor:
        """(B, C) float32, nats: as :meth:`.policy.PolicyModule.forward`, of one policy."""
        adapters.activate(self.model, policy)
        return token_logprobs(self.model.get_base_model(), batch, self.terms[policy].temperature)

    def training_step(  # type: ignore[override]
        self, policy: str, batch: TokenBatch, old_logprobs: Tensor | None
    ) -> ObjectiveOutput:
        """The objective of one policy on a micro-batch of its own; see :meth:`.policy.PolicyModule.training_step`."""
        terms, base = self.terms[policy], self.model.get_base_model()
        reference = self._reference_logprobs(batch, terms) if terms.objective.kl else None
        adapters.activate(self.model, policy)
        scores = token_scores(base, batch, terms.temperature, entropy=terms.objective.entropy > 0)
        return judged(terms.objective, batch, scores, old_logprobs, reference)

    @torch.no_grad()
    def _reference_logprobs(self, batch: TokenBatch, terms: Terms) -> Tensor:
        with self.model.disable_adapter():
            return token_logprobs(self.model.get_base_model(), batch, terms.temperature)


class AdapterPool:
    """A pool in this process with one policy or several, each an adapter on the module's base.

    One optimizer steps for all: each step takes the gradients of one mini-batch of every policy that has one left.
    Micro-batches are of one policy each, which is exact, since adapters do not meet; what has no gradient does not
    move, whatever its weight decay or moments.  Gradients are clipped a policy, and each has its own schedule.
    """

    def __init__(
        self, module: AdapterModule, fabric: L.Fabric, *, pad_id: int, seed: int = 0, ranks: Ranks | None = None
    ) -> None:
        check_precision(fabric)
        own = {name: adapters.parameters(module.model, name) for name in module.terms}
        optimizer = joined({name: (terms.optimizer, own[name]) for name, terms in module.terms.items()})
        views = [GroupView(optimizer, index) for index in range(len(own))]
        self.fabric = fabric
        self.module, self.optimizer = fabric.setup(module, optimizer)
        self.at_rest = threading.Lock()
        given: dict[str, Any] = {"pad_id": pad_id, "seed": seed, "ranks": ranks}
        self.policies = {
            name: AdapterPolicy(name, self, view, terms, **given)
            for view, (name, terms) in zip(views, module.terms.items(), strict=True)
        }

    async def learn(self, batches: Batches) -> dict[str, dict[str, float]]:
        """See :class:`.pool.Backbone`.  A cancelled call still runs to its end, as :meth:`.pool.LocalPool.update`."""
        return await asyncio.to_thread(self._learn, batches)

    def _learn(self, batches: Batches) -> dict[str, dict[str, float]]:
        with self.at_rest:
            self.module.train()
            updates = {name: self.policies[name].begin(groups) for name, groups in batches.items()}
            for steps in zip_longest(*(update.steps for update in updates.values())):
                taken = {name: step for name, step in zip(updates, steps, strict=True) if step is not None}
                for name, step in taken.items():
                    self.policies[name].gather(updates[name], step)
                for name in taken:
                    self.policies[name].clip(updates[name])
                self.optimizer.step()
                self.optimizer.zero_grad()
                for name in taken:
                    self.policies[name].view.step()
            return {name: self.policies[name].end(update) for name, update in updates.items()}


class AdapterPolicy(Learner):
    """One policy of an :class:`AdapterPool`: the handle that engines and checkpoints know."""

    averaged = False  # only one adapter has gradients in a backward pass, which DDP does not foresee

    def __init__(self, name: str, pool: AdapterPool, view: GroupView, terms: Terms, **given: Any) -> None:
        super().__init__(name, pool.fabric, terms.objective, terms.update, **given)
        self._pool, self.view, self.module = pool, view, pool.module
        self.scheduler = terms.scheduler(view)

    @property
    def pool(self) -> Backbone:
        return self._pool

    @property
    def _model(self) -> PeftModel:
        model: PeftModel = self._pool.module.model
        return model

    async def update(self, groups: Sequence[Sequence[Sample]]) -> dict[str, float]:
        """An update of this policy alone; see :meth:`AdapterPool.learn`."""
        return (await self._pool.learn({self.name: groups}))[self.name]

    async def weights(self) -> Mapping[str, Tensor]:
        """The adapter's present weights by the names of a peft checkpoint; not a copy."""
        with self._pool.at_rest:
            return adapters.weights(self._model, self.name)

    def _output(self, batch: TokenBatch, old_logprobs: Tensor | None) -> ObjectiveOutput:
        output: ObjectiveOutput = self.module.training_step(self.name, batch, old_logprobs)
        return output

    def _logprobs(self, batch: TokenBatch) -> Tensor:
        logprobs: Tensor = self.module.module(self.name, batch)
        return logprobs

    def _clipped(self) -> Tensor:
        parameters = self.view.parameters
        if self.ranks.world > 1:
            _sum_gradients(parameters)
        return torch.nn.utils.clip_grad_norm_(parameters, self.settings.clip_norm)

    def _drop(self) -> None:
        self._pool.optimizer.zero_grad()

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next update depends on; the adapter under ``model``."""
        with self._pool.at_rest:
            return {
                "version": self.version,
                "model": adapters.weights(self._model, self.name),
                "optimizer": self.view.state_dict(),
                "scheduler": self.scheduler.state_dict(),
            }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Undo whatever happened since :meth:`state_dict`.  Raises ``ValueError`` for a state that does not fit."""
        with self._pool.at_rest:
            self.version = state["version"]
            adapters.load(self._model, self.name, state["model"])
            self.view.load_state_dict(state["optimizer"])
            self.scheduler.load_state_dict(state["scheduler"])

    def export(self, folder: Path) -> None:
        """Write the adapter as ``PeftModel.from_pretrained`` reads it."""
        with self._pool.at_rest:
            adapters.export(self._model, self.name, folder)


def check_precision(fabric: L.Fabric) -> None:
    """Raise :class:`.adapters.AdapterError`, naming the key, for a precision that an :class:`AdapterPool` lacks."""
    precision = fabric.strategy.precision
    if isinstance(precision, MixedPrecision) and precision.scaler is not None:
        raise AdapterError("strategy.precision=16-mixed scales the gradients of a pool as one; give bf16-mixed")


def _sum_gradients(parameters: Sequence[Tensor]) -> None:
    """Over all processes, in one message."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    whole = torch.cat([gradient.flatten() for gradient in gradients])
    torch.distributed.all_reduce(whole)
    for gradient, part in zip(gradients, whole.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))
