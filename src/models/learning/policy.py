"""PolicyModule, the LightningModule of one pool: from a micro-batch to log-probabilities and a loss, with RMS norms in
the precision of their input.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MethodType
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ...algorithms.objectives import Objective, ObjectiveOutput
from ...experience import TokenBatch
from ...rollout.engines.weights import load_strictly
from .sharding import is_sharded, load_shards, whole_state
from .token_scores import evaluate, token_scores
from .train_config import PolicyTrainConfig
from .tree_attention import ATTENTION


class PolicyModule(L.LightningModule):
    """A causal language model with float32 master weights, which computes for one of ``policies`` at a time.

    Here there is one policy, and all weights of ``model`` are its own.  :class:`.adapters.AdapterModule`, where
    each policy is an adapter, overrides what differs: the methods below :meth:`configure_optimizers`.

    Where the objective needs reference log-probabilities (``kl`` > 0), ``reference`` is a frozen copy of the model as
    it is now; else None.
    """

    def __init__(self, model: PreTrainedModel, policies: Mapping[str, PolicyTrainConfig]) -> None:
        super().__init__()
        self.model, self.policies = model, dict(policies)
        model.set_attn_implementation(ATTENTION)
        keep_float64(model)
        self.reference = self._make_reference()

    def forward(self, policy: str, batch: TokenBatch) -> Tensor:
        """(B, C) float32, nats: the log-probability of each token given those before it; 0 where ``mask`` is False.
        Without gradients.
        """
        return token_scores(self.model_of(policy), batch, self.policies[policy].temperature_of(batch), entropy=False)[0]

    def training_step(  # type: ignore[override]
        self, policy: str, batch: TokenBatch, old_logprobs: Tensor | None
    ) -> ObjectiveOutput:
        """The objective of ``policy`` on one micro-batch of its own.

        ``old_logprobs`` (B, C) are the learner's at the update's start; None: the present ones are.
        """
        config = self.policies[policy]
        reference = self.reference_logprobs(policy, batch) if config.objective.kl else None

        def objective(logprobs: Tensor, entropies: Tensor | None) -> ObjectiveOutput:
            return compute_loss(config.objective, batch, (logprobs, entropies), old_logprobs, reference)

        entropy = config.objective.entropy > 0
        return evaluate(self.model_of(policy), batch, config.temperature_of(batch), objective, entropy=entropy)

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
        return token_scores(self.reference, batch, self.policies[policy].temperature_of(batch), entropy=False)[0]

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
    """``objective`` on a micro-batch with these :func:`.token_scores.token_scores`; ``old_logprobs`` and
    ``reference_logprobs`` are (B, C), nats.

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


def keep_float64(model: nn.Module) -> None:
    """Let the RMS norms of ``model`` compute in float64 where their input is.

    Transformers' round it to float32 first.  Which way depends on its last bits, and these on how rows were cut: runs
    that should agree to 1e-12 would do so to 1e-7.
    """
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm") and hasattr(module, "variance_epsilon"):
            module.forward = MethodType(_forward, module)


def _forward(norm: Any, hidden: Tensor) -> Tensor:
    if hidden.dtype != torch.float64:
        normed: Tensor = type(norm).forward(norm, hidden)
        return normed
    return norm.weight * hidden * torch.rsqrt(hidden.pow(2).mean(-1, keepdim=True) + norm.variance_epsilon)
