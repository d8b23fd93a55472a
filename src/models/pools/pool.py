"""A pool: one backbone in memory with its policies; and a policy as the rest of Troupe knows it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import torch
from torch import Tensor

from ...errors import check_whole
from ...experience import Sample
from ...kernels.contention import is_small, updating
from ..bases.loading import checkpoint_weights
from ..bases.reading import read_states
from ..learning.learner import Groups, Learner
from ..learning.policy import PolicyModule
from ..learning.ranks import Ranks
from ..learning.sharding import check_keys, load_optimizer_state, optimizer_state
from ..learning.zero import ZeroStrategy
from .handles import TRAINING

SHARD = "training_{:0>5}.pt"
"""A policy's optimizer, scheduler and version, of all processes or of one."""


class Pool:
    """The policies of ``module``, in this process: one with all weights of its model, or several that are adapters.

    Its methods are asynchronous, so that pools update side by side, each in a thread, and so that a pool may live in
    another process.  The policies of one pool learn one after another: they share a backbone, which computes for one
    adapter at a time, and the gradient of an adapter on a frozen base does not depend on the other adapters.

    Where the module is sharded, all processes must read weights and states alike; optimizer states are saved
    ``gathered`` in the first process, or by each process its own.
    """

    def __init__(
        self,
        module: PolicyModule,
        fabric: L.Fabric,
        *,
        seed: int = 0,
        ranks: Ranks | None = None,
        gathered: bool = False,
    ) -> None:
        if isinstance(fabric.strategy, ZeroStrategy):  # an engine for each optimizer, which divides what it learns
            configured = module.configure_optimizers()
            engines: list[Any] = [fabric.setup(module, each["optimizer"]) for each in configured]
        else:
            wrapped = fabric.setup_module(module)
            configured = module.configure_optimizers()  # of the parameters as they are now, which may be shards
            engines = [(wrapped, fabric.setup_optimizers(each["optimizer"])) for each in configured]
        self.module = engines[0][0]
        self.ranks, self.gathered = ranks or Ranks(), gathered
        self.lock = threading.Lock()
        """Held during an update."""
        self.small = is_small(self.module)
        self.policies: dict[str, Policy] = {}
        common: dict[str, Any] = {"seed": seed, "ranks": self.ranks}
        for (name, config), (engine, optimizer), each in zip(module.policies.items(), engines, configured, strict=True):
            learner = Learner(name, config, engine, optimizer, each["lr_scheduler"], fabric, **common)
            self.policies[name] = Policy(self, learner)

    async def update(self, batches: Mapping[str, Groups], by_agent: bool = False) -> dict[str, dict[str, float]]:
        """One iteration's update of every policy in ``batches``, from its groups of samples; metrics by policy.

        A cancelled call still runs to its end, since a thread cannot be stopped.  Whatever reads the pool waits for
        it, so that no caller reads weights during an update.  Raises
        :class:`..learning.optimizer_steps.NonFiniteError`.
        """
        return await asyncio.to_thread(self._update, batches, by_agent)

    async def close(self) -> None:
        """It has started nothing."""

    def _update(self, batches: Mapping[str, Groups], by_agent: bool) -> dict[str, dict[str, float]]:
        with self.lock, updating(self.small):
            self.module.train()
            return {name: self.policies[name].learner.update(groups, by_agent) for name, groups in batches.items()}


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

    @property
    def sharded(self) -> bool:
        """Whether each process has a part of it alone."""
        return self.learner.sharded

    async def reference_logprobs(self, samples: Sequence[Sample]) -> list[tuple[float, ...]]:
        """Of each sample's tokens, nats: of the weights at the run's start."""
        return await self._alone(self.learner.reference_logprobs, samples)

    async def logprobs(self, samples: Sequence[Sample]) -> list[tuple[float, ...]]:
        """Of each sample's tokens, nats: of the present weights."""
        return await self._alone(self.learner.logprobs, samples)

    async def _alone(
        self, score: Callable[[Sequence[Sample]], list[tuple[float, ...]]], samples: Sequence[Sample]
    ) -> list[tuple[float, ...]]:
        """``score(samples)`` in a thread, while the pool does nothing else."""

        def work() -> list[tuple[float, ...]]:
            with self.pool.lock:
                return score(samples)

        return await asyncio.to_thread(work)

    def export(self, folder: Path) -> None:
        """Write the weights as libraries read them."""
        with self.pool.lock:
            module = self.pool.module
            module.export(self.name, folder, module.weights(self.name))

    def save(self, folder: Path) -> None:
        """Write the weights as libraries read them, and beside them everything else that the next update depends on.

        Called in the first process; of a sharded policy in all of them.
        """
        ranks = self.pool.ranks if self.sharded else Ranks()
        gathered = self.pool.gathered or not self.sharded
        with self.pool.lock:
            weights, training = self.pool.module.weights(self.name), self._training_state(gathered=gathered)

            def write() -> None:
                if ranks.first:
                    self.pool.module.export(self.name, folder, weights)
                if ranks.first or not gathered:
                    file = TRAINING if gathered else SHARD.format(ranks.rank)
                    folder.mkdir(parents=True, exist_ok=True)
                    with (folder / file).open("wb") as opened:
                        torch.save(training, opened)

            ranks.completed(write)

    def restore(self, folder: Path) -> None:
        """Bring the policy to where :meth:`save` wrote ``folder``, in all processes.

        Raises ``ValueError``, ``KeyError`` or ``OSError`` for files that do not fit.
        """
        file = folder / TRAINING
        if not file.exists():
            shards = len(list(folder.glob("training_*.pt")))
            if shards != self.pool.ranks.world:
                raise ValueError(f"{shards} processes wrote their optimizer states, and {self.pool.ranks.world} read")
            file = folder / SHARD.format(self.pool.ranks.rank)
        training = read_states(file)
        self.load_state_dict({**training, "model": checkpoint_weights(folder)})

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next update depends on; the weights under ``model``."""
        with self.pool.lock:
            return {**self._training_state(gathered=True), "model": self.pool.module.weights(self.name)}

    def _training_state(self, *, gathered: bool) -> dict[str, Any]:
        return {
            "version": self.learner.version,
            "optimizer": optimizer_state(self.learner.optimizer, gathered=gathered),
            "scheduler": self.learner.scheduler.state_dict(),
            "max_tokens": self.learner.max_tokens,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that :meth:`state_dict` returned.  Raises ``ValueError`` for a state that does not fit."""
        with self.pool.lock:
            self.pool.module.load_weights(self.name, state["model"])
            load_optimizer_state(self.learner.optimizer, state["optimizer"])
            # torch would take any attribute of the scheduler from it.
            check_keys("scheduler", state["scheduler"], self.learner.scheduler.state_dict())
            self.learner.scheduler.load_state_dict(state["scheduler"])
            # Checkpoints of older versions have no max_tokens: there was no split.
            state = {"max_tokens": self.learner.settings.max_tokens, **state}
            check_whole("version", state["version"], 0)
            check_whole("max_tokens", state["max_tokens"], 1)
            self.learner.version, self.learner.max_tokens = state["version"], state["max_tokens"]
