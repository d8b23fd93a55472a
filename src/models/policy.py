"""PolicyModule: the LightningModule of one pool.  From a micro-batch to log-probabilities and a loss."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import lightning as L
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from ..algorithms.objectives import Objective, ObjectiveOutput
from ..experience import TokenBatch
from ..rollout.engines.weights import load_strictly
from .sharding import is_sharded, load_shards, whole_state
from .train_config import PolicyTrainConfig

MAX_LOGITS: Final = 1 << 25
"""The most logits that are computed at once: 2^25 numbers are 128 MiB in float32, and a step holds about three such
tensors (logits, log-softmax, its gradient).  At the papers' scale a row of 8,192 tokens over a vocabulary of 151,936
words would have 1.2 * 10^9, 5 GB each.  Runs at laptop scale stay below the bound, where one large product is fastest.
"""

PLAIN_HEAD_MODELS: Final = ("llama", "mistral", "qwen2", "qwen3")
"""The model types whose logits are the head's output for the last hidden state.  Others scale or cap it, so their
logits are left to their own ``forward``.
"""


class PolicyModule(L.LightningModule):
    """A causal language model with float32 master weights, which computes for one of ``policies`` at a time.

    Here there is one policy, and all weights of ``model`` are its own.  :class:`.adapter_module.AdapterModule`, where
    each policy is an adapter, overrides what differs: the methods below :meth:`configure_optimizers`.

    Where the objective needs reference log-probabilities (``kl`` > 0), ``reference`` is a frozen copy of the model as
    it is now; else None.
    """

    def __init__(self, model: PreTrainedModel, policies: Mapping[str, PolicyTrainConfig]) -> None:
        super().__init__()
        self.model, self.policies = model, dict(policies)
        self.reference = self._make_reference()

    def forward(self, policy: str, batch: TokenBatch) -> Tensor:
        """(B, C) float32, nats: the log-probability of each token given those before it; 0 where ``mask`` is False."""
        return token_logprobs(self.model_of(policy), batch, self.policies[policy].temperature)

    def training_step(  # type: ignore[override]
        self, policy: str, batch: TokenBatch, old_logprobs: Tensor | None
    ) -> ObjectiveOutput:
        """The objective of ``policy`` on one micro-batch of its own.

        ``old_logprobs`` (B, C) are the learner's at the update's start; None: the present ones are.
        """
        config = self.policies[policy]
        reference = self.reference_logprobs(policy, batch) if config.objective.kl else None
        scores = token_scores(self.model_of(policy), batch, config.temperature, entropy=config.objective.entropy > 0)
        return compute_loss(config.objective, batch, scores, old_logprobs, reference)

    def train(self, mode: bool = True) -> PolicyModule:
        super().train(mode)
        if self.reference is not None:
            self.reference.eval()  # no dropout: the reference is one fixed distribution
        return self

    def configure_optimizers(self) -> Any:
        """A list: ``optimizer`` and ``lr_scheduler`` of each policy, in the order of the policies."""
        configured = []
        for name, config in self.policies.items():
            optimizer = config.optimizer(self.parameters_of(name))
            configured.append({"optimizer": optimizer, "lr_scheduler": config.scheduler(optimizer)})
        return configured

    def model_of(self, policy: str) -> PreTrainedModel:
        """The model with the weights of ``policy``."""
        return self.model

    @torch.no_grad()
    def reference_logprobs(self, policy: str, batch: TokenBatch) -> Tensor:
        """As :meth:`forward`, of the policy as it was when the module was made."""
        assert self.reference is not None, "the reference is kept where an objective has kl > 0"
        return token_logprobs(self.reference, batch, self.policies[policy].temperature)

    def parameters_of(self, policy: str) -> Sequence[nn.Parameter]:
        """Those that ``policy`` learns."""
        return list(self.model.parameters())

    @property
    def layer_classes(self) -> Collection[str]:
        """The names of the model's classes that compute one after another: its layers."""
        return frozenset(self.model._no_split_modules or ())

    def adapter_parameters(self) -> set[nn.Parameter]:
        """Those that every process keeps whole where the module is sharded: adapters, which are small."""
        return set()

    def weights(self, policy: str) -> dict[str, Tensor]:
        """The present weights of ``policy`` by checkpoint name; not copies, unless the module is sharded.  Then all
        processes must call it alike.
        """
        return whole_state(self.model)

    def load_weights(self, policy: str, weights: Mapping[str, Tensor]) -> None:
        """Copy ``weights`` into those of ``policy``.  Raises ``ValueError`` for weights that do not fit; nothing is
        changed then.
        """
        (load_shards if is_sharded(self) else load_strictly)(policy, self.model, weights)

    def export(self, policy: str, folder: Path, weights: Mapping[str, Tensor]) -> None:
        """Write ``weights``, those of ``policy``, as ``from_pretrained`` reads them."""
        self.model.save_pretrained(folder, state_dict=dict(weights))

    def _make_reference(self) -> PreTrainedModel | None:
        if not any(config.objective.kl for config in self.policies.values()):
            return None
        return copy.deepcopy(self.model).eval().requires_grad_(False)


