"""What a credit rule is, and the groups over which a baseline is computed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, get_args

from ...experience import Candidate, Episode, Node, Topology
from .baselines import Baseline, check_baseline, compared


class CreditError(ValueError):
    """Episodes that a credit rule cannot judge; the message names the episode."""


@dataclass(frozen=True)
class Share:
    """What is compared within a group: a value, and the candidates that bear its advantage times ``weight``."""

    value: float
    candidates: Sequence[Candidate]
    weight: float = 1.0


class CreditRule(ABC):
    """Sets the advantage of every candidate, on the joint episodes: the sum of what its shares' groups give it.

    ``topologies`` are the samplers' topologies whose episodes the rule can judge; ``least`` is the fewest samples that
    its groups must be meant to hold.  A rule declares both ``one_prompt_per_group`` and ``topologies``.
    """

    one_prompt_per_group: bool
    topologies: tuple[str, ...]
    least: int = 2

    @abstractmethod
    def key(self, node: Node) -> Hashable:
        """The group that a node's candidates belong to; the loss is a mean over such groups too."""

    @abstractmethod
    def advantages(self, values: Sequence[float]) -> list[float]:
        """The advantages within one group, from its shares' values: as many, and two at least where ``least`` is."""

    def shares(self, episode: Episode) -> Iterator[tuple[Hashable, Share]]:
        """(Group, share) of an episode; by default each candidate is one, with its own reward."""
        for node, candidate in episode.candidates():
            yield self.key(node), Share(candidate.reward, (candidate,))

    def check(self, k: int, topology: str) -> None:
        """Raise ``ValueError``, naming the key, where the rule makes no sense with such a sampler."""
        name = type(self).__name__
        declared = getattr(self, "topologies", None)
        if not isinstance(declared, tuple) or not declared or not set(declared) <= set(get_args(Topology)):
            some = f"a tuple of some of {', '.join(get_args(Topology))}"
            raise ValueError(f"algorithm.credit: {name}.topologies must be {some}, got {declared!r}")
        if not isinstance(getattr(self, "one_prompt_per_group", None), bool):
            raise ValueError(f"algorithm.credit: {name}.one_prompt_per_group must be declared: True or False")
        if topology not in self.topologies:
            raise ValueError(
                f"algorithm.credit: {name} judges episodes of a {' or '.join(self.topologies)} sampler, but "
                f"algorithm.sampler gives {topology}s"
            )
        if k < self.least:
            raise ValueError(
                f"algorithm.sampler.k={k}: {name} compares the {k} samples of a group with each other, so K must be at "
                f"least {self.least}"
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

        A group that lost candidates (to a failure of engine or world) is judged by those that are left; one that is
        left alone has nothing to be compared with, and advantage 0 unless ``least`` is 1.

        Raises :class:`CreditError` where a group that needs one prompt holds two, where a reward or a log-probability
        is not a finite number, and where the rule does not give a finite advantage for each value of a group.
        """
        check_finite(episodes)
        if self.one_prompt_per_group:
            self._check_prompts(episodes)
        groups: dict[Hashable, list[Share]] = {}
        for episode in episodes:
            for _, candidate in episode.candidates():
                candidate.advantage = None
            for key, share in self.shares(episode):
                groups.setdefault(key, []).append(share)
        for key, shares in groups.items():
            for share, advantage in zip(shares, self._judged(key, [share.value for share in shares]), strict=True):
                for candidate in share.candidates:
                    candidate.advantage = (candidate.advantage or 0.0) + share.weight * advantage

    def live(self, episodes: Sequence[Episode]) -> set[str]:
        """The tasks (``task_id``) with at least one group that has an advantage; the others have nothing to teach."""
        check_finite(episodes)
        values: dict[Hashable, list[float]] = {}
        tasks: dict[Hashable, set[str]] = {}
        for episode in episodes:
            for key, share in self.shares(episode):
                values.setdefault(key, []).append(share.value)
                tasks.setdefault(key, set()).add(episode.task.task_id)
        return {task for key, found in values.items() if any(self._judged(key, found)) for task in tasks[key]}

    def _judged(self, key: Hashable, values: Sequence[float]) -> list[float]:
        """The advantages of the group ``key``, checked."""
        if len(values) < min(self.least, 2):
            return [0.0] * len(values)
        found, name = self.advantages(values), type(self).__name__
        if not isinstance(found, list) or len(found) != len(values):
            raise CreditError(
                f"{name}.advantages must give a list of {len(values)} numbers, one for each value of the group {key}, "
                f"and gave {found!r}"
            )
        if not all(map(isfinite, found)):
            raise CreditError(f"{name}.advantages of the values {values} of the group {key}: {found}")
        return found

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
                who = ", ".join(edge.members)
                raise CreditError(f"episode {episode.name}: the joint action of {who} has a reward of {edge.reward}")
        for node in episode.nodes:
            for index, candidate in enumerate(node.candidates):
                found = {"team reward": candidate.team, "local reward": candidate.local, "reward": candidate.reward}
                found["log-probability"] = sum(candidate.completion.logprobs)
                for what, value in found.items():
                    if not isfinite(value):
                        raise CreditError(
                            f"episode {episode.name}: candidate {index} of agent '{node.agent}' at turn {node.turn} "
                            f"(policy '{candidate.completion.policy}') has a {what} of {value}"
                        )


class GroupRelative(CreditRule):
    """A = (v - b) / (std v + ``std_floor``) over a group's values v; by default b is their mean.

    ``baseline`` chooses b, see :mod:`.baselines`.  The standard deviation is the unbiased one; where all values are
    equal the advantages are 0.  The papers have ``std_floor`` 1e-6.  A larger floor keeps small differences in progress
    from weighing as much as success against failure.  ``normalise=false`` leaves the division out.
    """

    def __init__(self, *, baseline: Baseline = "mean", normalise: bool = True, std_floor: float = 1e-6) -> None:
        check_baseline(baseline, normalise, std_floor)
        self.baseline, self.normalise, self.std_floor = baseline, normalise, std_floor
        if baseline == "none":
            self.least = 1

    def advantages(self, values: Sequence[float]) -> list[float]:
        return compared(values, self.baseline, self.normalise, self.std_floor)


def episode_return(episode: Episode) -> float:
    """The return of a chain.  Raises :class:`CreditError` for an episode that is not one."""
    if len(episode.outcomes) != 1 or (found := episode.outcomes[0].mixed_return) is None:
        raise CreditError(f"the episode of task {episode.task.task_id} is no chain: it has no return of its own")
    return found
