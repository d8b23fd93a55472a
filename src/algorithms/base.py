"""What a credit rule is, and the groups over which a baseline is computed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from ..experience import Candidate, Episode, Node


class CreditError(ValueError):
    """Episodes that a credit rule cannot judge; the message names the episode."""


@dataclass(frozen=True)
class Share:
    """What is compared within a group: a value, and the candidates that bear its advantage."""

    value: float
    candidates: Sequence[Candidate]


class CreditRule(ABC):
    """Sets the advantage of every candidate, on the joint episodes.

    ``topologies`` are the samplers' topologies whose episodes the rule can judge.
    """

    one_prompt_per_group: bool
    topologies: tuple[str, ...]

    @abstractmethod
    def key(self, node: Node) -> Hashable:
        """The group that a node's candidates belong to; the loss is a mean over such groups too."""

    @abstractmethod
    def advantages(self, values: Sequence[float]) -> list[float]:
        """The advantages within one group, from its shares' values."""

    def shares(self, episode: Episode) -> Iterator[tuple[Hashable, Share]]:
        """(Group, share) of an episode; by default each candidate is one, with its own reward."""
        for node, candidate in episode.candidates():
            yield self.key(node), Share(candidate.reward, (candidate,))

    def check(self, k: int, topology: str) -> None:
        """Raise ``ValueError``, naming the key, where the rule makes no sense with such a sampler."""
        name = type(self).__name__
        if topology not in self.topologies:
            raise ValueError(
                f"algorithm.credit: {name} judges episodes of a {' or '.join(self.topologies)} sampler, but "
                f"algorithm.sampler gives {topology}s"
            )
        if k < 2:
            raise ValueError(
                f"algorithm.sampler.k={k}: {name} compares the {k} samples of a group with each other, so K must be at "
                "least 2 (the standard deviation of one reward is undefined)"
            )

    def state_dict(self) -> dict[str, Any]:
        """What the next call depends on besides its episodes, fit for JSON; nothing for most rules."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Undo whatever happened since :meth:`state_dict`.  Raises ``ValueError`` for the state of another rule."""
        if state:
            raise ValueError(f"{type(self).__name__} keeps no state, got {', '.join(state)}")

    def __call__(self, episodes: Sequence[Episode]) -> None:
        """Annotate every candidate of ``episodes``.

        Raises :class:`CreditError` where a group that needs one prompt holds two.
        """
        if self.one_prompt_per_group:
            self._check_prompts(episodes)
        groups: dict[Hashable, list[Share]] = {}
        for episode in episodes:
            for key, share in self.shares(episode):
                groups.setdefault(key, []).append(share)
        for shares in groups.values():
            for share, advantage in zip(shares, self.advantages([share.value for share in shares]), strict=True):
                for candidate in share.candidates:
                    candidate.advantage = advantage

    def _check_prompts(self, episodes: Sequence[Episode]) -> None:
        first: dict[Hashable, Node] = {}
        for episode in episodes:
            for node in episode.nodes:
                key = self.key(node)
                if first.setdefault(key, node).prompt_ids != node.prompt_ids:
                    raise CreditError(
                        f"{type(self).__name__} needs one prompt a group, but the group {key} of task {node.task_id} "
                        "holds nodes with different prompts"
                    )


class GroupRelative(CreditRule):
    """A = (v - mean v) / (std v + ``std_floor``) over a group's values v.

    The standard deviation is the unbiased one; where all values are equal the advantages are 0.  The papers have
    ``std_floor`` 1e-6.  A larger floor keeps small differences in progress from weighing as much as success against
    failure.  ``normalise=false`` leaves the division out.
    """

    def __init__(self, *, normalise: bool = True, std_floor: float = 1e-6) -> None:
        if std_floor < 0:
            raise ValueError(f"algorithm.credit.std_floor must be >= 0, got {std_floor}")
        self.normalise, self.std_floor = normalise, std_floor

    def advantages(self, values: Sequence[float]) -> list[float]:
        if len(set(values)) == 1:
            return [0.0] * len(values)
        mean = fmean(values)
        scale = stdev(values) + self.std_floor if self.normalise else 1.0
        return [(value - mean) / scale for value in values]


def episode_return(episode: Episode) -> float:
    """The return of a chain.  Raises :class:`CreditError` for an episode that is not one."""
    if len(episode.outcomes) != 1 or (found := episode.outcomes[0].mixed_return) is None:
        raise CreditError(f"the episode of task {episode.task.task_id} is no chain: it has no return of its own")
    return found
