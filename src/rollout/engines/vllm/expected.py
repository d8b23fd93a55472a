"""The weights that an engine must compute with: of the model and of every adapter, with digests and probe answers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from transformers import PreTrainedModel

from ..lora import A, Adapted, Adapter, B
from ..weights import check_fit, tied_names
from .digest import Digests, digests
from .settings import VllmSettings, buffer_width
from .transfer import WeightSource

PROBES = 4
"""How many sequences engine and learner are compared on."""


@dataclass
class WeightSet:
    """Weights that are sent and verified together: those of the model, or of one adapter.

    ``slot`` is the adapter's in vLLM, from 1 on; None: the model; 0: the slot that must stay empty, for a policy
    without an adapter beside others.  ``tensors`` are an adapter's, of rank ``rank``, in the engine's dtype and with
    its scale in B.  ``sent``: whether the process was given them; ``verified``: whether it computes with them.
    """

    label: str
    slot: int | None
    rank: int = 0
    tensors: dict[str, Tensor] = field(default_factory=dict)
    digests: Digests = field(default_factory=dict)
    sent: bool = False
    verified: bool = False


@dataclass
class ExpectedPolicy:
    """One policy, as of ``version``: its weights besides the model's, None where vLLM has no adapters.

    ``logprobs`` (sequences, V) float32, nats, are the learner's answers to the probes; ``probe_nats`` is the engine's
    largest difference to them, infinite until it was probed.
    """

    adapter: WeightSet | None = None
    version: int = 0
    logprobs: Tensor = field(default_factory=lambda: torch.empty(0))
    probe_nats: float = math.inf


class ExpectedWeights:
    """Takes ``models`` apart: they are one model, alone or with an adapter per policy, of at most ``rank``.

    With ``lora=merged`` the one policy's adapter is merged into its base, so that vLLM knows of no adapters.  Raises
    ``ValueError`` naming the policies.
    """

    def __init__(self, models: Mapping[str, PreTrainedModel | Adapted], settings: VllmSettings) -> None:
        bases = [model.model if isinstance(model, Adapted) else model for model in models.values()]
        if len({id(base) for base in bases}) != 1:
            raise ValueError(f"engine=vllm has one model, and policies with adapters on it, got {', '.join(models)}")
        adapted = {name: model for name, model in models.items() if isinstance(model, Adapted)}
        self._adapters = {name: Adapter(name, model) for name, model in adapted.items()}
        self._merged = next(iter(self._adapters.values()), None) if settings.lora == "merged" else None
        self.rank = max((_rank(model.weights) for model in adapted.values()), default=0)
        self.architecture, self.settings, self.label = bases[0], settings, ", ".join(models)
        self.context, self.vocabulary = bases[0].config.max_position_embeddings, bases[0].config.vocab_size
        self._base: Mapping[str, Tensor] = bases[0].state_dict()
        self.skeleton = Skeleton(bases[0])
        # Of two whole blocks, which a cache could keep, and a token more.
        self.sequences = sequences(self.vocabulary, min(2 * settings.block_size + 1, self.context - 1))
        self.model = WeightSet(self.label, None, sent=True)  # a process starts with them
        self.policies = {name: ExpectedPolicy() for name in models}
        if adapted and not self._merged:
            slots = {name: slot for slot, name in enumerate(adapted, 1)}
            for name, policy in self.policies.items():
                policy.adapter = WeightSet(name, slots.get(name, 0))
                if name in adapted:
                    self._set_adapter(policy.adapter, adapted[name].weights)
        self._set_model()

    @property
    def adapters(self) -> list[WeightSet]:
        return [policy.adapter for policy in self.policies.values() if policy.adapter]

    @property
    def device(self) -> torch.device:
        """Where the learner's weights lie."""
        return next(iter(self._base.values())).device

    @property
    def source(self) -> WeightSource:
        """The model's weights, as they are sent."""
        return WeightSource(partial(self.tensors, self.skeleton.names), self.skeleton.tied, self.settings.torch_dtype)

    def tensors(self, names: Iterable[str] | None = None) -> Iterator[tuple[str, Tensor]]:
        """(Name, tensor) of the model's weights, each as it is asked for; None: under all their names."""
        for name in self._base if names is None else names:
            weight = self._base[name]
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
            self._base = self.skeleton.complete(policy, weights)
        expected = self.policies[policy]
        expected.version = version
        if expected.adapter is None:
            self.model.sent = False
            self._set_model()
            return
        self._set_adapter(expected.adapter, weights)
        self._set_logprobs(policy)
        for other in self.policies.values():
            if other.adapter is not None and not other.adapter.slot:  # which must still be empty
                other.adapter.verified, other.probe_nats = False, math.inf

    def mark_unverified(self, *, lost: Iterable[WeightSet] = ()) -> None:
        """Nothing is verified any more, and what is ``lost`` must be sent anew."""
        for weights in (self.model, *self.adapters):
            weights.verified = False
        for weights in lost:
            weights.sent = False
        for policy in self.policies.values():
            policy.probe_nats = math.inf

    def _set_model(self) -> None:
        self.model.digests, self.model.verified = digests(self.tensors(), self.settings.torch_dtype), False
        for policy in self.policies:
            self._set_logprobs(policy)

    def _set_adapter(self, adapter: WeightSet, weights: Mapping[str, Tensor]) -> None:
        for name, tensor in weights.items():
            scaled = tensor.detach() * self._adapters[adapter.label].scale if name.endswith(B) else tensor.detach()
            adapter.tensors[name] = scaled.to("cpu", self.settings.torch_dtype, copy=True).contiguous()
        adapter.rank = _rank(weights)
        adapter.digests = digests(adapter.tensors.items(), self.settings.torch_dtype)
        adapter.sent = adapter.verified = False

    def _set_logprobs(self, policy: str) -> None:
        expected, adapter = self.policies[policy], self._adapters.get(policy)
        with adapter.applied() if adapter else nullcontext():
            rows = [self.skeleton.next_logprobs(self._base, ids) for ids in self.sequences]
        expected.logprobs, expected.probe_nats = torch.stack(rows).cpu(), math.inf


