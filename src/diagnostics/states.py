"""How far the states that policies learn from are from those that they meet in evaluation."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from ..evaluation.episodes import EpisodeResult

PROMPTS = re.compile(r"diagnostics/(.+)/turn(\d+)/prompts")


def divergence(row: Mapping[str, Any], results: Sequence[EpisodeResult]) -> dict[str, float]:
    """``AGENT/states_tv``: the total variation, in [0, 1], between the distributions of the turn of an agent's prompts
    in training (a ``row`` of metrics) and in an evaluation (its ``results``).

    The tasks of an evaluation are others, so that states themselves cannot be compared; but turn is what the choice of
    the best of K changes most, since the best candidates end episodes early.  0.1 means: 10 % of the prompts would have
    to lie in other turns.
    """
    training: dict[str, dict[int, float]] = defaultdict(dict)
    for key, value in row.items():
        if match := PROMPTS.fullmatch(key):
            training[match[1]][int(match[2])] = value
    evaluation: dict[str, Counter[int]] = defaultdict(Counter)
    for result in results:
        for message in () if result.lost else result.messages:
            evaluation[message["agent"]][message["turn"]] += 1
    return {
        f"{agent}/states_tv": total_variation(counts, evaluation[agent])
        for agent, counts in training.items()
        if agent in evaluation
    }


def total_variation(one: Mapping[int, float], other: Mapping[int, float]) -> float:
    """Half the sum of the differences of two distributions, each given by its counts."""
    n, m = sum(one.values()), sum(other.values())
    return sum(abs(one.get(x, 0.0) / n - other.get(x, 0.0) / m) for x in one.keys() | other.keys()) / 2
