"""A canary: fixed token sequences whose log-probabilities engine and learner must agree on after every update."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

from ..lora import Adapter
from .skeleton import Skeleton

SEQUENCES, TOP = 4, 20


@dataclass(frozen=True)
class Song:
    """What an engine said of one sequence: the ``TOP`` likeliest next tokens with their log-probabilities (nats), and
    how many of the sequence's tokens it did not read but remembered.
    """

    logprobs: Mapping[int, float]
    remembered: int


def sequences(vocabulary: int, length: int) -> list[tuple[int, ...]]:
    """Of tokens drawn once and for all, the first of ``length``, each other half as long; no two begin alike."""
    rng = Random("canary")
    return [tuple(rng.randrange(vocabulary) for _ in range(max(1, length >> index))) for index in range(SEQUENCES)]


def expected(
    skeleton: Skeleton, weights: Mapping[str, Tensor], asked: Sequence[tuple[int, ...]], adapter: Adapter | None
) -> Tensor:
    """(len(asked), V) float32, nats: the learner's log-probabilities after each sequence."""
    with adapter.applied() if adapter else nullcontext():
        return torch.stack([skeleton.next_logprobs(weights, ids) for ids in asked]).cpu()


def difference(learner: Tensor, songs: Sequence[Song]) -> float:
    """The largest between engine and learner, in nats; infinite where one of them is not finite."""
    worst = 0.0
    for row, song in zip(learner, songs, strict=True):
        apart = (row[list(song.logprobs)] - torch.tensor(list(song.logprobs.values()))).abs().max().item()
        worst = max(worst, apart if math.isfinite(apart) else math.inf)
    return worst
