"""What learning is for one policy, whatever its pool: samples cut into steps, gradients gathered, statistics."""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, NoReturn

import lightning as L
import torch
from lightning.fabric.plugins.precision.amp import MixedPrecision
from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler

from ..algorithms.objectives.base import Objective, ObjectiveOutput
from ..algorithms.objectives.mismatch import Ledger
from ..experience import Sample, TokenBatch
from .packing import drawn, micro_batches, mini_batches
from .policy import MakeOptimizer, MakeScheduler
from .ranks import Ranks

log = logging.getLogger(__name__)

SHARED = ("clipped", "kl", "tokens", "behaviour", "reference", "entropy")
"""Totals over tokens, of which each process sees its own; losses and norms are those of all."""

Step = tuple[list[TokenBatch], list[Tensor | None]]
"""The micro-batches of one optimizer step, and the learner's log-probabilities at the update's start."""


class NonFiniteError(FloatingPointError):
    """A loss or gradient that is NaN or infinite; the step that it would have made was not taken."""


@dataclass(frozen=True, kw_only=True)
class UpdateSettings:
    """``mini_batches`` optimizer steps an epoch, ``epochs`` passes over an iteration's samples, gradients accumulated
    over micro-batches of at most ``max_tokens`` tokens and clipped to the norm ``clip_norm``.  ``live_groups_only``
    leaves groups without any advantage out of the loss's mean.

    Of the prompts whose candidates no step learns from (their advantage is 0), this ``mismatch_share`` is scored for
    the mismatch ledger, which would otherwise see only those that are learnt from: drawn anew at each update, for each
    agent and turn, at least one.  That costs a forward pass of theirs.  1: all; 0: none.

    Engine and learner are too far apart, and a warning says so, where for an agent in a turn ``k3_nats`` of
    :class:`..algorithms.objectives.mismatch.Ledger` exceeds ``alarm_kl_nats`` or its ``effective_share`` is below
    ``alarm_effective_share``; 0: never.
    """

    mini_batches: int = 1
    epochs: int = 1
    max_tokens: int = 16_384
    clip_norm: float = 1.0
    live_groups_only: bool = False
    mismatch_share: float = 0.25
    alarm_kl_nats: float = 0.01
    alarm_effective_share: float = 0.8

    def __post_init__(self) -> None:
        for key in ("mini_batches", "epochs", "max_tokens"):
            if (value := getattr(self, key)) < 1:
                raise ValueError(f"algorithm.update.{key} must be at least 1, got {value}")
        if self.clip_norm <= 0:
            raise ValueError(f"algorithm.update.clip_norm must be above 0, got {self.clip_norm}")
        if self.alarm_kl_nats < 0:
            raise ValueError(f"algorithm.update.alarm_kl_nats must be >= 0, got {self.alarm_kl_nats}")
        for key in ("mismatch_share", "alarm_effective_share"):
            if not 0 <= (value := getattr(self, key)) <= 1:
                raise ValueError(f"algorithm.update.{key} must be in [0, 1], got {value}")


@dataclass(frozen=True)
class Terms:
    """How a policy learns.  ``temperature`` is the sampling temperature, as in :class:`.policy.PolicyModule`."""

    objective: Objective
    optimizer: MakeOptimizer
    scheduler: MakeScheduler
    temperature: float
    update: UpdateSettings


@dataclass
class Update:
    """One policy's update under way: its steps, the ``first`` epoch's so many, and what was counted so far."""

    groups: Sequence[Sequence[Sample]]
    steps: list[Step]
    first: int
    ledger: Ledger
    learning_rate: float
    started: float
    totals: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("loss", "grad_norm", "steps", *SHARED), 0.0)
    )