def compute_loss(
    objective: Objective,
    batch: TokenBatch,
    scores: tuple[Tensor, Tensor | None],
    old_logprobs: Tensor | None,
    reference_logprobs: Tensor | None,
) -> ObjectiveOutput:
    """``objective`` on a micro-batch with these :func:`token_scores`; ``old_logprobs`` and ``reference_logprobs`` are
    (B, C), nats.

    ``old_logprobs`` None: they are the present ones, detached.  The importance ratio is then exactly 1, and its
    gradient is that of the log-probability.
    """
    logprobs, entropies = scores
    return objective(
        logprobs,
        logprobs.detach() if old_logprobs is None else old_logprobs,
        batch.behaviour_logprobs,
        batch.advantages,
        batch.weights,
        batch.mask,
        reference_logprobs,
        entropies,
    )


# ---- log-probabilities of the completions' tokens -------------------------------------------------------------------


def token_logprobs(model: PreTrainedModel, batch: TokenBatch, temperature: float) -> Tensor:
    """(B, C), nats: log-probability, at ``temperature``, of each completion token; 0 where ``mask`` is False."""
    return token_scores(model, batch, temperature, entropy=False)[0]


def token_scores(
    model: PreTrainedModel, batch: TokenBatch, temperature: float, *, entropy: bool
) -> tuple[Tensor, Tensor | None]:
    """:func:`token_logprobs`, and with ``entropy`` that of each token's distribution, (B, C) nats; both 0
    where ``mask`` is False.

    Where there are more than :data:`MAX_LOGITS` logits they are computed in parts; see :func:`_scores_in_parts`.
    """
    # No token before the end of the shortest prompt predicts a completion's token, so none of their logits are needed.
    first = int(batch.sources[:, 0].min())
    length = batch.input_ids.shape[1] - first
    inputs: dict[str, Any] = {
        "input_ids": batch.input_ids,
        "position_ids": batch.positions,
        "attention_mask": _attention_mask(batch.segments, model.dtype),
        "use_cache": False,
    }
    count = len(batch.input_ids) * length * model.config.vocab_size
    if model.config.model_type in PLAIN_HEAD_MODELS and count > MAX_LOGITS:
        return _scores_in_parts(model, inputs, batch, temperature, entropy)
    scores = _log_softmax(model(**inputs, logits_to_keep=length).logits, temperature)
    sources = (batch.sources - first).clamp(min=0)  # padding may point before ``first``; the mask drops what it reads
    rows = batch.rows[:, None]
    logprobs = torch.where(batch.mask, scores[rows, sources, batch.targets], 0.0)
    if not entropy:
        return logprobs, None
    entropies = -(scores.exp() * scores).sum(dim=-1)
    return logprobs, torch.where(batch.mask, entropies[rows, sources], 0.0)


def _attention_mask(segments: Tensor, dtype: torch.dtype) -> Tensor:
    """(R, 1, T, T), to be added to the attention scores: 0 where a token sees another, the least number of ``dtype``
    where it does not.  A token sees its prompt, and what comes before it in its own segment (:mod:`.packing`).

    In numbers, although one bit per entry would do: from a mask of bits torch makes one of numbers in every layer, and
    keeps each for the backward pass.
    """
    length = segments.shape[1]
    query, key = segments[:, :, None], segments[:, None, :]
    causal = torch.ones(length, length, dtype=torch.bool, device=segments.device).tril()
    visible = ((key == 0) | (key == query)) & causal
    mask = torch.full(visible.shape, torch.finfo(dtype).min, dtype=dtype, device=segments.device)
    return mask.masked_fill_(visible, 0.0)[:, None]


def _scores_in_parts(
    model: PreTrainedModel, inputs: Mapping[str, Any], batch: TokenBatch, temperature: float, entropy: bool
) -> tuple[Tensor, Tensor | None]:
    """:func:`token_scores` in little memory.

    The head is applied only to the hidden states that predict a completion's token, as many at a time as
    :data:`MAX_LOGITS` allows.  No part keeps its logits for the backward pass: they are computed again there
    (activation checkpointing), which costs one more product with the head.
    """
    head = model.get_output_embeddings()
    hidden = model.base_model(**inputs).last_hidden_state
    candidate, token = batch.mask.nonzero(as_tuple=True)
    hidden = hidden[batch.rows[candidate], batch.sources[candidate, token]]  # (tokens, hidden)
    count = max(1, MAX_LOGITS // model.config.vocab_size)
    parts = [
        checkpoint(_score_part, head, *part, temperature, entropy, use_reentrant=False, preserve_rng_state=False)
        for part in zip(hidden.split(count), batch.targets[batch.mask].split(count), strict=True)
    ]
    logprobs, entropies = (torch.cat(columns) for columns in zip(*parts, strict=True))
    zeros = logprobs.new_zeros(batch.mask.shape)
    scattered = zeros.masked_scatter(batch.mask, logprobs)
    return scattered, zeros.masked_scatter(batch.mask, entropies) if entropy else None


def _score_part(
    head: nn.Module, hidden: Tensor, targets: Tensor, temperature: float, entropy: bool
) -> tuple[Tensor, Tensor]:
    """(n,) log-probabilities of ``targets`` after ``hidden`` (n, hidden), and entropies, or nothing (0,), in nats."""
    scores = _log_softmax(head(hidden), temperature)
    logprobs = scores.gather(1, targets[:, None])[:, 0]
    return logprobs, -(scores.exp() * scores).sum(dim=-1) if entropy else scores.new_empty(0)


def _log_softmax(logits: Tensor, temperature: float) -> Tensor:
    """In float32 at least: bfloat16 has three digits, and an importance ratio is a difference of log-probabilities."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return torch.log_softmax(logits / temperature, dim=-1)
