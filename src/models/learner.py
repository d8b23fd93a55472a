"""The learner: one policy's update, from an iteration's groups of samples to optimizer steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from random import Random
from typing import Any, NoReturn

import lightning as L
import torch
from lightning.fabric.plugins.precision.amp import MixedPrecision
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ..experience import Sample, TokenBatch
from .packing import draw_rows, micro_batches, mini_batches
from .ranks import Ranks
from .train_config import PolicyTrainConfig
from .update_stats import UpdateStats, warn_of_mismatch

Groups = Sequence[Sequence[Sample]]
"""A policy's samples of one iteration, by group."""

MiniBatch = tuple[list[TokenBatch], list[Tensor | None]]
"""The samples of one optimizer step: this process's micro-batches, and for each the learner's log-probabilities (B, C)
at the update's start; None where they are those that the step itself computes.
"""


class NonFiniteError(FloatingPointError):
    """A loss or gradient that is NaN or infinite; the step that it would have made was not taken."""


class Learner:
    """One policy's optimizer, learning-rate schedule and version, and the steps of its update.

    ``module`` is the pool's :class:`.policy.PolicyModule` as Fabric wraps it.  With several processes, all of them get
    the same samples, each computes its share of every mini-batch, and all take the same steps.

    Exact: the gradient of a step does not depend on how its mini-batch is cut into micro-batches and divided among
    processes.  Every candidate's weight is known before the first step, so that the losses of the parts add up to that
    of the mini-batch.  Not exact: the last bits, since floating-point sums depend on their order; and the engine's
    log-probabilities, which come from other kernels and perhaps another precision (:mod:`.mismatch`).
    """

    def __init__(
        self,
        name: str,
        config: PolicyTrainConfig,
        module: Any,
        optimizer: Optimizer,
        scheduler: LRScheduler,
        fabric: L.Fabric,
        *,
        pad_id: int,
        seed: int,
        ranks: Ranks,
    ) -> None:
        self.name, self.objective, self.settings = name, config.objective, config.update
        self.module, self.optimizer, self.scheduler, self.fabric = module, optimizer, scheduler, fabric
        self.pad_id, self.seed, self.ranks = pad_id, seed, ranks
        self.version = 0
        # DDP exchanges gradients during the backward pass, but expects one for every parameter.  Where several policies
        # share the backbone, only one adapter has gradients at a time: they are then added up by hand, in ``_clip``.
        self.sync_in_backward = len(module.policies) == 1

    def update(self, groups: Groups) -> dict[str, float]:
        """Take all steps of one iteration; returns metrics.  The version grows by one.

        Raises :class:`NonFiniteError`.
        """
        stats = UpdateStats(groups, float(self.scheduler.get_last_lr()[0]), self.fabric.device)
        steps = self._mini_batches(groups)
        self._measure_untrained_mismatch(groups, stats)
        for epoch in range(self.settings.epochs):
            for batches, old_logprobs in steps:
                # Later epochs would count the same distance between engine and learner again.
                loss = self._backward(batches, old_logprobs, stats, count_mismatch=epoch == 0)
                norm = self._clip()
                self.optimizer.step()
                self.optimizer.zero_grad()
                stats.add_step(loss, norm)
        if steps:  # else nothing had an advantage, and the schedule waits too
            self.scheduler.step()
        metrics = stats.metrics(self.objective, self.ranks)
        if self.ranks.first:
            warn_of_mismatch(metrics, self.settings, self.name, self.version)
        self.version += 1
        return metrics

    # ---- before the first step --------------------------------------------------------------------------------------

    def _mini_batches(self, groups: Groups) -> list[MiniBatch]:
        """This process's part of each mini-batch; those without any gradient are left out, in all processes alike."""
        rng = Random(f"{self.seed}/{self.name}/{self.version}")
        if self.settings.live_groups_only:
            groups = [group for group in groups if _is_live(group)]
        by_tokens = self.objective.normalisation == "token_mean"
        parts = mini_batches(groups, self.settings.mini_batches, rng, by_tokens=by_tokens)
        cut = [self._micro_batches(part, every_sample=self.objective.every_sample) for part in parts]
        steps = [batches for batches in cut if batches]
        return list(zip(steps, self._old_logprobs(steps), strict=True))

    def _micro_batches(self, samples: Sequence[Sample], *, every_sample: bool) -> list[TokenBatch]:
        """This process's part of ``samples``, on its device."""
        batches = micro_batches(
            samples,
            self.settings.max_tokens,
            self.pad_id,
            self.ranks.rank,
            self.ranks.world,
            every_sample=every_sample,
        )
        return [batch.to(self.fabric.device) for batch in batches]

    def _old_logprobs(self, steps: Sequence[Sequence[TokenBatch]]) -> list[list[Tensor | None]]:
        """The learner's log-probabilities (B, C) at the update's start, of each micro-batch of each step.

        The importance ratio compares with the weights before any step, so they are computed before the first one.
        With one epoch the first step needs no extra forward pass, because its own uses these weights.  With several it
        does, because later epochs use changed weights.
        """
        first = steps[:1] if self.settings.epochs == 1 else []
        present: list[list[Tensor | None]] = [[None] * len(step) for step in first]
        with torch.no_grad(), self._autocast():
            rest = steps[len(first) :]
            later: list[list[Tensor | None]] = [[self._logprobs(batch) for batch in step] for step in rest]
        return present + later

    def _measure_untrained_mismatch(self, groups: Groups, stats: UpdateStats) -> None:
        """Add the samples that no step learns from, or some of them, to the mismatch statistics.

        Without gradients and in evaluation mode, which draws no random numbers: what is learnt stays the same.
        """
        rng = Random(f"{self.seed}/{self.name}/{self.version}/mismatch")
        samples = draw_rows(self._untrained_samples(groups), self.settings.mismatch_share, rng)
        self.module.eval()
        with torch.no_grad(), self._autocast():
            for batch in self._micro_batches(samples, every_sample=True):
                drift = torch.where(batch.mask, self._logprobs(batch) - batch.behaviour_logprobs, 0.0)
                if batch.weights.any():  # else idle
                    ratio, corrected = self.objective.importance(drift)
                    stats.mismatch.add(batch.places, drift, batch.mask, ratio, corrected, batch.weights)
        self.module.train()

    def _untrained_samples(self, groups: Groups) -> list[Sample]:
        """The samples that no step has."""
        if self.objective.every_sample:
            left_out = [group for group in groups if self.settings.live_groups_only and not _is_live(group)]
            return [sample for group in left_out for sample in group]
        return [sample for group in groups for sample in group if sample.advantage == 0]

    # ---- one step ---------------------------------------------------------------------------------------------------

    def _backward(
        self,
        batches: Sequence[TokenBatch],
        old_logprobs: Sequence[Tensor | None],
        stats: UpdateStats,
        *,
        count_mismatch: bool,
    ) -> float:
        """Accumulate the gradients of one mini-batch, over its micro-batches; its loss, over all processes."""
        loss = 0.0
        for index, (batch, old) in enumerate(zip(batches, old_logprobs, strict=True)):
            last = index == len(batches) - 1
            # Gradients accumulate locally; the last backward pass averages them with those of the other processes.
            with self.fabric.no_backward_sync(self.module, enabled=not (last and self.sync_in_backward)):
                with self._autocast():
                    output = self.module.training_step(self.name, batch, old)
                # DDP gives the mean over the processes.  Each has the loss of its own rows, so their sum is wanted.
                self.fabric.backward(output.loss * self.ranks.world if self.sync_in_backward else output.loss)
            if not batch.weights.any():  # an idle row, there so that all processes make as many backward passes
                continue
            loss += output.loss.item()
            stats.add_batch(output)
            if count_mismatch:
                ratio, corrected = self.objective.importance(output.drift)
                stats.mismatch.add(batch.places, output.drift, batch.mask, ratio, corrected)
        loss = self.ranks.total({"loss": loss}, self.fabric.device)["loss"]
        if not math.isfinite(loss):
            self._refuse("loss", loss)
        return loss

    def _clip(self) -> float:
        """Clip the policy's gradients; their norm before that, of the whole mini-batch."""
        if self.ranks.world > 1 and not self.sync_in_backward:
            self._add_up_gradients()
        norm = self.fabric.clip_gradients(
            self.module, self.optimizer, max_norm=self.settings.clip_norm, error_if_nonfinite=False
        )
        assert norm is not None  # None is what clipping by value returns
        if not torch.isfinite(norm):
            self._refuse("gradient's norm", norm.item())
        return norm.item()

    def _add_up_gradients(self) -> None:
        """Over all processes, in one message."""
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        gradients = [p.grad for p in parameters if p.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        self.ranks.add_up(flat)
        for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(part.view_as(gradient))

    def _refuse(self, quantity: str, value: float) -> NoReturn:
        """Drop the gradients accumulated so far and raise."""
        self.optimizer.zero_grad()
        raise NonFiniteError(f"policy '{self.name}': the {quantity} is {value} in the update of version {self.version}")

    def _logprobs(self, batch: TokenBatch) -> Tensor:
        """(B, C) nats, by the module itself: Fabric's wrapper would round them to the default dtype."""
        logprobs: Tensor = self.module.module(self.name, batch)
        return logprobs

    def _autocast(self) -> AbstractContextManager[Any]:
        """Fabric's autocast under mixed precision.  Fabric's other contexts set torch's default dtype, which is one for
        all threads, while other pools update.
        """
        mixed = isinstance(self.fabric.strategy.precision, MixedPrecision)
        return self.fabric.autocast() if mixed else nullcontext()


def _is_live(group: Sequence[Sample]) -> bool:
    """Whether a sample of the group has an advantage."""
    return any(sample.advantage for sample in group)
