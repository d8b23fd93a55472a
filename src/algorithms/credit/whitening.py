"""Advantages normalised over an iteration, each policy's by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from ...experience import Candidate


def whiten(candidates: Sequence[Candidate], lengths: Sequence[int], floor: float, *, shift: bool = True) -> None:
    """Scale the advantages of ``candidates`` over their tokens, each policy's by themselves.

    A <- (A - mean A) / (std A + ``floor``), each candidate counted ``lengths`` times; the biased std.  Without
    ``shift``, A <- A / (root of mean A^2 + ``floor``): for advantages that a group baseline has centred, 0 stays 0.

    Where a policy's advantages are all equal, they are exactly 0.
    """
    by_policy: dict[str, list[tuple[Candidate, int]]] = {}
    for candidate, length in zip(candidates, lengths, strict=True):
        by_policy.setdefault(candidate.completion.policy, []).append((candidate, length))
    for counted in by_policy.values():
        advantages = _scale([(c.advantage or 0.0, length) for c, length in counted], floor, shift)
        for (candidate, _), advantage in zip(counted, advantages, strict=True):
            candidate.advantage = advantage


def _scale(counted: Sequence[tuple[float, int]], floor: float, shift: bool) -> list[float]:
    """The (advantage, length) of one policy's candidates as advantages that are scaled as :func:`whiten` says."""
    total = sum(n for _, n in counted)
    if len({a for a, _ in counted}) <= 1 or not total:
        return [0.0] * len(counted)
    mean = sum(n * a for a, n in counted) / total if shift else 0.0
    std = sqrt(sum(n * (a - mean) ** 2 for a, n in counted) / total) + floor
    return [(a - mean) / std if std else 0.0 for a, _ in counted]
