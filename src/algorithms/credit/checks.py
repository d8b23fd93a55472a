"""Checks of credit rules: finite numbers, one prompt per group, settings that make sense."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from math import isfinite

from ...experience import Episode, Node

log = logging.getLogger(__name__)


class CreditError(ValueError):
    """Episodes that a credit rule cannot judge; the message names the episode."""


def check_finite(episodes: Sequence[Episode]) -> None:
    """Raise :class:`CreditError`, naming the episode, where a reward or a log-probability is NaN or infinite."""
    for episode in episodes:
        for outcome in episode.outcomes:
            if not isfinite(outcome.team_return) or not isfinite(outcome.mixed_return or 0.0):
                raise CreditError(
                    f"episode {episode.name}: its return is not finite (team {outcome.team_return}, mixed "
                    f"{outcome.mixed_return})"
                )
        for edge in episode.edges:
            if not isfinite(edge.reward or 0.0):
                agents = ", ".join(edge.members)
                raise CreditError(f"episode {episode.name}: the joint action of {agents} has a reward of {edge.reward}")
        for node in episode.nodes:
            for index, candidate in enumerate(node.candidates):
                values = {"outcome reward": candidate.team, "local reward": candidate.local, "reward": candidate.reward}
                values["log-probability"] = sum(candidate.completion.logprobs)
                for name, value in values.items():
                    if not isfinite(value):
                        raise CreditError(
                            f"episode {episode.name}: candidate {index} of agent '{node.agent}' at turn {node.turn} "
                            f"(policy '{candidate.completion.policy}') has a {name} of {value}"
                        )


def check_one_prompt(rule: str, episodes: Sequence[Episode], key: Callable[[Node], Hashable]) -> None:
    """Raise :class:`CreditError` where a group, which ``key`` names, holds nodes with different prompts."""
    first: dict[Hashable, Node] = {}
    for episode in episodes:
        for node in episode.nodes:
            group = key(node)
            if first.setdefault(group, node).prompt_ids != node.prompt_ids:
                raise CreditError(
                    f"{rule} needs one prompt per group, but the group {group} of task {node.task_id} holds nodes with "
                    "different prompts"
                )


def check_advantages(rule: str, group: Hashable, values: Sequence[float], advantages: object) -> list[float]:
    """``advantages``, as a rule computed them from ``values``: a list of as many finite numbers.

    Raises :class:`CreditError`.
    """
    if not isinstance(advantages, list) or len(advantages) != len(values):
        raise CreditError(
            f"{rule}.advantages must return a list of {len(values)} numbers, one for each value of the group {group}, "
            f"and returned {advantages!r}"
        )
    if not all(map(isfinite, advantages)):
        raise CreditError(f"{rule}.advantages of the values {values} of the group {group}: {advantages}")
    return advantages


def check_baseline(baseline: str, normalise: bool) -> None:
    """Raise ``ValueError``, naming the key, for settings without sense; warn where two settings come to the same."""
    if normalise and baseline == "none":
        raise ValueError(
            "algorithm.credit.normalise=true with baseline=none: a group of nearly equal values would have advantages "
            "without bound, since nothing is subtracted before the division; give normalise=false"
        )
    if normalise and baseline == "leave_one_out":
        log.warning(
            "algorithm.credit.normalise=true cancels what baseline=leave_one_out differs in: its advantages are "
            "K / (K - 1) times those of baseline=mean, a constant"
        )
