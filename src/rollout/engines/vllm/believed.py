"""What an engine ought to compute with, policy by policy: weights, their digests, and what the canary ought to say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor
from transformers import PreTrainedModel

from ..lora import A, Adapted, Adapter, B
from . import canary
from .adapters import buffer_width
from .digest import Digests, digests
from .launch import LoraRoom
from .merged import Merged
from .skeleton import Skeleton

LoraWay = Literal["adapter", "merged"]


@dataclass
class Belief:
    """One policy, as of ``version``.

    ``slot`` and ``rank`` of its adapter in vLLM, 0 where the policy speaks with the model alone; ``tensors`` are the
    adapter's in the engine's dtype, with its scale within B, and ``digests`` theirs.  ``expected`` (sequences, V),
    nats, is what the learner says of the canary; ``apart`` how far the engine was from it, infinite until it was asked.
    ``given``: whether vLLM was given some adapter.
    """

    slot: int = 0
    rank: int = 0
    given: bool = False
    version: int = 0
    tensors: dict[str, Tensor] = field(default_factory=dict)
    digests: Digests = field(default_factory=dict)
    expected: Tensor = field(default_factory=lambda: torch.empty(0))
    apart: float = math.inf


class Believed:
    """Takes ``models`` apart: they are one model, alone or with an adapter a policy.

    With ``way=merged`` the one policy's adapter is merged into its base, so that vLLM knows of no adapters.  Raises
    ``ValueError`` naming the policies.
    """

    def __init__(
        self, models: Mapping[str, PreTrainedModel | Adapted], dtype: torch.dtype, way: LoraWay, length: int
    ) -> None:
        bases = [given.model if isinstance(given, Adapted) else given for given in models.values()]
        if len({id(base) for base in bases}) != 1:
            raise ValueError(f"engine=vllm has one model, and policies with adapters on it, got {', '.join(models)}")
        self._adapters = {name: Adapter(name, given) for name, given in models.items() if isinstance(given, Adapted)}
        self.merged = way == "merged" and bool(self._adapters)
        if self.merged:
            check_merged(list(models))
        self.model, self.dtype, self.label = bases[0], dtype, ", ".join(models)
        self.context, self.vocabulary = self.model.config.max_position_embeddings, self.model.config.vocab_size
        self._base: Mapping[str, Tensor] = self.model.state_dict()
        self._skeleton = Skeleton(self.model)
        self.sequences = canary.sequences(self.vocabulary, min(length, self.context - 1))
        self.policies = {name: Belief() for name in models}
        slots = [] if self.merged else list(self._adapters)
        for name, adapter in self._adapters.items():
            given = models[name]
            assert isinstance(given, Adapted)
            belief = self.policies[name]
            belief.slot = slots.index(name) + 1 if name in slots else 0
            belief.rank = max(len(tensor) for key, tensor in given.weights.items() if key.endswith(A))
            self._believe_adapter(belief, adapter, given.weights)
        self._believe_base()

    @property
    def device(self) -> torch.device:
        """Where the learner's weights lie."""
        return next(iter(self._base.values())).device

    @property
    def weights(self) -> Mapping[str, Tensor]:
        """Those of the model, by all their names."""
        return Merged(self._base, *self._adapters.values()) if self.merged else self._base

    def sent(self) -> Iterator[tuple[str, Tensor]]:
        """The weights of the model, each once, as a checkpoint has them."""
        weights = self.weights
        return ((name, weights[name]) for name in self._skeleton.names)

    @property
    def tied(self) -> dict[str, str]:
        """The other names of weights that are sent once, each with the one that is sent."""
        return self._skeleton.tied

    @property
    def room(self) -> LoraRoom | None:
        """What vLLM must have room for besides the model."""
        if self.merged or not self._adapters:
            return None
        rank = max(belief.rank for belief in self.policies.values())
        targets = {path.rpartition(".")[2] for adapter in self._adapters.values() for path in adapter.modules}
        # On a CPU, vLLM 0.32 gives requests without an adapter that of the last slot: one is kept empty for them.
        slots = len(self._adapters) + any(not belief.slot for belief in self.policies.values())
        return LoraRoom(slots, buffer_width(self.label, rank), tuple(sorted(targets)))

    def take(self, policy: str, weights: Mapping[str, Tensor], version: int) -> None:
        """New weights; not proven yet.  Raises ``ValueError`` for weights that do not fit; nothing is changed then."""
        belief, adapter = self.policies[policy], self._adapters.get(policy)
        if adapter is not None:
            adapter.load(weights)
            self._believe_adapter(belief, adapter, weights)
        elif len(self.policies) > 1:
            others = ", ".join(name for name in self.policies if name != policy)
            raise ValueError(f"policy '{policy}': its weights are those of {others} too, and stay as they are")
        else:
            self._base = self._skeleton.complete(policy, weights)
        if self.merged or adapter is None:
            self._believe_base()
        else:
            self._expect(policy)
        belief.version = version

    def doubt(self) -> None:
        """Nothing is proven any more: the process is another."""
        for belief in self.policies.values():
            belief.apart, belief.given = math.inf, False

    def doubt_speech(self) -> None:
        """Weights may be where they were; what the process says with them is to be heard again."""
        for belief in self.policies.values():
            belief.apart = math.inf

    def doubt_bare(self) -> None:
        """What speaks without an adapter is not proven any more: those of others have changed."""
        for belief in self.policies.values():
            if not belief.slot:
                belief.apart = math.inf

    def _believe_base(self) -> None:
        self.digests = digests(self.weights.items(), self.dtype)
        for policy in self.policies:
            self._expect(policy)

    def _believe_adapter(self, belief: Belief, adapter: Adapter, weights: Mapping[str, Tensor]) -> None:
        scaled = {name: tensor * adapter.scale if name.endswith(B) else tensor for name, tensor in weights.items()}
        belief.tensors = {name: tensor.detach().to("cpu", self.dtype, copy=True) for name, tensor in scaled.items()}
        belief.digests = digests(belief.tensors.items(), self.dtype)

    def _expect(self, policy: str) -> None:
        belief = self.policies[policy]
        belief.expected = canary.expected(self._skeleton, self._base, self.sequences, self._adapters.get(policy))
        belief.apart = math.inf


def check_merged(policies: Sequence[str]) -> None:
    """Raise ``ValueError``, naming the key, where one model would have to hold several adapters."""
    if len(policies) > 1:
        raise ValueError(
            f"engine.lora=merged: {', '.join(policies)} speak with one model, which cannot hold the merged weights of "
            "each; give engine.lora=adapter"
        )
