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
    for pairs in by_policy.values():
        advantages = _scale([(c.advantage or 0.0, length) for c, length in pairs], floor, shift)
        for (candidate, _), advantage in zip(pairs, advantages, strict=True):
            candidate.advantage = advantage


def _scale(pairs: Sequence[tuple[float, int]], floor: float, shift: bool) -> list[float]:
    """The scaled advantages of one policy, from (advantage, length) of its candidates; see :func:`whiten`."""
    total = sum(n for _, n in pairs)
    if len({a for a, _ in pairs}) <= 1 or not total:
        return [0.0] * len(pairs)
    mean = sum(n * a for a, n in pairs) / total if shift else 0.0
    std = sqrt(sum(n * (a - mean) ** 2 for a, n in pairs) / total) + floor
    return [(a - mean) / std if std else 0.0 for a, _ in pairs]
