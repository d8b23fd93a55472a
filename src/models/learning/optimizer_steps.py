"""Optimizer steps on gradients that do not depend on how a mini-batch is cut and divided among processes."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn, TypeVar

import lightning as L
from lightning.fabric.plugins.precision.amp import MixedPrecision
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.optim import Adam, Optimizer

from ...kernels.memory import UpdateMemoryError, first_line, out_of_memory, release
from .ranks import Ranks
from .sharding import is_sharded, whole
from .zero import ZeroStrategy

T = TypeVar("T")
log = logging.getLogger(__name__)


class NonFiniteError(FloatingPointError):
    """A loss or gradient that is NaN or infinite; the step that it would have made was not taken."""


def use_fused_steps(optimizer: Optimizer) -> None:
    """Let Adam and AdamW take each step in one kernel where all weights are on a GPU, unless ``optimizer`` says how."""
    for group in optimizer.param_groups if isinstance(optimizer, Adam) else ():
        chosen = group["fused"] is not None or group["foreach"] is not None
        if not chosen and all(p.is_cuda and not isinstance(p, DTensor) for p in group["params"]):
            group["fused"] = True


class OptimizerSteps:
    """The optimizer of a policy or a critic, and what its steps need: memory, finite numbers, one gradient for all
    processes.

    ``module`` is a LightningModule as Fabric wraps it, ``title`` what messages call it.  Where memory does not suffice,
    all processes repeat the step from its start with micro-batches of half as many tokens, and keep to these:
    ``max_tokens`` is a part of the state.  ``longest`` is the number of tokens of the update's longest sample.
    """

    def __init__(
        self,
        title: str,
        module: Any,
        optimizer: Optimizer,
        fabric: L.Fabric,
        ranks: Ranks,
        *,
        max_tokens: int,
        clip_norm: float,
    ) -> None:
        self.title, self.module, self.optimizer, self.fabric, self.ranks = title, module, optimizer, fabric, ranks
        self.max_tokens, self.clip_norm = max_tokens, clip_norm
        self.version = self.splits = self.longest = 0
        self.sharded = is_sharded(module.module) or isinstance(fabric.strategy, ZeroStrategy)
        use_fused_steps(optimizer)

    def _within_memory(self, work: Callable[[], T]) -> T:
        """``work()``, repeated with smaller micro-batches where memory does not suffice in some process.

        Raises :class:`...kernels.memory.UpdateMemoryError` where micro-batches cannot be smaller.
        """
        while True:
            reason = ""
            try:
                result = work()
            except (RuntimeError, MemoryError) as error:
                if not out_of_memory(error):
                    raise
                reason = first_line(error)
                if self.sharded and self.ranks.world > 1:  # the others wait for this process's part of the weights
                    raise UpdateMemoryError(
                        f"{self.title}: the update of version {self.version} is out of memory with micro-batches of "
                        f"{self.max_tokens} tokens, and processes that share the weights of a model cannot repeat "
                        f"a part of it; give a smaller algorithm.update.max_tokens. {reason}"
                    ) from error
            # Outside of the except clause: the exception holds what its frames have allocated.
            if not self.ranks.total({"out_of_memory": float(bool(reason))}, self.fabric.device)["out_of_memory"]:
                return result
            self.optimizer.zero_grad()
            release()
            self._split(reason or "in another process")

    def _split(self, reason: str) -> None:
        """Halve the micro-batches; the longest sample stays whole."""
        if self.max_tokens <= self.longest:  # no micro-batch needs more than the longest sample alone
            raise UpdateMemoryError(
                f"{self.title}: the update of version {self.version} is out of memory with micro-batches of "
                f"{self.max_tokens} tokens, and its longest sample has {self.longest}. Give shorter prompts or "
                f"completions (sampling.train.max_tokens), or a device with more memory. {reason}"
            )
        self.max_tokens, self.splits = max(self.max_tokens // 2, self.longest), self.splits + 1
        text = "%s is out of memory in the update of version %d: from now on micro-batches of %d tokens. %s"
        log.warning(text, self.title, self.version, self.max_tokens, reason)

    def _clip(self) -> float:
        """Clip the gradients; their norm before that, of the whole mini-batch."""
        if self.ranks.world > 1:
            self._add_up_gradients()
        norm = self.fabric.clip_gradients(
            self.module, self.optimizer, max_norm=self.clip_norm, error_if_nonfinite=False
        )
        assert norm is not None  # None is what clipping by value returns
        value = float(whole(norm))
        if not math.isfinite(value):
            self._refuse("gradient's norm", value)
        return value

    def _step(self) -> None:
        """Take the optimizer's step, in all processes or in none to its end.

        Raises :class:`...kernels.memory.UpdateMemoryError` where memory does not suffice: the step may have changed
        a part of the weights, so that it cannot be repeated.
        """
        reason = ""
        try:
            self.optimizer.step()
        except (RuntimeError, MemoryError) as error:
            if not out_of_memory(error):
                raise
            reason = first_line(error)
        self.optimizer.zero_grad()
        if self.ranks.total({"out_of_memory": float(bool(reason))}, self.fabric.device)["out_of_memory"]:
            raise UpdateMemoryError(
                f"{self.title}: the optimizer is out of memory in the update of version {self.version}: "
                f"{type(self.optimizer).__name__} keeps states as large as the weights. Give adapters (regime=lora), "
                "an optimizer with fewer states, several devices (strategy=fsdp2), or a device with more memory. "
                f"{reason or 'in another process'}"
            )

    def _add_up_gradients(self) -> None:
        """Over all processes, in place: one message of all would need as much memory again.  Those of shards are added
        up already.
        """
        for gradient in self._gradients():
            if not isinstance(gradient, DTensor):
                self.ranks.add_up(gradient)

    def _gradients(self) -> Iterator[Tensor]:
        parameters = (parameter for group in self.optimizer.param_groups for parameter in group["params"])
        return (parameter.grad for parameter in parameters if parameter.grad is not None)

    def _refuse(self, quantity: str, value: float) -> NoReturn:
        """Drop the gradients accumulated so far and raise."""
        self.optimizer.zero_grad()
        raise NonFiniteError(f"{self.title}: the {quantity} is {value} in the update of version {self.version}")

    def _autocast(self) -> AbstractContextManager[Any]:
        """Fabric's autocast under mixed precision.  Fabric's other contexts set torch's default dtype, which is one for
        all threads, while other pools update.
        """
        mixed = isinstance(self.fabric.strategy.precision, MixedPrecision)
        return self.fabric.autocast() if mixed else nullcontext()
