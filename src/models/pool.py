"""The pool handle: one backbone, its Fabric set-up, optimizer and update."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import lightning as L
import torch
from lightning.fabric.plugins.precision.amp import MixedPrecision
from torch import Tensor

from ..experience import Sample, TokenBatch
from ..rollout.weights import load_strictly
from .packing import micro_batches, mini_batches
from .policy import PolicyModule
from .ranks import Ranks

SHARED = ("clipped", "kl", "tokens", "behaviour", "reference", "entropy")
"""Totals over tokens, of which each process sees its own; losses and norms are those of all."""


class NonFiniteError(FloatingPointError):
    """A loss or gradient that is NaN or infinite; the step that it would have made was not taken."""


class LocalPool:
    """A pool in this process.  Its methods are asynchronous, so that pools update side by side (in threads).

    ``mini_batches`` optimizer steps an epoch, ``epochs`` passes over an iteration's samples, gradients accumulated over
    micro-batches of at most ``max_tokens`` tokens and clipped to the norm ``clip_norm``.  ``live_groups_only`` leaves
    groups without any advantage out of the loss's mean.  With several processes, all are given the same samples, each
    takes its share of every mini-batch, and all take the same steps.

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
        mini_batches: int = 1,
        epochs: int = 1,
        max_tokens: int = 16_384,
        clip_norm: float = 1.0,
        live_groups_only: bool = False,
        seed: int = 0,
        ranks: Ranks | None = None,
    ) -> None:
        for key, value in (("mini_batches", mini_batches), ("epochs", epochs), ("max_tokens", max_tokens)):
            if value < 1:
                raise ValueError(f"algorithm.update.{key} must be at least 1, got {value}")
        if clip_norm <= 0:
            raise ValueError(f"algorithm.update.clip_norm must be above 0, got {clip_norm}")
        self.name, self.fabric, self.pad_id = name, fabric, pad_id
        self.mini_batches, self.epochs = mini_batches, epochs
        self.ranks = ranks or Ranks()
        self.max_tokens, self.clip_norm, self.seed = max_tokens, clip_norm, seed
        self.live_groups_only = live_groups_only
        configured = module.configure_optimizers()
        self.scheduler = configured["lr_scheduler"]
        self.module, self.optimizer = fabric.setup(module, configured["optimizer"])
        self.version = 0
        self._at_rest = threading.Lock()

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
            return self._train(groups)

    def _train(self, groups: Sequence[Sequence[Sample]]) -> dict[str, float]:
        started = time.perf_counter()
        self.module.train()
        rng = Random(f"{self.seed}/{self.name}/{self.version}")
        totals = {
            "loss": 0.0,
            "clipped": 0.0,
            "kl": 0.0,
            "tokens": 0.0,
            "grad_norm": 0.0,
            "steps": 0.0,
            "behaviour": 0.0,
            "reference": 0.0,
            "entropy": 0.0,
        }
        learning_rate = self.scheduler.get_last_lr()[0]
        parts = self._parts(groups, rng)
        parts = [[batch.to(self.fabric.device) for batch in part] for part in parts if part]
        olds = self._old_logprobs(parts)
        for _ in range(self.epochs):
            for part, old in zip(parts, olds, strict=True):
                self._step(part, old, totals)
        totals |= self._summed({key: totals[key] for key in SHARED})
        if totals["steps"]:  # else nothing had an advantage, and the schedule waits too
            self.scheduler.step()
        self.version += 1
        tokens, steps = max(totals["tokens"], 1), max(totals["steps"], 1)
        samples = [sample for group in groups for sample in group]
        live = sum(any(sample.advantage for sample in group) for group in groups)
        regularised = {"reference_kl_nats": "reference"} if self.module.objective.kl else {}
        regularised |= {"entropy_nats": "entropy"} if self.module.objective.entropy else {}
        return {name: totals[key] / tokens for name, key in regularised.items()} | {
            "loss": totals["loss"] / steps,
            "grad_norm": totals["grad_norm"] / steps,
            "clipped_share": totals["clipped"] / tokens,
            "step_kl_nats": totals["kl"] / tokens,
            "behaviour_kl_nats": totals["behaviour"] / tokens,
            "live_groups": live / max(len(groups), 1),
            "samples": float(len(samples)),
            "optimizer_steps": totals["steps"],
            "learning_rate": learning_rate,
            "update_s": time.perf_counter() - started,
        }

    def _parts(self, groups: Sequence[Sequence[Sample]], rng: Random) -> list[list[TokenBatch]]:
        """The micro-batches of each mini-batch."""
        objective = self.module.objective
        if self.live_groups_only:
            groups = [group for group in groups if any(sample.advantage for sample in group)]
        by_tokens = objective.normalisation == "token_mean"
        cut = partial(
            micro_batches,
            max_tokens=self.max_tokens,
            pad_id=self.pad_id,
            rank=self.ranks.rank,
            world=self.ranks.world,
            every_sample=objective.every_sample,
        )
        return [cut(part) for part in mini_batches(groups, self.mini_batches, rng, by_tokens=by_tokens)]

    def _old_logprobs(self, parts: list[list[TokenBatch]]) -> list[list[Tensor | None]]:
        """The learner's log-probabilities at the update's start; None where the first step will find them anyway."""
        first = parts[:1] if self.epochs == 1 else []
        with torch.no_grad(), self._precision():  # of the module itself: its wrapper rounds to the default dtype
            later = [[self.module.module(batch) for batch in part] for part in parts[len(first) :]]
        return [[None] * len(part) for part in first] + later

    def _precision(self) -> AbstractContextManager[Any]:
        """Fabric's autocast under mixed precision.  Its other contexts set the default dtype, which threads share."""
        mixed = isinstance(self.fabric.strategy.precision, MixedPrecision)
        return self.fabric.autocast() if mixed else nullcontext()

    def _step(self, part: list[TokenBatch], old: list[Tensor | None], totals: dict[str, float]) -> None:
        """Accumulate the gradients of one mini-batch, over its micro-batches and all processes, and step."""
        loss = 0.0
        for index, (batch, old_logprobs) in enumerate(zip(part, old, strict=True)):
            with self.fabric.no_backward_sync(self.module, enabled=index < len(part) - 1):
                with self._precision():
                    output = self.module.training_step(batch, old_logprobs)
                self.fabric.backward(output.loss * self.ranks.world)  # gradients are averaged over the processes
            if not batch.weights.any():  # idle
                continue
            loss += output.loss.item()
            totals["clipped"] += output.clipped.item()
            totals["kl"] += output.approx_kl_nats.item()
            totals["behaviour"] += output.behaviour_kl_nats.item()
            totals["reference"] += output.reference_kl_nats.item()
            totals["entropy"] += output.entropy_nats.item()
            totals["tokens"] += output.tokens.item()
        loss = self._summed({"loss": loss})["loss"]
        if not math.isfinite(loss):
            self._refuse("loss", loss)
        norm = self.fabric.clip_gradients(
            self.module, self.optimizer, max_norm=self.clip_norm, error_if_nonfinite=False
        )
        assert norm is not None  # None is what clipping by value returns
        if not torch.isfinite(norm):
            self._refuse("gradient's norm", norm.item())
        totals["loss"] += loss
        totals["grad_norm"] += norm.item()
        totals["steps"] += 1
        self.optimizer.step()
        self.optimizer.zero_grad()

    def _summed(self, values: dict[str, float]) -> dict[str, float]:
        """Each value's sum over the processes."""
        if self.ranks.world == 1:
            return values
        total = torch.tensor(list(values.values()), dtype=torch.float64, device=self.fabric.device)
        torch.distributed.all_reduce(total)
        return dict(zip(values, total.tolist(), strict=True))

    def _refuse(self, what: str, value: float) -> NoReturn:
        """Drop the gradients gathered so far and raise."""
        self.optimizer.zero_grad()
        raise NonFiniteError(f"policy '{self.name}': the {what} is {value} in the update of version {self.version}")

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
