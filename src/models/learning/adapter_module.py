"""AdapterModule: the LightningModule of a pool whose policies are LoRA adapters on one frozen base."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import torch
from peft import PeftModel
from torch import Tensor, nn
from transformers import PreTrainedModel

from ...experience import TokenBatch
from . import adapters
from .policy import PolicyModule
from .token_scores import token_scores


class AdapterModule(PolicyModule):
    """A :class:`.policy.PolicyModule` whose ``model`` has one adapter per policy (:func:`.adapters.attach`).

    The reference of every policy is the base without adapters: LoRA starts there, since B = 0.  It takes no memory.
    """

    model: PeftModel

    def model_of(self, policy: str) -> PreTrainedModel:
        adapters.activate(self.model, policy)
        model: PreTrainedModel = self.model.get_base_model()
        return model

    @torch.no_grad()
    def reference_logprobs(self, policy: str, batch: TokenBatch) -> Tensor:
        with self.model.disable_adapter():
            model, temperature = self.model.get_base_model(), self.policies[policy].temperature_of(batch)
            return token_scores(model, batch, temperature, entropy=False)[0]

    @property
    def layer_classes(self) -> Collection[str]:
        base: PreTrainedModel = self.model.get_base_model()
        return frozenset(base._no_split_modules or ())

    def adapter_parameters(self) -> set[nn.Parameter]:
        return {parameter for policy in self.policies for parameter in self.parameters_of(policy)}

    def parameters_of(self, policy: str) -> Sequence[nn.Parameter]:
        return adapters.parameters(self.model, policy)

    def weights(self, policy: str) -> dict[str, Tensor]:
        """The present weights of the adapter by the names of a peft checkpoint; not copies."""
        return adapters.weights(self.model, policy)

    def load_weights(self, policy: str, weights: Mapping[str, Tensor]) -> None:
        adapters.load(self.model, policy, weights)

    def export(self, policy: str, folder: Path, weights: Mapping[str, Tensor]) -> None:
        """Write ``weights``, those of the adapter, as ``PeftModel.from_pretrained`` reads them."""
        adapters.export(self.model, policy, folder, weights)

    def _make_reference(self) -> None:
        return None
