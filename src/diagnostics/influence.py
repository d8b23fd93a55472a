"""The lazy-agent probe: how often the outcome changes where an agent's message is replaced by another of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import combinations
from statistics import fmean

from ..experience import Episode
from ..rollout.samplers.replay import ReplaySampler


class Probe(ReplaySampler):
    at_once = True  # so that it lasts as long as the rollout beside it, not twice as long


PROBE = Probe(k=2, local=False)
"""One episode per task as the policies play it, and at each message one other sample from the same prompt, played on to
the end of an episode with the same seeds."""


def influence(episodes: Sequence[Episode]) -> dict[str, float]:
    """``AGENT/influence``: of the pairs of an agent's candidates for one prompt, in episodes of a replay sampler, the
    share after which the team earned differently; ``AGENT/influence_pairs``, their number; and the probe's
    ``probe_success``, of the episodes themselves.

    Lost episodes are left out; nothing where all are.
    """
    changes: dict[str, list[bool]] = defaultdict(list)
    for episode in episodes:
        for node in episode.nodes:
            pairs = combinations([candidate.team for candidate in node.candidates], 2)
            changes[node.agent] += [one != other for one, other in pairs]
    metrics: dict[str, float] = {}
    for agent, values in sorted(changes.items()):
        metrics |= {f"{agent}/influence": fmean(values), f"{agent}/influence_pairs": len(values)} if values else {}
    successes = [outcome.success for episode in episodes for _, outcome in episode.leaves]
    return metrics | ({"probe_success": fmean(successes)} if metrics else {})


def cost(episodes: Sequence[Episode], name: str) -> dict[str, float]:
    """What ``episodes`` cost that were played beside training, which is in no other metric."""
    completions = [candidate.completion for episode in episodes for _, candidate in episode.candidates()]
    completions += [completion for episode in episodes for _, completion in episode.auxiliary]
    return {
        f"{name}_lost_episodes": sum(episode.failure is not None for episode in episodes),
        f"{name}_completions": len(completions),
        f"{name}_tokens": sum(len(each.token_ids) for each in completions),
        f"{name}_env_steps": sum(episode.env_steps for episode in episodes),
    }
