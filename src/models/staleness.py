"""Staleness statistics: how many updates the samples of an update lie behind the weights that learn from them.

A sample's age is the version of the policy that learns, less the version that sampled it; 0 is on-policy.  Where
several versions sampled it, its age is that of its first token, the oldest: the later ones were sampled on keys and
values of older weights, so that they too differ from what the learner computes, without any fault of the engine's.  The
importance ratio of each of its tokens is the learner at the update's start over the behaviour policy, whose
log-probabilities the engine recorded with the version that sampled the token: one truncated importance sampling for
every version (:class:`..algorithms.objectives.Objective`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

import torch
from torch import Tensor

from ..experience import Sample
from .mismatch import MismatchStats

NAMES = ("mean_abs_nats", "k3_nats", "ess_ratio", "corrected_share", "samples")
"""What is reported of the importance ratios of an age, see :meth:`.mismatch.MismatchStats.metrics`."""


class StalenessStats:
    """The ages of ``samples`` at an update of ``version``, and the importance ratios of those that are above 0.

    Raises ``ValueError`` for a sample of a version that is still to come.
    """

    def __init__(self, samples: Iterable[Sample], version: int, device: torch.device) -> None:
        self.version = version
        samples = list(samples)
        self._ages = [self.age(sample) for sample in samples]
        self._mixed = sum(sample.mixed_versions for sample in samples)
        self._older = sorted({age for age in self._ages if age})
        self._ratios = MismatchStats((("", age) for age in self._older), device)

    def age(self, sample: Sample) -> int:
        """Updates since ``sample`` was sampled."""
        age = 0 if sample.version is None else self.version - sample.version
        if age < 0:
            raise ValueError(
                f"policy '{sample.policy}' has version {self.version}, and a sample the later one {sample.version}"
            )
        return age

    def add(self, samples: Sequence[Sample], *columns: Tensor | None) -> None:
        """A micro-batch of samples that are all older, with the arguments of :meth:`.mismatch.MismatchStats.add`."""
        self._ratios.add([("", self.age(sample)) for sample in samples], *columns)  # type: ignore[arg-type]

    def reduce(self, add_up: Callable[[Tensor], None], maximise: Callable[[Tensor], None]) -> None:
        """Put together with those of other processes, which have the same samples."""
        if self._older:
            self._ratios.reduce(add_up, maximise)

    def metrics(self) -> dict[str, float]:
        """``staleness_mean`` and ``staleness_max`` of the samples' ages; and of the importance ratios :data:`NAMES`,
        under ``stale_NAME`` of all samples that are older, under ``behindN_NAME`` of those of age N.  Beside the
        former ``mixed_version_samples``: how many of these several versions sampled.
        """
        metrics = {
            "staleness_mean": fmean(self._ages) if self._ages else 0.0,
            "staleness_max": float(max(self._ages, default=0)),
        }
        parts = {f"behind{age}_": [("", age)] for age in self._older}
        if self._older:
            parts["stale_"] = [("", age) for age in self._older]
            metrics["mixed_version_samples"] = float(self._mixed)
        for prefix, places in parts.items():
            found = self._ratios.of(prefix, places)
            metrics |= {f"{prefix}{name}": found[f"{prefix}{name}"] for name in NAMES if found}
        return metrics
