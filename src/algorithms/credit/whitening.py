"""Advantages normalised over an iteration, each policy's by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt

from ...experience import Candidate


def whiten(candidates: Sequence[Candidate], lengths: Sequence[int], floor: float, *, shift: bool = True) -> None:
    """Scale the advantages of ``candidates`` over their tokens, each policy's by themselves.

    A <- (A - mean A) / (std A + ``floor``), each candidate counted ``lengths`` times; the biased std.  Without
    ``shift``, A <- A / (root of mean A^2 + ``floor``): for advantages that a group baseline has centred, 0 stays 0.
    Where a candidate has ``penalties``, each of its tokens has an advantage of its own, A less the penalty, and counts
    once.

    Where a policy's advantages are all equal, they are exactly 0.
    """
    by_policy: dict[str, list[tuple[Candidate, int]]] = {}
    for candidate, length in zip(candidates, lengths, strict=True):
        by_policy.setdefault(candidate.completion.policy, []).append((candidate, length))
    for pairs in by_policy.values():
        values = [value for candidate, length in pairs for value in _counted(candidate, length)]
        mean, scale = _statistics(values, floor, shift)
        for candidate, _ in pairs:
            candidate.advantage = ((candidate.advantage or 0.0) - mean) / scale if scale else 0.0
            candidate.penalties = tuple(penalty / scale if scale else 0.0 for penalty in candidate.penalties)


def _counted(candidate: Candidate, length: int) -> list[tuple[float, int]]:
    """(Advantage, how often it counts)."""
    advantage = candidate.advantage or 0.0
    if candidate.penalties:
        return [(advantage - penalty, 1) for penalty in candidate.penalties]
    return [(advantage, length)]


def _statistics(values: Sequence[tuple[float, int]], floor: float, shift: bool) -> tuple[float, float]:
    """The mean that is taken off, and the divisor; see :func:`whiten`.  0: every advantage becomes 0."""
    total = sum(n for _, n in values)
    if len({a for a, _ in values}) <= 1 or not total:
        return 0.0, 0.0
    mean = sum(n * a for a, n in values) / total if shift else 0.0
    return mean, sqrt(sum(n * (a - mean) ** 2 for a, n in values) / total) + floor
