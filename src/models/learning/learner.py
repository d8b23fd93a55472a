"""The learner: one policy's update, from an iteration's groups of samples to optimizer steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from random import Random
from typing import Any, Final

import lightning as L
import torch
from torch import Tensor
from torch.nn.utils import get_total_norm
from torch.nn.utils.rnn import pad_sequence
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ...algorithms.objectives import ObjectiveOutput
from ...experience import Sample, TokenBatch
from ...kernels.memory import UpdateMemoryError, trim_heap
from .optimizer_steps import OptimizerSteps
from .packing import draw_rows, micro_batch_rows, mini_batches, pack
from .ranks import Ranks
from .sharding import release_shards
from .train_config import PolicyTrainConfig
from .update_stats import Operations, UpdateStats, peak, weight_shares

MEASURED = 0.25
"""The share of a mini-batch's prompts from which the agents' shares of the gradient are measured, and..."""
MEASURED_AT_LEAST = 128
"""... the messages of an agent below which all count: the gradient of a few is mostly noise, and its norm too long."""

Groups = Sequence[Sequence[Sample]]
"""A policy's samples of one iteration, by group."""

LARGE: Final = 300_000_000
"""Weights of a model whose micro-batches leave hundreds of megabytes in malloc's heap, which the next one, of another
size, has no use for."""


