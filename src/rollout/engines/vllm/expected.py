"""The weights that an engine must compute with: of the model and of every adapter, with digests and probe answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ..lora import A, Adapted, Adapter, B
from ..weights import assign_strictly, tied_names
from .digest import Digests, digests
from .settings import VllmSettings, buffer_width
from .transfer import WeightSource

PROBES = 4
"""How many sequences engine and learner are compared on."""


@dataclass(frozen=True, eq=False)
class WeightSet:
    """Weights that are sent and verified together: those of the model, or of one adapter.  New weights are a new set.

    ``slot`` is the adapter's in vLLM, from 1 on; None: the model; 0: the slot that must stay empty, for a policy
    without an adapter beside others.  ``tensors`` are an adapter's, of rank ``rank``, in the engine's dtype and with
    its scale in B.
    """

    label: str
    slot: int | None
    rank: int = 0
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    digests: Digests = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class ExpectedPolicy:
    """One policy, as of ``version``: its weights besides the model's, None where vLLM has no adapters.

    ``logprobs`` (sequences, V) float32, nats, are the learner's answers to the probes.
    """

    name: str
    version: int
    adapter: WeightSet | None
    logprobs: Tensor


class ExpectedWeights:
    """Takes ``models`` apart: they are one model, alone or with an adapter per policy, of at most ``rank``.

    With ``lora=merged`` the one policy's adapter is merged into its base, so that vLLM knows of no adapters.  ``tied``
    maps each further name of a tied weight to the first, under which it is in a checkpoint.  Raises ``ValueError``
    naming the policies.
    """

    def __init__(self, models: Mapping[str, PreTrainedModel | Adapted], settings: VllmSettings) -> None:
        bases = [model.model if isinstance(model, Adapted) else model for model in models.values()]
        if len({id(base) for base in bases}) != 1:
            raise ValueError(f"engine=vllm has one model, and policies with adapters on it, got {', '.join(models)}")
        adapted = {name: model for name, model in models.items() if isinstance(model, Adapted)}
        self._adapters = {name: Adapter(name, model) for name, model in adapted.items()}
        self._merged = next(iter(self._adapters.values()), None) if settings.lora == "merged" else None
        self.rank = max((_rank(model.weights) for model in adapted.values()), default=0)
        self.architecture, self.settings, self.label = bases[0].eval(), settings, ", ".join(models)
        self.context, self.vocabulary = bases[0].config.max_position_embeddings, bases[0].config.vocab_size
        self.tied = {other: first for first, *others in tied_names(self.architecture.state_dict()) for other in others}
        # Of two whole blocks, which a cache could keep, and a token more.
        self.sequences = sequences(self.vocabulary, min(2 * settings.block_size + 1, self.context - 1))
        self.model = self._model_set()
        self.policies: dict[str, ExpectedPolicy] = {}
        slots = {} if self._merged else {name: slot for slot, name in enumerate(adapted, 1)}
        for name in models:
            weights = adapted[name].weights if name in slots else {}
            adapter = self._adapter_set(name, slots.get(name, 0), weights) if slots else None
            self.policies[name] = ExpectedPolicy(name, 0, adapter, self._logprobs(name))

    @property
    def adapters(self) -> list[WeightSet]:
        return [policy.adapter for policy in self.policies.values() if policy.adapter]

    @property
    def device(self) -> torch.device:
        """Where the learner's weights lie."""
        return self.architecture.device

    @property
    def source(self) -> WeightSource:
        """The model's weights, as they are sent."""
        return WeightSource(self.tensors, self.tied, self.settings.torch_dtype)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """(Name, tensor) of the model's weights, each as it is asked for; a tied one once."""
        for name, weight in self.architecture.state_dict().items():
            if name not in self.tied:
                yield name, self._merged.merged(name, weight) if self._merged else weight

    @property
    def lora_arguments(self) -> dict[str, Any]:
        """vLLM's for the adapters: how many slots, of which rank, on layers of which names."""
        if not self.adapters:
            return {}
        targets = {path.rpartition(".")[2] for adapter in self._adapters.values() for path in adapter.modules}
        # On a CPU, vLLM 0.32 gives requests without an adapter that of the last slot: one is kept empty for them.
        slots = len(self._adapters) + any(adapter.slot == 0 for adapter in self.adapters)
        sizes = {"max_loras": slots, "max_cpu_loras": slots, "max_lora_rank": buffer_width(self.label, self.rank)}
        return {"enable_lora": True, "lora_target_modules": sorted(targets)} | sizes

    def update(self, policy: str, weights: Mapping[str, Tensor], version: int) -> None:
        """New weights, to be sent.  Raises ``ValueError`` for weights that do not fit; nothing is changed then."""
        if (adapter := self._adapters.get(policy)) is not None:
            adapter.load(weights)
        elif len(self.policies) > 1:
            others = ", ".join(name for name in self.policies if name != policy)
            raise ValueError(f"policy '{policy}': its weights are those of {others} too, and stay as they are")
        else:
            assign_strictly(policy, self.architecture, weights)
        before = self.policies[policy].adapter
        if before is None:
            self.model, after = self._model_set(), None
        else:
            after = self._adapter_set(policy, before.slot, weights)
            for name, other in self.policies.items():
                if other.adapter is not None and not other.adapter.slot:  # which must still be empty
                    self.policies[name] = replace(other, adapter=replace(other.adapter))
        self.policies[policy] = ExpectedPolicy(policy, version, after, self._logprobs(policy))

    def _model_set(self) -> WeightSet:
        own = digests(self.tensors(), self.settings.torch_dtype)
        return WeightSet(self.label, None, digests=own | {other: own[first] for other, first in self.tied.items()})

    def _adapter_set(self, policy: str, slot: int | None, weights: Mapping[str, Tensor]) -> WeightSet:
        tensors, dtype = {}, self.settings.torch_dtype
        for name, tensor in weights.items():
            scaled = tensor.detach() * self._adapters[policy].scale if name.endswith(B) else tensor.detach()
            tensors[name] = scaled.to("cpu", dtype, copy=True).contiguous()
        return WeightSet(policy, slot, _rank(weights), tensors, digests(tensors.items(), dtype))

    @torch.no_grad()
    def _logprobs(self, policy: str) -> Tensor:
        """(sequences, V) float32, nats, on the CPU: of the token after each sequence."""
        adapter = self._adapters.get(policy)
        with adapter.applied() if adapter else nullcontext():
            logits = [
                self.architecture(torch.tensor([ids], device=self.device), use_cache=False, logits_to_keep=1).logits
                for ids in self.sequences
            ]
        return torch.log_softmax(torch.cat(logits)[:, -1].float(), dim=-1).cpu()


def _rank(weights: Mapping[str, Tensor]) -> int:
    return max((len(tensor) for name, tensor in weights.items() if name.endswith(A)), default=0)


def sequences(vocabulary: int, length: int) -> list[tuple[int, ...]]:
    """The probes, always the same: the first of ``length`` tokens, each other half as long; no two begin alike."""
    rng = Random("canary")  # another seed would change `probe_nats` of every run
    return [tuple(rng.randrange(vocabulary) for _ in range(max(1, length >> index))) for index in range(PROBES)]