class Learner(ABC):
    """One policy's part in the updates of its pool.  The pool decides when an optimizer steps:
    :meth:`begin`, then :meth:`gather` and :meth:`clip` for each step, then :meth:`end`.

    With several processes, all are given the same samples, each takes its share of every mini-batch, and all take the
    same steps.  ``averaged``: whether a backward pass averages the gradients over the processes.
    """

    averaged = True
    module: Any  # as Fabric wraps it
    scheduler: LRScheduler

    def __init__(
        self,
        name: str,
        fabric: L.Fabric,
        objective: Objective,
        settings: UpdateSettings,
        *,
        pad_id: int,
        seed: int,
        ranks: Ranks | None,
    ) -> None:
        self.name, self.fabric, self.objective, self.settings = name, fabric, objective, settings
        self.pad_id, self.seed, self.ranks = pad_id, seed, ranks or Ranks()
        self.version = 0

    @abstractmethod
    def _output(self, batch: TokenBatch, old_logprobs: Tensor | None) -> ObjectiveOutput:
        """The objective on a micro-batch."""

    @abstractmethod
    def _logprobs(self, batch: TokenBatch) -> Tensor:
        """(B, C) nats, of the module itself: Fabric's wrapper rounds to the default dtype."""

    @abstractmethod
    def _clipped(self) -> Tensor:
        """Clip this policy's gradients; their norm before that."""

    @abstractmethod
    def _drop(self) -> None:
        """Forget the gradients gathered so far."""

    def begin(self, groups: Sequence[Sequence[Sample]]) -> Update:
        """The steps of an update from ``groups`` of samples."""
        started = time.perf_counter()
        rng = Random(f"{self.seed}/{self.name}/{self.version}")
        learning_rate = float(self.scheduler.get_last_lr()[0])
        parts = [[batch.to(self.fabric.device) for batch in part] for part in self._parts(groups, rng) if part]
        steps = list(zip(parts, self._old_logprobs(parts), strict=True)) * self.settings.epochs
        ledger = Ledger(((s.agent, s.turn) for group in groups for s in group), self.fabric.device)
        self._score_unlearnt(groups, ledger)
        return Update(groups, steps, len(parts), ledger, learning_rate, started)

    def gather(self, update: Update, step: Step) -> None:
        """Accumulate the gradients of one mini-batch, over its micro-batches and all processes.

        Raises :class:`NonFiniteError`.
        """
        loss, totals = 0.0, update.totals
        for index, (batch, old_logprobs) in enumerate(zip(*step, strict=True)):
            alone = not self.averaged or index < len(step[0]) - 1
            with self.fabric.no_backward_sync(self.module, enabled=alone):
                with self._precision():
                    output = self._output(batch, old_logprobs)
                self.fabric.backward(output.loss * self.ranks.world if self.averaged else output.loss)
            if not batch.weights.any():  # idle
                continue
            loss += output.loss.item()
            totals["clipped"] += output.clipped.item()
            totals["kl"] += output.approx_kl_nats.item()
            totals["behaviour"] += output.behaviour_kl_nats.item()
            totals["reference"] += output.reference_kl_nats.item()
            totals["entropy"] += output.entropy_nats.item()
            totals["tokens"] += output.tokens.item()
            if totals["steps"] < update.first:  # later epochs drift from the same start
                update.ledger.add(batch.places, output.drift, batch.mask, *self.objective.importance(output.drift))
        loss = self._summed({"loss": loss})["loss"]
        if not math.isfinite(loss):
            self._refuse("loss", loss)
        totals["loss"] += loss

    def clip(self, update: Update) -> None:
        """Clip the gathered gradients and count the step.  Raises :class:`NonFiniteError`."""
        norm = self._clipped()
        if not torch.isfinite(norm):
            self._refuse("gradient's norm", norm.item())
        update.totals["grad_norm"] += norm.item()
        update.totals["steps"] += 1

    def end(self, update: Update) -> dict[str, float]:
        """The version and the schedule advance; metrics of the update."""
        groups, totals = update.groups, update.totals
        totals |= self._summed({key: totals[key] for key in SHARED})
        if totals["steps"]:  # else nothing had an advantage, and the schedule waits too
            self.scheduler.step()
        self.version += 1
        tokens, steps = max(totals["tokens"], 1), max(totals["steps"], 1)
        live = sum(any(sample.advantage for sample in group) for group in groups)
        mismatch = self._mismatch(update.ledger)
        regularised = {"reference_kl_nats": "reference"} if self.objective.kl else {}
        regularised |= {"entropy_nats": "entropy"} if self.objective.entropy else {}
        return {name: totals[key] / tokens for name, key in regularised.items()} | {
            "loss": totals["loss"] / steps,
            "grad_norm": totals["grad_norm"] / steps,
            "clipped_share": totals["clipped"] / tokens,
            "step_kl_nats": totals["kl"] / tokens,
            "behaviour_kl_nats": totals["behaviour"] / tokens,
            "live_groups": live / max(len(groups), 1),
            "samples": float(sum(len(group) for group in groups)),
            "optimizer_steps": totals["steps"],
            "learning_rate": update.learning_rate,
            "update_s": time.perf_counter() - update.started,
            **mismatch,
        }

    def _mismatch(self, ledger: Ledger) -> dict[str, float]:
        """The ledger's metrics; warns of those beyond their bounds."""
        if self.ranks.world > 1:
            reduce, kinds = torch.distributed.all_reduce, torch.distributed.ReduceOp
            ledger.reduce(partial(reduce, op=kinds.SUM), partial(reduce, op=kinds.MAX))
        found = ledger.metrics()
        if self.ranks.first:
            self._alarm(found)
        return found

    def _alarm(self, found: Mapping[str, float]) -> None:
        """Warn of the places that are worst, where they are beyond their bounds."""
        if not found:
            return
        who = f"policy '{self.name}', version {self.version - 1}"
        apart, place = max((value, key) for key, value in found.items() if key.endswith("/k3_nats"))
        if 0 < (bound := self.settings.alarm_kl_nats) < apart:
            log.warning("%s: %s=%.3g is more than algorithm.update.alarm_kl_nats=%g", who, place, apart, bound)
        share, place = min((value, key) for key, value in found.items() if key.endswith("/effective_share"))
        if share < (bound := self.settings.alarm_effective_share):
            log.warning("%s: %s=%.3g is less than algorithm.update.alarm_effective_share=%g", who, place, share, bound)

    def _parts(self, groups: Sequence[Sequence[Sample]], rng: Random) -> list[list[TokenBatch]]:
        """The micro-batches of each mini-batch."""
        if self.settings.live_groups_only:
            groups = [group for group in groups if any(sample.advantage for sample in group)]
        by_tokens = self.objective.normalisation == "token_mean"
        parts = mini_batches(groups, self.settings.mini_batches, rng, by_tokens=by_tokens)
        return [self._cut(part, every_sample=self.objective.every_sample) for part in parts]

    def _cut(self, samples: Sequence[Sample], *, every_sample: bool) -> list[TokenBatch]:
        """This process's micro-batches."""
        settings, ranks = self.settings, self.ranks
        return micro_batches(
            samples, settings.max_tokens, self.pad_id, ranks.rank, ranks.world, every_sample=every_sample
        )

    def _score_unlearnt(self, groups: Sequence[Sequence[Sample]], ledger: Ledger) -> None:
        """Add the samples that no step learns from, or some of them, to ``ledger``.

        Without gradients and in evaluation mode, which draws no random numbers: what is learnt stays the same.
        """
        rng = Random(f"{self.seed}/{self.name}/{self.version}/mismatch")
        some = drawn(self._unlearnt(groups), self.settings.mismatch_share, rng)
        self.module.eval()
        with torch.no_grad(), self._precision():
            for batch in self._cut(some, every_sample=True):
                batch = batch.to(self.fabric.device)
                drift = torch.where(batch.mask, self._logprobs(batch) - batch.behaviour_logprobs, 0.0)
                if batch.weights.any():  # else idle
                    ledger.add(batch.places, drift, batch.mask, *self.objective.importance(drift), batch.weights)
        self.module.train()

    def _unlearnt(self, groups: Sequence[Sequence[Sample]]) -> list[Sample]:
        """The samples that no step has."""
        live = [any(sample.advantage for sample in group) for group in groups]
        if self.objective.every_sample:
            live = [alive or not self.settings.live_groups_only for alive in live]
            return [sample for group, alive in zip(groups, live, strict=True) if not alive for sample in group]
        return [sample for group in groups for sample in group if sample.advantage == 0]

    def _old_logprobs(self, parts: list[list[TokenBatch]]) -> list[list[Tensor | None]]:
        """The learner's log-probabilities at the update's start; None where the first step will find them anyway."""
        first = parts[:1] if self.settings.epochs == 1 else []
        with torch.no_grad(), self._precision():
            later: list[list[Tensor | None]] = [
                [self._logprobs(batch) for batch in part] for part in parts[len(first) :]
            ]
        present: list[list[Tensor | None]] = [[None] * len(part) for part in first]
        return present + later

    def _precision(self) -> AbstractContextManager[Any]:
        """Fabric's autocast under mixed precision.  Its other contexts set the default dtype, which threads share."""
        mixed = isinstance(self.fabric.strategy.precision, MixedPrecision)
        return self.fabric.autocast() if mixed else nullcontext()

    def _summed(self, values: dict[str, float]) -> dict[str, float]:
        """Each value's sum over the processes."""
        if self.ranks.world == 1:
            return values
        total = torch.tensor(list(values.values()), dtype=torch.float64, device=self.fabric.device)
        torch.distributed.all_reduce(total)
        return dict(zip(values, total.tolist(), strict=True))

    def _refuse(self, what: str, value: float) -> NoReturn:
        """Drop the gradients gathered so far and raise."""
        self._drop()
        raise NonFiniteError(f"policy '{self.name}': the {what} is {value} in the update of version {self.version}")
