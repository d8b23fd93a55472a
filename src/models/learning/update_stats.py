"""Statistics of a policy's update: losses, norms, divergences, and how far the policy that learns is from those that
sampled.

A sample's age is the version of the policy that learns, less the version that sampled it; 0 is on-policy.  Where
several versions sampled it, its age is that of its first token, the oldest: the later ones were sampled on keys and
values of older weights, so that they too differ from what the learner computes, without any fault of the engine's.  The
importance ratio of each of its tokens is the learner at the update's start over the behaviour policy, whose
log-probabilities the engine recorded with the version that sampled the token: one truncated importance sampling for
every version (:class:`...algorithms.objectives.Objective`).

The operations of a policy's passes, and what a GPU could do meanwhile: MFU (arXiv 2204.02311, appendix B).
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from ...algorithms.objectives import Objective, ObjectiveOutput
from ...experience import Sample, TokenBatch
from ...rollout.engines.local import head_width
from .ranks import Ranks

TOKEN_SUMS = ("clipped", "approx_kl_nats", "tokens", "behaviour_kl_nats", "reference_kl_nats", "entropy_nats")
"""Fields of :class:`...algorithms.objectives.ObjectiveOutput` that are sums over tokens.  Each process has those of its
own micro-batches; losses and norms are already those of all processes.
"""


Place = tuple[str, int]
"""Agent and turn of a message."""

SUMS = ("tokens", "abs", "k1", "k3", "units", "weight", "weight2", "corrected", "samples")
STALE: Place = ("", -1)
"""The place of all messages that older versions sampled."""
STALE_NAMES = ("mean_abs_nats", "k3_nats", "ess_ratio", "corrected_share", "samples")
"""What is reported of them."""


class MismatchStats:
    """Sums over the completion tokens of an update, of the drift d = learner's log-probability at the update's start
    less the behaviour policy's, in nats.

    ``places`` are all that :meth:`add` will see.  The sums lie in float64 on ``device``.
    """

    def __init__(self, places: Iterable[Place], device: torch.device) -> None:
        self.places = sorted(set(places))
        self._index = {place: index for index, place in enumerate(self.places)}
        self._sums = torch.zeros(len(self.places), len(SUMS), dtype=torch.float64, device=device)
        self._largest = torch.zeros(len(self.places), dtype=torch.float64, device=device)

    def add(
        self,
        places: Sequence[Place],
        drift: Tensor,
        mask: Tensor,
        ratio: Tensor,
        corrected: Tensor,
        counts: Tensor | None = None,
    ) -> None:
        """A micro-batch: ``places`` of its B candidates, ``drift`` (B, C), 0 where ``mask`` (B, C) is False, and the
        importance ``ratio`` of each token (B, C) or completion (B, 1) with whether it was truncated or masked.

        ``counts`` (B,): how many candidates each stands for, where they were drawn from more; 1 by default.
        """
        drift, ratio = drift.double(), ratio.double()
        units = mask if ratio.shape == mask.shape else mask.any(dim=1, keepdim=True)
        weight = torch.where(units, ratio, 0.0)
        k3 = drift.exp() - 1 - drift
        columns = (mask, drift.abs(), -drift, k3, units, weight, weight.square(), corrected & units)
        rows = torch.stack([column.sum(dim=1).double() for column in columns], dim=1)
        if counts is not None:
            rows *= counts[:, None]
        rows = torch.cat([rows, rows.new_ones(len(rows), 1)], dim=1)
        index = torch.tensor([self._index[place] for place in places], device=rows.device)
        self._sums.index_add_(0, index, rows)
        self._largest.scatter_reduce_(0, index, drift.abs().amax(dim=1), "amax")

    def reduce(self, add_up: Callable[[Tensor], None], maximise: Callable[[Tensor], None]) -> None:
        """Put together with those of other processes, by functions that add up and maximise a tensor in place."""
        add_up(self._sums)
        maximise(self._largest)

    def metrics(self) -> dict[str, float]:
        """By ``mismatch/AGENT/NAME`` and ``mismatch/AGENT/turnT/NAME``, for those that had tokens:

        ``mean_abs_nats`` and ``max_abs_nats`` of d; ``k1_nats`` and ``k3_nats``, two estimates of KL(behaviour ||
        learner) (http://joschu.net/blog/kl-approx.html); ``ess_ratio``, the effective sample size of the importance
        ratios, (sum w)^2 / sum w^2, over their number; ``corrected_share``, the share of them that truncated importance
        sampling truncated or masked; ``samples``, the number of candidates behind these figures.  Where the candidates
        were drawn from more, ``max_abs_nats`` is that of those drawn, and the others are estimates for all.  Of
        :data:`STALE` as ``stale_NAME``, :data:`STALE_NAMES` alone.
        """
        metrics: dict[str, float] = {}
        present = [place for place in self.places if place != STALE]
        for agent in dict.fromkeys(agent for agent, _ in present):
            own = [place for place in present if place[0] == agent]
            parts = {f"mismatch/{agent}/": own} | {f"mismatch/{agent}/turn{place[1]}/": [place] for place in own}
            metrics |= {f"{prefix}{name}": v for prefix, part in parts.items() for name, v in self._of(part).items()}
        stale = self._of([STALE]) if STALE in self._index else {}
        return metrics | {f"stale_{name}": stale[name] for name in STALE_NAMES if stale}

    def _of(self, together: Sequence[Place]) -> dict[str, float]:
        places = [self._index[place] for place in together]
        sums = dict(zip(SUMS, self._sums[places].sum(dim=0).tolist(), strict=True))
        if not sums["tokens"]:
            return {}
        return {
            "mean_abs_nats": sums["abs"] / sums["tokens"],
            "max_abs_nats": self._largest[places].max().item(),
            "k1_nats": sums["k1"] / sums["tokens"],
            "k3_nats": sums["k3"] / sums["tokens"],
            "ess_ratio": sums["weight"] ** 2 / sums["weight2"] / sums["units"] if sums["weight2"] else 0.0,
            "corrected_share": sums["corrected"] / sums["units"],
            "samples": sums["samples"],
        }


class UpdateStats:
    """The sums of one update of ``version`` from ``groups``: those of this process, until :meth:`metrics` adds up all
    processes.
    """

    def __init__(
        self, groups: Sequence[Sequence[Sample]], learning_rate: float, device: torch.device, version: int
    ) -> None:
        self.groups, self.learning_rate, self.device = groups, learning_rate, device
        self.version, self._samples = version, [sample for group in groups for sample in group]
        self.mismatch = MismatchStats(map(self.place, self._samples), device)
        self._sums = dict.fromkeys(TOKEN_SUMS, 0.0)
        self._losses = self._norms = self._steps = 0.0
        self._started = time.perf_counter()

    def add_batch(self, output: ObjectiveOutput) -> None:
        """A micro-batch of this process."""
        values = torch.stack([getattr(output, name).double() for name in TOKEN_SUMS]).tolist()  # in one transfer
        for name, value in zip(TOKEN_SUMS, values, strict=True):
            self._sums[name] += value

    def place(self, sample: Sample) -> Place:
        """Where the drift of ``sample`` counts in ``mismatch``: that of older versions is the policy's own, and no
        mismatch of engine and learner.
        """
        return STALE if self._age(sample) else (sample.agent, sample.turn)

    def _age(self, sample: Sample) -> int:
        """Updates since ``sample`` was sampled.  Raises ``ValueError`` for one of a version that is still to come."""
        age = 0 if sample.version is None else self.version - sample.version
        if age < 0:
            raise ValueError(
                f"policy '{sample.policy}' has version {self.version}, and a sample the later one {sample.version}"
            )
        return age

    def add_step(self, loss: float, grad_norm: float) -> None:
        """An optimizer step, with the loss and the gradient's norm of its whole mini-batch."""
        self._losses += loss
        self._norms += grad_norm
        self._steps += 1

    def metrics(self, objective: Objective, ranks: Ranks) -> dict[str, float]:
        """Means over tokens, steps and groups of all processes, which call this together."""
        sums = ranks.total(self._sums, self.device)
        if ranks.world > 1:
            self.mismatch.reduce(ranks.add_up, ranks.maximise)
        tokens, steps = max(sums["tokens"], 1), max(self._steps, 1)
        live = sum(any(sample.advantage for sample in group) for group in self.groups)
        regularisers = {"reference_kl_nats": objective.kl, "entropy_nats": objective.entropy}
        return {name: sums[name] / tokens for name, coefficient in regularisers.items() if coefficient} | {
            "loss": self._losses / steps,
            "grad_norm": self._norms / steps,
            "clipped_share": sums["clipped"] / tokens,
            "step_kl_nats": sums["approx_kl_nats"] / tokens,
            "behaviour_kl_nats": sums["behaviour_kl_nats"] / tokens,
            "live_groups": live / max(len(self.groups), 1),
            "samples": float(len(self._samples)),
            "optimizer_steps": self._steps,
            "learning_rate": self.learning_rate,
            "update_s": time.perf_counter() - self._started,
            **self._staleness(),
            **self.mismatch.metrics(),
        }

    def _staleness(self) -> dict[str, float]:
        """``staleness_mean`` and ``staleness_max`` of the samples' ages; where any is older, ``mixed_version_samples``:
        how many of these several versions sampled."""
        ages = [self._age(sample) for sample in self._samples]
        metrics = {"staleness_mean": fmean(ages) if ages else 0.0, "staleness_max": float(max(ages, default=0))}
        mixed = {"mixed_version_samples": float(sum(sample.mixed_versions for sample in self._samples))}
        return metrics | (mixed if any(ages) else {})


def weight_shares(groups: Iterable[Sequence[Sample]], objective: Objective) -> dict[str, float]:
    """Of each agent, where several speak with one policy: ``diagnostics/AGENT/weight_share``, the part of the weight in
    the loss that the tokens of its messages have, whatever their advantages; and ``.../excess_weight``, that less its
    part of the messages, in (-1, 1): 0 where every message weighs the same.
    """
    messages: Counter[str] = Counter()
    weights: defaultdict[str, float] = defaultdict(float)
    for sample in (sample for group in groups for sample in group):
        messages[sample.agent] += 1
        weights[sample.agent] += objective.loss_weight(sample.weight, len(sample.token_ids))
    total = sum(weights.values())
    if len(messages) < 2 or not total:
        return {}
    metrics: dict[str, float] = {}
    for agent in sorted(messages):
        share = weights[agent] / total
        metrics[f"diagnostics/{agent}/weight_share"] = share
        metrics[f"diagnostics/{agent}/excess_weight"] = share - messages[agent] / messages.total()
    return metrics


PEAK_TFLOPS: Final = {"H100": 989, "H200": 989, "A100": 312, "L40S": 362, "L4": 121, "4090": 165, "A10G": 70}
"""Dense bfloat16, by a part of the device's name; the first that fits."""


def peak(device: torch.device) -> float | None:
    """Operations per second of a GPU in bfloat16, whatever it computes in; None for others and unknown ones."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    return next((1e12 * tflops for part, tflops in PEAK_TFLOPS.items() if part in name), None)


@dataclass
class Operations:
    """A sum over passes, of the model's own operations: 2 per weight and token, the head where tokens are scored, and 4
    per number of a query head and pair of tokens that see each other.  Gradients cost as much for the inputs of the
    layers, and again for weights that learn; twice for the pairs.  What is computed a second time to save memory does
    not count, nor do norms and activations.
    """

    layers: int
    """Weights of the layers' matrices, without adapters."""
    head: int
    pair: int
    """Numbers of all query heads of all layers."""
    adapter: int
    """Weights that learn, where the others are frozen; else 0."""
    done: float = 0.0

    @classmethod
    def of(
        cls, model: PreTrainedModel, learnt: Sequence[nn.Parameter], adapters: Collection[nn.Parameter]
    ) -> Operations | None:
        """For a policy that learns ``learnt``; ``adapters`` are those of all policies.  None for a mixture of experts,
        of whose weights a token meets a part.
        """
        config = model.config
        if getattr(config, "num_experts", None) or getattr(config, "num_local_experts", None):
            return None
        others = set(adapters)
        others |= {part.weight for part in (model.get_input_embeddings(), model.get_output_embeddings())}
        return cls(
            layers=sum(p.numel() for p in model.parameters() if p.dim() > 1 and p not in others),
            head=config.hidden_size * config.vocab_size,
            pair=config.num_hidden_layers * config.num_attention_heads * head_width(config),
            adapter=sum(weight.numel() for weight in learnt) if adapters else 0,
        )

    def add(self, batch: TokenBatch, *, learning: bool) -> None:
        """A pass over ``batch``, with a backward pass where it learns."""
        tokens = len(batch.input_ids)
        scored = pairs = 0
        for start, end, stop, is_scored in batch.segments:
            length = end - start
            scored += length * is_scored
            pairs += length * (length + 1) // 2 + length * (stop - end)
        forward, attention = 2 * (self.layers * tokens + self.head * scored), 4 * self.pair * pairs
        passes = (2 if self.adapter else 3) if learning else 1
        self.done += passes * forward + (3 if learning else 1) * (attention + 2 * self.adapter * tokens)
