"""A critic: a value head on a language model's backbone, its optimizer, and its regression on returns."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, TypeVar

import lightning as L
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from ...errors import check_whole
from ...rollout.engines.weights import load_into
from .optimizer_steps import OptimizerSteps
from .ranks import Ranks
from .settings import CriticSettings
from .sharding import load_optimizer_state
from .train_config import MakeOptimizer

S = TypeVar("S")


@dataclass(frozen=True)
class ValueSample:
    """One input of a critic: the mean of the returns after it, which ``count`` messages had."""

    token_ids: tuple[int, ...]
    target: float
    count: int


class CriticModule(L.LightningModule):
    """V of a sequence of tokens: a linear head on the hidden state of its last token.

    The backbone is that of ``model``, a causal language model, of which it becomes a part.  The head is new and all 0,
    so that every value is 0 before the first step.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.backbone: PreTrainedModel = model.base_model
        self.head = nn.Linear(model.config.hidden_size, 1, dtype=model.dtype)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, token_ids: Sequence[tuple[int, ...]]) -> Tensor:
        """(B,) the value of each sequence; the head computes in its own precision."""
        rows = [torch.tensor(ids, device=self.device) for ids in token_ids]
        lengths = torch.tensor([len(ids) for ids in token_ids], device=self.device)
        mask = torch.arange(int(lengths.max()), device=self.device) < lengths[:, None]
        output = self.backbone(input_ids=pad_sequence(rows, True), attention_mask=mask.long(), use_cache=False)
        last = output.last_hidden_state[torch.arange(len(rows), device=self.device), lengths - 1]
        return (last.to(self.head.weight.dtype) * self.head.weight[0]).sum(dim=-1) + self.head.bias[0]

    def training_step(self, samples: Sequence[ValueSample], total: int) -> Tensor:
        """The part of ``samples`` in the mean squared error over ``total`` messages, times 1/2; of messages with one
        input it leaves out the variance of their returns, which has no gradient.
        """
        values = self([sample.token_ids for sample in samples])
        targets, counts = (
            torch.tensor([getattr(sample, name) for sample in samples], dtype=values.dtype, device=values.device)
            for name in ("target", "count")
        )
        return (counts * (values - targets).square()).sum() / (2 * total)


class Critic(OptimizerSteps):
    """One critic: its module, optimizer and version.  With several processes each computes its share, as a policy's
    :class:`.learner.Learner` does.

    It reads inputs of at most ``context`` tokens.
    """

    def __init__(
        self,
        name: str,
        module: CriticModule,
        optimizer: MakeOptimizer,
        settings: CriticSettings,
        fabric: L.Fabric,
        *,
        seed: int = 0,
        ranks: Ranks | None = None,
    ) -> None:
        self.name, self.settings, self.seed = name, settings, seed
        self.context: int = module.backbone.config.max_position_embeddings
        self.lock = threading.Lock()
        """Held while it computes."""
        wrapped, built = fabric.setup(module, optimizer(module.parameters()))
        bounds: dict[str, Any] = {"max_tokens": settings.max_tokens, "clip_norm": settings.clip_norm}
        super().__init__(f"critic '{name}'", wrapped, built, fabric, ranks or Ranks(), **bounds)

    async def close(self) -> None:
        """It has started nothing."""

    @property
    def plain(self) -> CriticModule:
        """The module itself: Fabric's wrapper would round its output to the default dtype."""
        module: CriticModule = self.module.module
        return module

    # ---- values -----------------------------------------------------------------------------------------------------

    def evaluate(self, inputs: Sequence[tuple[int, ...]]) -> list[float]:
        """The value of each input, all of them different, by the present weights."""
        with self.lock:
            self.module.eval()
            self.longest = max(map(len, inputs), default=0)
            return self._within_memory(partial(self._values, inputs))

    def _values(self, inputs: Sequence[tuple[int, ...]]) -> list[float]:
        values: dict[tuple[int, ...], float] = {}
        with torch.no_grad(), self._autocast():
            for batch in _chunks(inputs, self.max_tokens, len):
                values |= dict(zip(batch, self.plain(batch).tolist(), strict=True))
        return [values[token_ids] for token_ids in inputs]

    # ---- regression -------------------------------------------------------------------------------------------------

    def update(self, samples: Sequence[ValueSample]) -> dict[str, float]:
        """Take all steps of one iteration towards the targets of ``samples``; returns metrics.  The version grows by
        one.

        Raises :class:`.optimizer_steps.NonFiniteError`, :class:`...kernels.memory.UpdateMemoryError`.
        """
        with self.lock:
            self.module.train()
            return self._update(samples)

    def _update(self, samples: Sequence[ValueSample]) -> dict[str, float]:
        start, splits, norms = time.perf_counter(), self.splits, []
        self.longest = max(len(sample.token_ids) for sample in samples)
        rng = Random(f"{self.seed}/{self.name}/{self.version}")
        for _ in range(self.settings.epochs):
            order = rng.sample(samples, len(samples))
            count = min(self.settings.mini_batches, len(order))
            for part in (order[i::count] for i in range(count)):
                loss = self._within_memory(partial(self._backward, part))
                loss = self.ranks.total({"loss": loss}, self.fabric.device)["loss"]
                if not math.isfinite(loss):
                    self._refuse("loss", loss)
                norms.append(self._clip())
                self._step()
        self.version += 1
        return {
            "grad_norm": sum(norms) / len(norms),
            "optimizer_steps": float(len(norms)),
            "learning_rate": float(self.optimizer.param_groups[0]["lr"]),
            "update_s": time.perf_counter() - start,
            "faults/oom_splits": self.splits - splits,
        }

    def _backward(self, samples: Sequence[ValueSample]) -> float:
        """Accumulate the gradients of this process's share of a mini-batch; its part of the loss."""
        total, loss = sum(sample.count for sample in samples), 0.0
        own = samples[self.ranks.rank :: self.ranks.world] or [ValueSample(samples[0].token_ids, 0.0, 0)]
        for batch in _chunks(own, self.max_tokens, lambda sample: len(sample.token_ids)):
            with self._autocast():
                part = self.plain.training_step(batch, total)
            self.fabric.backward(part)
            loss += part.item()
        return loss

    # ---- state ------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything that the next value and the next update depend on."""
        with self.lock:
            return {
                "version": self.version,
                "model": {name: value.detach() for name, value in self.plain.state_dict().items()},
                "optimizer": self.optimizer.state_dict(),
                "max_tokens": self.max_tokens,
            }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the state that :meth:`state_dict` returned.  Raises ``ValueError`` for a state that does not fit."""
        with self.lock:
            load_into(self.name, self.plain.state_dict(), state["model"])
            load_optimizer_state(self.optimizer, state["optimizer"])
            check_whole("version", state["version"], 0)
            check_whole("max_tokens", state["max_tokens"], 1)
            self.version, self.max_tokens = state["version"], state["max_tokens"]


def _chunks(items: Sequence[S], max_tokens: int, length: Callable[[S], int]) -> list[list[S]]:
    """Cut ``items``, the shortest first, into batches of at most ``max_tokens`` tokens, padding included (or one)."""
    batches: list[list[S]] = []
    for item in sorted(items, key=length):
        if not batches or (len(batches[-1]) + 1) * length(item) > max_tokens:
            batches.append([])
        batches[-1].append(item)
    return batches
