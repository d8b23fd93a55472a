"""The weights that an engine must compute with: of the model and of every adapter, with digests and probe answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..lora import A, Adapted, Adapter, B
from ..plain_pass import (
    BFLOAT16_ROUNDING,
    ROUNDING,
    WIDER,
    at_least_stored,
    computing_in,
    highest_precision,
    passages,
    rms,
)
from ..weights import assign_strictly, files_of, tied_names
from .digest import Digests, digests
from .settings import VllmSettings, buffer_width
from .transfer import WeightSource

PROBES = 4
"""How many sequences engine and learner are compared on."""
TOP = 20
"""How many of the likeliest tokens after a sequence are compared."""
TF32 = 8
"""How much finer than bfloat16 the numbers are that vLLM's attention multiplies on a GPU's tensor cores in float32."""


@dataclass(frozen=True, eq=False)
class WeightSet:
    """Weights that are sent and verified together: those of the model, or of one adapter.  New weights are a new set.

    ``slot`` is the adapter's in vLLM, from 1 on; None: the model; 0: the slot that must stay empty, for a policy
    without an adapter beside others.  ``tensors`` are an adapter's, of rank ``rank``, in the engine's dtype and with
    its scale in B.  ``digested`` makes the digests.
    """

    label: str
    slot: int | None
    rank: int = 0
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    digested: Callable[[], Digests] = dict

    @cached_property
    def digests(self) -> Digests:
        return self.digested()


class ExpectedAnswers:
    """What a plain forward pass answers to the probes with one version of the weights, computed when it is asked for.

    ``plain(dtype)`` is that pass in ``dtype``: of each sequence (T, V) log-probabilities, float64, nats; ``dtype`` is
    the engine's.
    """

    def __init__(self, plain: Callable[[torch.dtype], Iterable[Tensor]], dtype: torch.dtype) -> None:
        self._plain, self._dtype = plain, dtype

    @cached_property
    def _exact(self) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Of the pass in a wider dtype than the engine's: :attr:`logprobs`, and of each sequence the :data:`TOP`
        largest at every position and their tokens, (T, TOP).
        """
        last, tops = [], []
        for each in self._plain(WIDER[self._dtype]):
            last.append(each[-1].cpu())
            values, tokens = each.topk(min(TOP, each.shape[-1]))
            tops.append((values, tokens))
        return torch.stack(last), tops

    @property
    def logprobs(self) -> Tensor:
        """(Sequences, V) float64, nats, on the CPU: of the token after each sequence, in the wider dtype."""
        return self._exact[0]

    @cached_property
    def rounding(self) -> float:
        """How far (nats) a pass in the engine's dtype is from the one in the wider dtype, at the likeliest tokens."""
        rounding = self._apart(self._dtype)
        if self._dtype == torch.float32 and torch.cuda.is_available():
            rounding = max(rounding, self.bfloat16_rounding / TF32)
        return rounding

    @cached_property
    def bfloat16_rounding(self) -> float:
        """As :attr:`rounding`, of a pass in bfloat16."""
        return self.rounding if self._dtype == torch.bfloat16 else self._apart(torch.bfloat16)

    def _apart(self, dtype: torch.dtype) -> float:
        pairs = zip(self._exact[1], self._plain(dtype), strict=True)
        apart = rms(torch.cat([top - other.gather(-1, tokens) for (top, tokens), other in pairs]))
        return at_least_stored(apart, self.logprobs)


@dataclass(frozen=True, eq=False)
class ExpectedPolicy:
    """One policy, as of ``version``: its weights besides the model's, None where vLLM has no adapters.

    Its answers to the probes are compared with ``logprobs`` (see :class:`ExpectedAnswers`), of the weights that it has;
    ``first`` are those of the weights that it began with: how much rounding moves them is measured once, since an
    update hardly changes it.
    """

    name: str
    version: int
    adapter: WeightSet | None
    answers: ExpectedAnswers
    first: ExpectedAnswers

    @property
    def logprobs(self) -> Tensor:
        return self.answers.logprobs

    @property
    def rounding(self) -> float:
        return self.first.rounding

    @property
    def measured(self) -> dict[str, float]:
        return {ROUNDING: self.rounding, BFLOAT16_ROUNDING: self.first.bfloat16_rounding}