class Skeleton:
    """``model`` without its weights, which it loses; it runs on any weights that fit.

    ``names`` are those of all weights, a tied one once: under its first name, as in a checkpoint; ``tied`` maps its
    other names to the first.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        own = model.state_dict()
        self._shapes = {name: tensor.shape for name, tensor in own.items()}
        self._tied = tied_names(own)
        self.names = [names[0] for names in self._tied]
        self.tied = {other: names[0] for names in self._tied for other in names[1:]}
        for module in model.modules():
            for name, parameter in list(module.named_parameters(recurse=False)):
                empty = nn.Parameter(torch.empty(0, dtype=parameter.dtype), requires_grad=False)
                module.register_parameter(name, empty)
        self._model = model.eval()

    def complete(self, policy: str, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """``weights`` under all their names: a tied one may come under any.

        Raises ``ValueError``, naming them, for weights that do not fit: see :func:`..weights.check_fit`.
        """
        check_fit(policy, self._tied, self._shapes, weights)
        complete = dict(weights)
        for names in self._tied:
            complete |= dict.fromkeys(names, next(weights[name] for name in names if name in weights))
        return complete

    @torch.no_grad()
    def next_logprobs(self, weights: Mapping[str, Tensor], ids: tuple[int, ...]) -> Tensor:
        """(V,) float32, nats: of the token after ``ids``, with complete ``weights``, on their device."""
        device = next(iter(weights.values())).device
        inputs = (torch.tensor([ids], device=device),)
        options = {"use_cache": False, "logits_to_keep": 1}
        output = functional_call(self._model.to(device), dict(weights), inputs, options, tie_weights=False)
        return torch.log_softmax(output.logits[0, -1].float(), dim=-1)


def _rank(weights: Mapping[str, Tensor]) -> int:
    return max(len(tensor) for name, tensor in weights.items() if name.endswith(A))


def sequences(vocabulary: int, length: int) -> list[tuple[int, ...]]:
    """The probes, always the same: the first of ``length`` tokens, each other half as long; no two begin alike."""
    rng = Random("canary")  # another seed would change `probe_nats` of every run
    return [tuple(rng.randrange(vocabulary) for _ in range(max(1, length >> index))) for index in range(PROBES)]
