"""Statistics of a policy's update: losses, norms, divergences, and the mismatch with the engine."""

from __future__ import annotations

import logging
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from ..algorithms.objectives import Objective, ObjectiveOutput
from ..experience import Sample
from .mismatch import MismatchStats
from .ranks import Ranks
from .staleness import StalenessStats
from .update_settings import UpdateSettings

log = logging.getLogger(__name__)

TOKEN_SUMS = ("clipped", "approx_kl_nats", "tokens", "behaviour_kl_nats", "reference_kl_nats", "entropy_nats")
"""Fields of :class:`..algorithms.objectives.ObjectiveOutput` that are sums over tokens.  Each process has those of its
own micro-batches; losses and norms are already those of all processes.
"""


class UpdateStats:
    """The sums of one update of ``version`` from ``groups``: those of this process, until :meth:`metrics` adds up all
    processes.
    """

    def __init__(
        self, groups: Sequence[Sequence[Sample]], learning_rate: float, device: torch.device, version: int
    ) -> None:
        self.groups, self.learning_rate, self.device = groups, learning_rate, device
        self.staleness = StalenessStats((s for group in groups for s in group), version, device)
        self.mismatch = MismatchStats(((s.agent, s.turn) for group in groups for s in group), device)
        self._sums = dict.fromkeys(TOKEN_SUMS, 0.0)
        self._losses = self._norms = self._steps = 0.0
        self._started = time.perf_counter()

    def add_batch(self, output: ObjectiveOutput) -> None:
        """A micro-batch of this process."""
        for name in TOKEN_SUMS:
            self._sums[name] += getattr(output, name).item()

    def add_drift(self, samples: Sequence[Sample], *columns: Tensor | None) -> None:
        """The drift of a micro-batch, by the arguments of :meth:`.mismatch.MismatchStats.add`: that of older versions
        is the policy's own, and no mismatch of engine and learner.
        """
        ages = [self.staleness.age(sample) for sample in samples]
        if not any(ages):
            self.mismatch.add([(sample.agent, sample.turn) for sample in samples], *columns)  # type: ignore[arg-type]
            return
        older = torch.tensor([age > 0 for age in ages], device=self.device)
        for rows in (older, ~older):
            members = [sample for sample, here in zip(samples, rows.tolist(), strict=True) if here]
            part = [None if column is None else column[rows] for column in columns]
            if members and rows is older:
                self.staleness.add(members, *part)
            elif members:
                self.mismatch.add([(each.agent, each.turn) for each in members], *part)  # type: ignore[arg-type]

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
            self.staleness.reduce(ranks.add_up, ranks.maximise)
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
            "samples": float(sum(len(group) for group in self.groups)),
            "optimizer_steps": self._steps,
            "learning_rate": self.learning_rate,
            "update_s": time.perf_counter() - self._started,
            **self.staleness.metrics(),
            **self.mismatch.metrics(),
        }


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


def warn_of_mismatch(metrics: dict[str, float], settings: UpdateSettings, policy: str, version: int) -> None:
    """Warn of the agent and turn where engine and learner differ most, where that is beyond the bounds."""
    divergences = [(value, key) for key, value in metrics.items() if key.endswith("/k3_nats")]
    ratios = [(value, key) for key, value in metrics.items() if key.endswith("/ess_ratio")]
    if not divergences:
        return
    (divergence, where), (ratio, place) = max(divergences), min(ratios)
    prefix = f"policy '{policy}', version {version}"
    if 0 < (bound := settings.alarm_kl_nats) < divergence:
        log.warning("%s: %s=%.3g is more than algorithm.update.alarm_kl_nats=%g", prefix, where, divergence, bound)
    if ratio < (bound := settings.alarm_ess_ratio):
        log.warning("%s: %s=%.3g is less than algorithm.update.alarm_ess_ratio=%g", prefix, place, ratio, bound)