class Learner(OptimizerSteps):
    """One policy's optimizer, learning-rate schedule and version, and the steps of its update.

    ``module`` is the pool's :class:`.policy.PolicyModule` as Fabric wraps it.  With several processes, all of them get
    the same samples, each computes its share of every mini-batch, and all take the same steps.

    Exact: the gradient of a step does not depend on how its mini-batch is cut into micro-batches and divided among
    processes.  Every candidate's weight is known before the first step, so that the losses of the parts add up to that
    of the mini-batch.  Not exact: the last bits, since floating-point sums depend on their order; and the engine's
    log-probabilities, which come from other kernels and perhaps another precision (:mod:`.update_stats`).
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
        seed: int,
        ranks: Ranks,
    ) -> None:
        bounds: dict[str, Any] = {"max_tokens": config.update.max_tokens, "clip_norm": config.update.clip_norm}
        super().__init__(f"policy '{name}'", module, optimizer, fabric, ranks, **bounds)
        self.name, self.objective, self.settings, self.scheduler = name, config.objective, config.update, scheduler
        self.seed, self.peak = seed, peak(fabric.device)
        self.operations = self._operations() if self.peak else None
        self.large = fabric.device.type == "cpu" and sum(map(Tensor.numel, module.parameters())) > LARGE

    def update(self, groups: Groups, by_agent: bool = False) -> dict[str, float]:
        """Take all steps of one iteration; returns metrics.  The version grows by one.

        ``mfu``, on known GPUs: :class:`.update_stats.Operations` of this process per second, over the GPU's peak.

        ``by_agent``: also measure each agent's share of the gradient, where several agents speak with this policy.

        Raises :class:`.optimizer_steps.NonFiniteError`, :class:`...kernels.memory.UpdateMemoryError`.
        """
        learning_rate, splits = float(self.scheduler.get_last_lr()[0]), self.splits
        before = self.operations.done if self.operations else 0.0
        stats = UpdateStats(groups, learning_rate, self.fabric.device, self.version)
        self.longest = max(_pass_length(sample) for group in groups for sample in group)
        steps = self._mini_batches(groups)
        old_logprobs = self._within_memory(partial(self._old_logprobs, steps))
        self._measure_untrained_mismatch(groups, stats)
        shares = self._gradient_shares(steps[0]) if by_agent and steps else {}
        for epoch in range(self.settings.epochs):
            for samples in steps:
                outputs = self._within_memory(partial(self._backward, samples, old_logprobs))
                # Later epochs would count the same distance between engine and learner again.
                loss = self._loss(outputs, stats, count_mismatch=epoch == 0)
                norm = self._clip()
                self._step()
                stats.add_step(loss, norm)
        if steps:  # else nothing had an advantage, and the schedule waits too
            self.scheduler.step()
        release_shards(self.module.module)
        metrics = stats.metrics(self.objective, self.ranks)
        if self.operations and self.peak:
            metrics["mfu"] = (self.operations.done - before) / metrics["update_s"] / self.peak
        self.version += 1
        shares |= weight_shares(self._groups_of_steps(groups), self.objective)
        return {**metrics, **shares, "faults/oom_splits": self.splits - splits}

    # ---- before the first step --------------------------------------------------------------------------------------

    def _groups_of_steps(self, groups: Groups) -> Groups:
        """The groups whose weights count in the loss."""
        return [group for group in groups if _is_live(group)] if self.settings.live_groups_only else groups

    def _mini_batches(self, groups: Groups) -> list[list[Sample]]:
        """The samples of each optimizer step that have a gradient; steps without any are left out."""
        rng = Random(f"{self.seed}/{self.name}/{self.version}")
        groups = self._groups_of_steps(groups)
        by_tokens = self.objective.normalisation == "token_mean"
        parts = mini_batches(groups, self.settings.mini_batches, rng, by_tokens=by_tokens)
        steps = [[s for s in part if self.objective.every_sample or s.advantage != 0] for part in parts]
        return [samples for samples in steps if samples]

    def _micro_batches(self, samples: Sequence[Sample]) -> Iterator[tuple[TokenBatch, list[Sample]]]:
        """This process's part of ``samples`` on its device, each batch with its samples in their order."""
        for rows in micro_batch_rows(samples, self.max_tokens, self.ranks.rank, self.ranks.world):
            yield pack(rows).to(self.fabric.device), [sample for row in rows for sample in row]
            if self.large:
                trim_heap()

    def _old_logprobs(self, steps: Sequence[Sequence[Sample]]) -> dict[Sample, Tensor]:
        """Of this process's samples, the learner's log-probabilities (its tokens,) at the update's start.

        The importance ratio compares with the weights before any step, so they are computed before the first one.
        With one epoch the first step needs no extra forward pass, because its own uses these weights: its samples are
        left out.  With several it does, because later epochs use changed weights.
        """
        old: dict[Sample, Tensor] = {}
        with torch.no_grad(), self._autocast():
            for samples in steps[1 if self.settings.epochs == 1 else 0 :]:
                for batch, members in self._micro_batches(samples):
                    logprobs = self._logprobs(batch)  # of idle rows too: processes gather sharded weights together
                    if _counts(members):
                        rows = zip(members, logprobs, strict=True)
                        old |= {sample: row[: len(sample.token_ids)] for sample, row in rows}
        return old

    def _measure_untrained_mismatch(self, groups: Groups, stats: UpdateStats) -> None:
        """Add the samples that no step learns from, or some of them, to the mismatch statistics.

        Without gradients and in evaluation mode, which draws no random numbers: what is learnt stays the same.
        """
        rng = Random(f"{self.seed}/{self.name}/{self.version}/mismatch")
        samples = draw_rows(self._untrained_samples(groups), self.settings.mismatch_share, rng)

        def drifts() -> list[tuple[TokenBatch, list[Sample], Tensor]]:
            with torch.no_grad(), self._autocast():
                return [
                    (b, members, torch.where(b.mask, self._logprobs(b) - b.behaviour_logprobs, 0.0))
                    for b, members in self._micro_batches(samples)
                ]

        self.module.eval()
        for batch, members, drift in self._within_memory(drifts):
            if _counts(members):  # else idle
                ratio, corrected = self.objective.importance(drift)
                places = [*map(stats.place, members)]
                stats.mismatch.add(places, drift, batch.mask, ratio, corrected, batch.weights)
        self.module.train()

    def reference_logprobs(self, samples: Sequence[Sample]) -> list[tuple[float, ...]]:
        """Of each sample's tokens, nats, under the policy as it was when the module was made."""
        return self._scores(samples, lambda batch: self.module.module.reference_logprobs(self.name, batch))

    def logprobs(self, samples: Sequence[Sample]) -> list[tuple[float, ...]]:
        """Of each sample's tokens, nats, under the present weights, in evaluation mode: nothing random is drawn, and
        nothing that is learnt later changes.  Where the policy is sharded, all processes must call it alike.
        """
        with self._without_trace(), torch.no_grad():
            return self._scores(samples, self._logprobs)

    @contextmanager
    def _without_trace(self) -> Iterator[None]:
        """Passes in evaluation mode, which draws nothing random; that memory ran out in them changes no later one."""
        kept = (self.max_tokens, self.splits)
        self.module.eval()
        try:
            yield
        finally:
            self.module.train()
            self.max_tokens, self.splits = kept

    def _scores(self, samples: Sequence[Sample], score: Callable[[TokenBatch], Tensor]) -> list[tuple[float, ...]]:
        """Of each sample's tokens, what ``score`` gives: (B, C) nats."""
        self.longest = max(map(_pass_length, samples), default=0)

        def all_scores() -> dict[Sample, tuple[float, ...]]:
            scores: dict[Sample, tuple[float, ...]] = {}
            for rows in micro_batch_rows(samples, self.max_tokens):
                members = [sample for row in rows for sample in row]
                with self._autocast():
                    logprobs = score(pack(rows).to(self.fabric.device))
                for sample, row in zip(members, logprobs.tolist(), strict=True):
                    scores[sample] = tuple(row[: len(sample.token_ids)])
            return scores

        scores = self._within_memory(all_scores)
        return [scores[sample] for sample in samples]

    def _untrained_samples(self, groups: Groups) -> list[Sample]:
        """The samples that no step has."""
        if self.objective.every_sample:
            left_out = [group for group in groups if self.settings.live_groups_only and not _is_live(group)]
            return [sample for group in left_out for sample in group]
        return [sample for group in groups for sample in group if sample.advantage == 0]

    def _gradient_shares(self, samples: Sequence[Sample]) -> dict[str, float]:
        """``diagnostics/AGENT/gradient_share``: of the gradients of some prompts of a mini-batch's ``samples``, one of
        each agent alone, the norm of an agent's over the sum of their norms.

        Nothing where one agent speaks, where processes divide weights or gradients, and where memory does not suffice
        (in evaluation mode transformers keeps all activations, also with gradient checkpointing).  What is learnt stays
        the same: the gradients are dropped, nothing random is drawn, and a lack of memory here leaves no trace.
        """
        agents = sorted({sample.agent for sample in samples})
        if len(agents) < 2 or self.sharded:
            return {}
        norms: dict[str, float] = {}
        rng = Random(f"{self.seed}/{self.name}/{self.version}/gradient_shares")
        with suppress(UpdateMemoryError), self._without_trace():
            for agent in agents:
                own = [sample for sample in samples if sample.agent == agent]
                share = min(1.0, max(MEASURED, MEASURED_AT_LEAST / len(own)))
                prompts = {(sample.turn, sample.prompt_ids) for sample in draw_rows(own, share, rng)}
                some = [sample for sample in own if (sample.turn, sample.prompt_ids) in prompts]
                self._within_memory(partial(self._backward, some, {}))
                if self.ranks.world > 1:
                    self._add_up_gradients()
                norm = get_total_norm(list(self._gradients())).item()
                norms[agent] = norm * len(own) / len(some)
                self.optimizer.zero_grad()
        if len(norms) < len(agents):
            self.optimizer.zero_grad()
            return {}
        total = sum(norms.values())
        return {f"diagnostics/{agent}/gradient_share": norm / total for agent, norm in norms.items() if total}

    # ---- one step ---------------------------------------------------------------------------------------------------

    def _backward(
        self, samples: Sequence[Sample], old_logprobs: Mapping[Sample, Tensor]
    ) -> list[tuple[TokenBatch, list[Sample], ObjectiveOutput]]:
        """Accumulate the gradients of one mini-batch, over this process's micro-batches; these, with their samples and
        outputs.
        """
        outputs = []
        unsynced = self.ranks.world > 1 and not self.sharded
        for batch, members in self._micro_batches(samples):
            old = [old_logprobs[sample] for sample in members if sample in old_logprobs]
            # Each process accumulates its own; ``_clip`` adds them up, once none has run out of memory.  DDP would do
            # so during the last backward pass, and wait for ever for a process whose pass has failed.  Gradients of
            # sharded weights are added up in every pass: whole ones would need the memory that sharding saves.
            with self.fabric.no_backward_sync(self.module) if unsynced else nullcontext():
                with self._autocast():
                    output = self.module.training_step(self.name, batch, pad_sequence(old, True) if old else None)
                self.fabric.backward(output.loss, model=self.module)
            if self.operations:
                self.operations.add(batch, learning=True)
            if _counts(members):  # else an idle row
                outputs.append((batch, members, output))
        return outputs

    def _loss(
        self,
        outputs: Sequence[tuple[TokenBatch, list[Sample], ObjectiveOutput]],
        stats: UpdateStats,
        *,
        count_mismatch: bool,
    ) -> float:
        """The loss of a mini-batch, over all processes; the ``outputs`` of this one are added to ``stats``."""
        loss = 0.0
        for batch, members, output in outputs:
            loss += output.loss.item()
            stats.add_batch(output)
            if count_mismatch:
                ratio, corrected = self.objective.importance(output.drift)
                stats.mismatch.add([*map(stats.place, members)], output.drift, batch.mask, ratio, corrected)
        loss = self.ranks.total({"loss": loss}, self.fabric.device)["loss"]
        if not math.isfinite(loss):
            self._refuse("loss", loss)
        return loss

    def _logprobs(self, batch: TokenBatch) -> Tensor:
        """(B, C) nats, by the module itself: Fabric's wrapper would round them to the default dtype."""
        logprobs: Tensor = self.module.module(self.name, batch)
        if self.operations:
            self.operations.add(batch, learning=False)
        return logprobs

    def _operations(self) -> Operations | None:
        module = self.module.module
        return Operations.of(module.model_of(self.name), module.parameters_of(self.name), module.adapter_parameters())


def _pass_length(sample: Sample) -> int:
    """Tokens of the sample alone: the last one is nobody's input."""
    return len(sample.prompt_ids) + len(sample.token_ids) - 1


def _counts(members: Sequence[Sample]) -> bool:
    """Whether a micro-batch is more than an idle row.  Its tensors are not asked: a GPU would be waited for."""
    return any(sample.weight for sample in members)


def _is_live(group: Sequence[Sample]) -> bool:
    """Whether a sample of the group has an advantage."""
    return any(sample.advantage for sample in group)