class ExpectedWeights:
    """Takes ``models`` apart: they are one model, alone or with an adapter per policy, of at most ``rank``.

    With ``lora=merged`` the one policy's adapter is merged into its base, so that vLLM knows of no adapters.  ``tied``
    maps each further name of a tied weight to the first, under which it is in a checkpoint.  Raises ``ValueError``
    naming the policies.

    Nothing of a proof is computed here: :meth:`complete` does that while vLLM's process starts.
    """

    def __init__(
        self,
        models: Mapping[str, PreTrainedModel | Adapted],
        settings: VllmSettings,
        tokenizer: PreTrainedTokenizerBase,
        prompts: Sequence[Sequence[int]] = (),
    ) -> None:
        bases = [model.model if isinstance(model, Adapted) else model for model in models.values()]
        if len(set(bases)) != 1:
            raise ValueError(f"engine=vllm has one model, and policies with adapters on it, got {', '.join(models)}")
        adapted = {name: model for name, model in models.items() if isinstance(model, Adapted)}
        self._adapters = {name: Adapter(name, model) for name, model in adapted.items()}
        self._merged = next(iter(self._adapters.values()), None) if settings.lora == "merged" else None
        self.rank = max((_rank(model.weights) for model in adapted.values()), default=0)
        self.architecture, self.settings, self.label = bases[0].eval(), settings, ", ".join(models)
        self.context, self.vocabulary = bases[0].config.max_position_embeddings, bases[0].config.vocab_size
        self.tied = {other: first for first, *others in tied_names(self.architecture.state_dict()) for other in others}
        # Of two whole blocks, which a cache could keep, and a token more.
        length = min(2 * settings.block_size + 1, self.context - 1)
        lengths = [max(1, length >> index) for index in range(PROBES)]
        self.sequences = passages(tokenizer, prompts, self.vocabulary, lengths)
        self.files = () if self._merged else files_of(self.architecture, settings.torch_dtype)
        """Those that hold the model's weights as they are sent; none where they are in memory alone."""
        self.model = self._model_set()
        self._base = self._answers(None)
        self.policies: dict[str, ExpectedPolicy] = {}
        slots = {} if self._merged else {name: slot for slot, name in enumerate(adapted, 1)}
        for name in models:
            weights = adapted[name].weights if name in slots else {}
            adapter = self._adapter_set(name, slots.get(name, 0), weights) if slots else None
            answers = self._base if _has_no_effect(adapter) else self._answers(name)
            self.policies[name] = ExpectedPolicy(name, 0, adapter, answers, answers)

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

    def complete(self) -> None:
        """Compute what a proof of the present weights compares with, where that is not done."""
        for weights in (self.model, *self.adapters):
            _ = weights.digests
        for policy in self.policies.values():
            _ = policy.logprobs, policy.measured

    def update(self, policy: str, weights: Mapping[str, Tensor], version: int) -> None:
        """New weights, to be sent.  Raises ``ValueError`` for weights that do not fit; nothing is changed then."""
        if (adapter := self._adapters.get(policy)) is not None:
            adapter.load(weights)
        elif len(self.policies) > 1:
            others = ", ".join(name for name in self.policies if name != policy)
            raise ValueError(f"policy '{policy}': its weights are those of {others} too, and stay as they are")
        else:
            assign_strictly(policy, self.architecture, weights)
        before = self.policies[policy]
        after = None
        if before.adapter is None:
            self.model, self.files = self._model_set(), ()
        else:
            after = self._adapter_set(policy, before.adapter.slot, weights)
            for name, other in self.policies.items():
                if other.adapter is not None and not other.adapter.slot:  # which must still be empty
                    self.policies[name] = replace(other, adapter=replace(other.adapter))
        self.policies[policy] = ExpectedPolicy(policy, version, after, self._answers(policy), before.first)
        self.complete()  # before anybody changes these weights

    def _model_set(self) -> WeightSet:
        def digested() -> Digests:
            own = digests(self.tensors(), self.settings.torch_dtype)
            return own | {other: own[first] for other, first in self.tied.items()}

        return WeightSet(self.label, None, digested=digested)

    def _adapter_set(self, policy: str, slot: int | None, weights: Mapping[str, Tensor]) -> WeightSet:
        tensors, dtype = {}, self.settings.torch_dtype
        for name, tensor in weights.items():
            scaled = tensor.detach() * self._adapters[policy].scale if name.endswith(B) else tensor.detach()
            tensors[name] = scaled.to("cpu", dtype, copy=True).contiguous()
        return WeightSet(policy, slot, _rank(weights), tensors, partial(digests, tensors.items(), dtype))

    def _answers(self, policy: str | None) -> ExpectedAnswers:
        """Those of ``policy``; None: of the model alone."""
        return ExpectedAnswers(partial(self._plain, policy), self.settings.torch_dtype)

    @torch.no_grad()
    def _plain(self, policy: str | None, dtype: torch.dtype) -> Iterator[Tensor]:
        """Of each sequence (T, V) float64, nats: of the token after each of its tokens, with the weights that are sent,
        computed in ``dtype``, all sequences at once.
        """
        engine, merged = self.settings.torch_dtype, self._merged
        adapter = None if merged or policy is None else self._adapters.get(policy)

        def sent(name: str, weight: Tensor) -> Tensor:
            return (merged.merged(name, weight) if merged else weight).to(engine)

        # What fills a row up comes after all that counts.
        rows = pad_sequence([torch.tensor(ids) for ids in self.sequences], batch_first=True).to(self.device)
        with (
            highest_precision(),
            computing_in(self.architecture, dtype, sent),
            adapter.applied(engine) if adapter else nullcontext(),
        ):
            logits = self.architecture(rows, use_cache=False).logits
        for row, ids in zip(logits, self.sequences, strict=True):
            yield row[: len(ids)].double().log_softmax(-1)


def _has_no_effect(adapter: WeightSet | None) -> bool:
    """Whether it adds nothing to the model, as one that has not learnt yet (B = 0)."""
    return adapter is None or not any(tensor.any() for name, tensor in adapter.tensors.items() if name.endswith(B))


def _rank(weights: Mapping[str, Tensor]) -> int:
    return max((len(tensor) for name, tensor in weights.items() if name.endswith(A)), default=0)
