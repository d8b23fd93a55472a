"""PolicyModule: the LightningModule of one pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightning as L
import torch
from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler
from transformers import PreTrainedModel

from ..algorithms.objectives import ClippedObjective, ObjectiveOutput
from ..experience import TokenBatch


class PolicyModule(L.LightningModule):
    """A causal language model with float32 master weights, its objective, optimizer and scheduler.

    ``temperature`` is the sampling temperature: learner log-probabilities are those of the distribution that the
    engine samples from.  ``optimizer`` takes parameters, ``scheduler`` takes an optimizer.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        objective: ClippedObjective,
        optimizer: Callable[..., torch.optim.Optimizer],
        scheduler: Callable[[torch.optim.Optimizer], LRScheduler],
        temperature: float = 1.0,
    ) -> None:
        super().__init__()
        if temperature <= 0:
            raise ValueError(f"training samples at a temperature above 0, got {temperature}")
        self.model = model
        self.objective, self.temperature = objective, temperature
        self._optimizer, self._scheduler = optimizer, scheduler

    def forward(self, batch: TokenBatch) -> Tensor:
        """(B, T) float32, nats: the log-probability of each token given those before it; 0 where ``mask`` is False."""
        return token_logprobs(self.model, batch, self.temperature)

    def training_step(self, batch: TokenBatch, old_logprobs: Tensor | None) -> ObjectiveOutput:  # type: ignore[override]
        """The objective on one micro-batch.

        ``old_logprobs`` (B, T) are the learner's at the update's start; None says that these are the present ones.
        """
        logprobs = self(batch)
        return self.objective(
            logprobs,
            logprobs.detach() if old_logprobs is None else old_logprobs,
            batch.behaviour_logprobs,
            batch.advantages,
            batch.weights,
            batch.mask,
        )

    def configure_optimizers(self) -> Any:
        optimizer = self._optimizer(self.parameters())
        return {"optimizer": optimizer, "lr_scheduler": self._scheduler(optimizer)}


def token_logprobs(model: PreTrainedModel, batch: TokenBatch, temperature: float) -> Tensor:
    """(B, T): log-probability, at ``temperature``, of each completion token; 0 elsewhere (padding included)."""
    # Sequences are padded on the right, where a causal model's real tokens cannot see; no attention mask is needed.
    # Only the last positions can hold completions: the shortest prompt bounds how many logits are computed.
    shortest_prompt = int(batch.mask.int().argmax(dim=1).min())
    keep = batch.input_ids.shape[1] - shortest_prompt + 1
    logits = model(input_ids=batch.input_ids, use_cache=False, logits_to_keep=keep).logits[:, :-1].float()
    targets = batch.input_ids[:, shortest_prompt:]
    scores = torch.log_softmax(logits / temperature, dim=-1).gather(-1, targets[..., None]).squeeze(-1)
    scores = torch.where(batch.mask[:, shortest_prompt:], scores, 0.0)
    return torch.nn.functional.pad(scores, (shortest_prompt, 0))
