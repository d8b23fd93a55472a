"""LoRA adapters (arXiv 2106.09685) of several policies on one frozen base, by peft, and their pool's module."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from peft.tuners.tuners_utils import BaseTunerLayer
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from ...experience import TokenBatch
from ...rollout.engines.weights import load_into
from .policy import PolicyModule
from .settings import LoraSettings, named_layers
from .token_scores import token_scores

WEIGHTS = "adapter_model.safetensors"

NAME_PREFIX = "policy_"
"""Before a policy's name in peft's names, so that no policy can have the name of a layer; peft strips it on writing."""


@contextmanager
def without_peft_warnings() -> Iterator[None]:
    """Hide a warning that is meant for peft's authors: peft asks models for a deprecated name."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".is_gradient_checkpointing. is deprecated", FutureWarning)
        yield


def attach(
    model: PreTrainedModel, base: str, adapters: Mapping[str, LoraSettings], seeds: Mapping[str, int]
) -> PeftModel:
    """``model``, frozen, with the adapters, each of which starts without effect (B = 0) and is exported as one of
    ``base``.

    An adapter's A is drawn with its own seed, whatever other adapters there are.  Raises :class:`AdapterError` naming
    the key.
    """
    configs = {}
    for name, settings in adapters.items():
        configs[name] = LoraConfig(
            r=settings.r,
            lora_alpha=settings.alpha,  # type: ignore[arg-type]  # peft divides it by r; any number will do
            target_modules=named_layers(name, settings, model),
            task_type="CAUSAL_LM",
        )
    adapted: PeftModel | None = None
    for name, config in configs.items():
        with torch.random.fork_rng(devices=[]), without_peft_warnings():
            torch.manual_seed(seeds[name])
            if adapted is None:
                adapted = cast(PeftModel, get_peft_model(model, config, NAME_PREFIX + name))
            else:
                adapted.add_adapter(NAME_PREFIX + name, config)
        config.base_model_name_or_path = base
    assert adapted is not None, "a pool of adapters needs one at least"
    for module in adapted.modules():
        if isinstance(module, BaseTunerLayer):
            # Else inputs would become float32 as the adapters are, only to be rounded back under autocast.
            vars(module)["cast_input_dtype_enabled"] = False
    for name in adapters:  # peft leaves only the active one trainable
        for parameter in parameters(adapted, name):
            parameter.requires_grad_(True)
    return adapted


def activate(model: PeftModel, policy: str) -> None:
    """From now on the model computes, and learns, with the adapter of ``policy`` alone."""
    model.set_adapter(NAME_PREFIX + policy)


def parameters(model: PeftModel, policy: str) -> list[nn.Parameter]:
    """Those of one adapter, in the order of its layers."""
    # A parameter is called ...q_proj.lora_A.policy_NAME.weight.
    own = NAME_PREFIX + policy
    return [p for path, p in model.named_parameters() if path.split(".")[-2] == own and ".lora_" in path]


def weights(model: PeftModel, policy: str) -> dict[str, Tensor]:
    """One adapter's weights by the names of a peft checkpoint; not copies."""
    # The embeddings are the base's.  Without this flag peft would ask the hub whether they are.
    state = get_peft_model_state_dict(model, adapter_name=NAME_PREFIX + policy, save_embedding_layers=False)
    return {key: value.detach() for key, value in state.items()}


def load(model: PeftModel, policy: str, new: Mapping[str, Tensor]) -> None:
    """Copy ``new`` into one adapter.  Raises ``ValueError`` for weights that do not fit; nothing is changed then."""
    load_into(policy, weights(model, policy), new)


def export(model: PeftModel, policy: str, folder: Path, weights: Mapping[str, Tensor]) -> None:
    """Write one adapter, whose weights these are, as peft's and transformers' ``from_pretrained`` read it."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file({key: value.contiguous() for key, value in weights.items()}, folder / WEIGHTS)
    config = copy.copy(model.peft_config[NAME_PREFIX + policy])
    config.inference_mode = True
    config.target_modules = sorted(config.target_modules)  # of a set, whose order would change from run to run
    config.save_pretrained(str(folder))


def base_of(model: PeftModel) -> PreTrainedModel:
    """The base as a model of its own, without adapters, on the same memory."""
    same = {id(parameter): parameter for parameter in model.parameters()}
    base: PreTrainedModel = copy.deepcopy(model, same).unload()
    return base


class AdapterModule(PolicyModule):
    """A :class:`.policy.PolicyModule` whose ``model`` has one adapter per policy (:func:`attach`).

    The reference of every policy is the base without adapters: LoRA starts there, since B = 0.  It takes no memory.
    """

    model: PeftModel

    def model_of(self, policy: str) -> PreTrainedModel:
        activate(self.model, policy)
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
        return parameters(self.model, policy)

    def weights(self, policy: str) -> dict[str, Tensor]:
        """The present weights of the adapter by the names of a peft checkpoint; not copies."""
        return weights(self.model, policy)

    def load_weights(self, policy: str, weights: Mapping[str, Tensor]) -> None:
        load(self.model, policy, weights)

    def export(self, policy: str, folder: Path, weights: Mapping[str, Tensor]) -> None:
        """Write ``weights``, those of the adapter, as ``PeftModel.from_pretrained`` reads them."""
        export(self.model, policy, folder, weights)

    def _make_reference(self) -> None:
        return None
