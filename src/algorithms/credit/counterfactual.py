"""Marginal credit by removal: what a message adds to the outcome (after SHARP, arXiv 2602.08335; CCPO, 2603.21563)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from ...errors import check_fields
from ...experience import Episode, Node, Weighting
from .base import CreditRule, Share
from .checks import CreditError


@dataclass(kw_only=True, eq=False)
class Counterfactual(CreditRule):
    """A = v - v without the message: the outcome of the episode, less its outcome where the message is removed and the
    rest is played on under the same policies and seeds.

    ``removal`` is the sampler's: the text that takes the message's place, ``""`` for silence; see
    :class:`...rollout.samplers.replay.ReplaySampler`.  v also has the message's own rewards (local, length), unless the
    sampler leaves them out.  What is subtracted does not depend on the message, so that A is unbiased.  It is 0 for a
    message without effect, also where every message has the same one; one candidate per message is enough.
    """

    one_prompt_per_group = True
    topologies = ("replay",)
    min_samples = 1

    removal: str | None
    weight: Weighting = "message"

    def __post_init__(self) -> None:
        check_fields(self, "algorithm.credit.")
        if self.removal is None:
            raise ValueError("algorithm.sampler.removal: Counterfactual needs a text, such as '' for silence, got null")

    def key(self, node: Node) -> Hashable:
        return (node.task_id, node.agent, node.turn)

    def advantages(self, values: Sequence[float]) -> list[float]:
        return list(values)

    def shares(self, episode: Episode) -> Iterator[tuple[Hashable, Share]]:
        for node in episode.nodes:
            if node.removed is None:
                raise CreditError(f"episode {episode.name}: a message of {node.agent} was not removed and played on")
            for candidate in node.candidates:
                yield self.key(node), Share(candidate.reward - node.removed, (candidate,))
