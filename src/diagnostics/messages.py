"""Diagnostics of an iteration's messages, by agent and by agent and turn.  Pure functions of episodes with credit."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from math import comb

import numpy as np

from ..experience import Candidate, Episode, Node


@dataclass
class Messages:
    """The messages of one agent, or of one agent in one turn."""

    candidates: list[Candidate] = field(default_factory=list)
    groups: set[Hashable] = field(default_factory=set)
    prompts: float = 0.0
    """Expected number: a prompt counts with the probability of its node."""
    pairs: int = 0
    """Of candidates for one prompt."""
    differing: int = 0
    """Those of the pairs that differ in what ``alpha`` weighs."""

    def add(self, node: Node, group: Hashable, reach: float) -> None:
        """The candidates of ``node``, which the group has, and which is met with the probability ``reach``."""
        k, equal = len(node.candidates), Counter(candidate.team for candidate in node.candidates)
        self.candidates += node.candidates
        self.groups.add(group)
        self.prompts += reach
        self.pairs += comb(k, 2)
        self.differing += comb(k, 2) - sum(comb(count, 2) for count in equal.values())

    def metrics(self, advantages: dict[Hashable, list[float]]) -> Iterator[tuple[str, float]]:
        """(Name, value); ``advantages`` has those of each group."""
        candidates, completions = self.candidates, [each.completion for each in self.candidates]
        yield "prompts", self.prompts
        yield "messages", float(len(candidates))
        if not any(each.text_only for each in completions):
            lengths = np.array([len(each.token_ids) for each in completions])
            surprise = sum(sum(each.logprobs) for each in completions)
            yield "entropy_nats", -surprise / int(lengths.sum())
            yield from _quantiles("tokens", lengths, p50=50, p90=90, max=100)
        yield "truncated", float(np.mean([each.finish_reason == "length" for each in completions]))
        rewards = np.array([each.reward for each in candidates])
        yield "reward_mean", float(rewards.mean())
        yield "reward_std", float(rewards.std())
        yield from _quantiles("advantage", [each.advantage or 0.0 for each in candidates], p10=10, p50=50, p90=90)
        compared = [advantages[group] for group in self.groups if len(advantages[group]) > 1]
        if compared:
            yield "zero_variance", float(np.mean([len(set(group)) == 1 for group in compared]))
        if self.pairs:
            yield "spread", self.differing / self.pairs
        malformed = [each.info["malformed"] for each in candidates if "malformed" in each.info]
        if malformed:
            yield "malformed", float(np.mean(malformed))


def message_metrics(episodes: Sequence[Episode], key: Callable[[Node], Hashable]) -> dict[str, float]:
    """Flat metrics of ``episodes``, none of them lost, as ``AGENT/NAME`` and ``AGENT/turnT/NAME``; ``key`` is the
    credit rule's, whose advantages the candidates have.

    ``entropy_nats`` is the mean of -log p over the sampled tokens, which on average is the entropy of the distribution
    that was sampled from.  A group has zero variance where all its advantages are equal; groups of one are left out.
    ``spread`` is the share of the pairs of candidates for one prompt that differ in what ``alpha`` weighs.
    """
    places: dict[str, Messages] = defaultdict(Messages)
    advantages: dict[Hashable, list[float]] = defaultdict(list)
    for episode in episodes:
        for node, reach in zip(episode.nodes, episode.reach, strict=True):
            group = key(node)
            advantages[group] += [candidate.advantage or 0.0 for candidate in node.candidates]
            for place in (places[node.agent], places[f"{node.agent}/turn{node.turn}"]):
                place.add(node, group, reach)
    return {f"{place}/{name}": value for place in sorted(places) for name, value in places[place].metrics(advantages)}


def _quantiles(name: str, values: Iterable[float] | np.ndarray, **percent: int) -> Iterator[tuple[str, float]]:
    array = np.asarray(values if isinstance(values, np.ndarray) else list(values), dtype=float)
    for label, value in zip(percent, np.percentile(array, list(percent.values())), strict=True):
        yield f"{name}_{label}", float(value)
