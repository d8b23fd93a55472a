"""PolicyModule: the LightningModule of one pool."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Final

import lightning as L
import torch
from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from ..algorithms.objectives.base import Objective, ObjectiveOutput
from ..experience import TokenBatch

MakeOptimizer = Callable[..., torch.optim.Optimizer]
"""Takes parameters."""

MakeScheduler = Callable[[torch.optim.Optimizer], LRScheduler]

MOST_LOGITS: Final = 1 << 25
"""Numbers, 128 MiB in float32: logits that are kept at once.  A step holds about three times as many."""

HEADED: Final = ("llama", "mistral", "qwen2", "qwen3")
"""The kinds of models whose logits are their head's output for their last hidden state, and nothing else."""


class PolicyModule(L.LightningModule):
    """A causal language model with float32 master weights, its objective, optimizer and scheduler.

    ``temperature`` is the sampling temperature: learner log-probabilities are those of the distribution that the
    engine samples from.  ``optimizer`` takes parameters, ``scheduler`` takes an optimizer.  Where the objective holds
    the policy to a reference, ``reference`` is a frozen copy of ``model`` as it is given; else None.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        objective: Objective,
        optimizer: MakeOptimizer,
        scheduler: MakeScheduler,
        temperature: float = 1.0,
    ) -> None:
        super().__init__()
        if temperature <= 0:
            raise ValueError(f"training samples at a temperature above 0, got {temperature}")
        self.model = model
        self.reference = copy.deepcopy(model).eval().requires_grad_(False) if objective.kl else None
        self.objective, self.temperature = objective, temperature
        self._optimizer, self._scheduler = optimizer, scheduler

    def forward(self, batch: TokenBatch) -> Tensor:
        """(B, C) float32, nats: the log-probability of each token given those before it; 0 where ``mask`` is False."""
        return token_logprobs(self.model, batch, self.temperature)

    def train(self, mode: bool = True) -> PolicyModule:
        super().train(mode)
        if self.reference is not None:
            self.reference.eval()
        return self

    def training_step(self, batch: TokenBatch, old_logprobs: Tensor | None) -> ObjectiveOutput:  # type: ignore[override]
        """The objective on one micro-batch.

        ``old_logprobs`` (B, C) are the learner's at the update's start; None says that these are the present ones.
        """
        scores = token_scores(self.model, batch, self.temperature, entropy=self.objective.entropy > 0)
        return judged(self.objective, batch, scores, old_logprobs, self._reference_logprobs(batch))

    @torch.no_grad()
    def _reference_logprobs(self, batch: TokenBatch) -> Tensor | None:
        return None if self.reference is None else token_logprobs(self.reference, batch, self.temperature)

    def configure_optimizers(self) -> Any:
        optimizer = self._optimizer(self.model.parameters())
        return {"optimizer": optimizer, "lr_scheduler": self._scheduler(optimizer)}


def token_logprobs(model: PreTrainedModel, batch: TokenBatch, temperature: float) -> Tensor:
    """(B, C), nats: log-probability, at ``temperature``, of each completion token; 0 where ``mask`` is False."""
    return token_scores(model, batch, temperature, entropy=False)[0]


def judged(
    objective: Objective,
    batch: TokenBatch,
    scores: tuple[Tensor, Tensor | None],
    old_logprobs: Tensor | None,
    reference: Tensor | None,
) -> ObjectiveOutput:
    """``objective`` on a micro-batch with these :func:`token_scores`; ``old_logprobs`` and ``reference`` are (B, C).

    None for ``old_logprobs``: they are the present ones.
    """
    logprobs, entropies = scores
    return objective(
        logprobs,
        logprobs.detach() if old_logprobs is None else old_logprobs,
        batch.behaviour_logprobs,
        batch.advantages,
        batch.weights,
        batch.mask,
        reference,
        entropies,
    )


def token_scores(
    model: PreTrainedModel, batch: TokenBatch, temperature: float, *, entropy: bool
) -> tuple[Tensor, Tensor | None]:
    """:func:`token_logprobs`, and with ``entropy`` that of each token's distribution, (B, C) nats; both 0
    where ``mask`` is False.

    Logits of more than :data:`MOST_LOGITS` numbers are computed in parts; see :func:`_scores_in_parts`.
    """
    first = int(batch.sources[:, 0].min())  # no logits are needed before the end of the shortest prompt
    kept = batch.input_ids.shape[1] - first
    given: dict[str, Any] = {
        "input_ids": batch.input_ids,
        "position_ids": batch.positions,
        "attention_mask": _visible(batch.segments, model.dtype),
        "use_cache": False,
    }
    if model.config.model_type in HEADED and len(batch.input_ids) * kept * model.config.vocab_size > MOST_LOGITS:
        return _scores_in_parts(model, given, batch, temperature, entropy)
    scores = _log_softmax(model(**given, logits_to_keep=kept).logits, temperature)
    sources = (batch.sources - first).clamp(min=0)
    rows = batch.rows[:, None]
    logprobs = torch.where(batch.mask, scores[rows, sources, batch.targets], 0.0)
    if not entropy:
        return logprobs, None
    entropies = -(scores.exp() * scores).sum(dim=-1)
    return logprobs, torch.where(batch.mask, entropies[rows, sources], 0.0)


def _scores_in_parts(
    model: PreTrainedModel, given: Mapping[str, Any], batch: TokenBatch, temperature: float, entropy: bool
) -> tuple[Tensor, Tensor | None]:
    """:func:`token_scores` in little memory: logits are computed where a completion's token comes next alone, for as
    many tokens at a time as :data:`MOST_LOGITS` allows, and computed anew in the backward pass instead of being kept.
    """
    head = model.get_output_embeddings()
    hidden = model.base_model(**given).last_hidden_state
    candidate, token = batch.mask.nonzero(as_tuple=True)
    hidden = hidden[batch.rows[candidate], batch.sources[candidate, token]]  # (tokens, hidden)
    count = max(1, MOST_LOGITS // model.config.vocab_size)
    parts = [
        checkpoint(_scored, head, *part, temperature, entropy, use_reentrant=False, preserve_rng_state=False)
        for part in zip(hidden.split(count), batch.targets[batch.mask].split(count), strict=True)
    ]
    logprobs, entropies = (torch.cat(found) for found in zip(*parts, strict=True))
    nothing = logprobs.new_zeros(batch.mask.shape)
    placed = nothing.masked_scatter(batch.mask, logprobs)
    return placed, nothing.masked_scatter(batch.mask, entropies) if entropy else None


def _scored(
    head: torch.nn.Module, hidden: Tensor, targets: Tensor, temperature: float, entropy: bool
) -> tuple[Tensor, Tensor]:
    """(n,) log-probabilities of ``targets`` after ``hidden`` (n, hidden), and entropies, or nothing (0,), in nats."""
    scores = _log_softmax(head(hidden), temperature)
    logprobs = scores.gather(1, targets[:, None])[:, 0]
    return logprobs, -(scores.exp() * scores).sum(dim=-1) if entropy else scores.new_empty(0)


def _log_softmax(logits: Tensor, temperature: float) -> Tensor:
    """In float32 at least."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return torch.log_softmax(logits / temperature, dim=-1)


def _visible(segments: Tensor, dtype: torch.dtype) -> Tensor:
    """(R, 1, T, T) mask to add to attention scores: a token sees its prompt and what came before it in its segment.

    Of numbers, although a bit would do: torch makes numbers of bits anew in every layer, and keeps them for the
    backward pass.
    """
    length = segments.shape[1]
    query, key = segments[:, :, None], segments[:, None, :]
    causal = torch.ones(length, length, dtype=torch.bool, device=segments.device).tril()
    seen = ((key == 0) | (key == query)) & causal
    mask = torch.full(seen.shape, torch.finfo(dtype).min, dtype=dtype, device=segments.device)
    return mask.masked_fill_(seen, 0.0)[:, None]
