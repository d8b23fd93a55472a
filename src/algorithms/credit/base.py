"""Credit rules: groups of values, and an advantage for each value.  Group-relative advantages, those normalised over an
iteration, and the steps of a chain.

To read AT-GRPO's: :class:`.at_grpo.AtGrpo` is a :class:`GroupRelative` whose groups are the K candidates of one (task,
agent, turn), and whose values are their rewards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from statistics import fmean, stdev
from typing import Any, Literal, get_args

from ...errors import NotNegative, check_fields
from ...experience import Candidate, Episode, Node, Topology, Weighting
from .checks import check_advantages, check_baseline, check_finite, check_one_prompt

Baseline = Literal["mean", "leave_one_out", "max", "none"]


@dataclass(frozen=True)
class Share:
    """One value of a group, and the candidates to each of which its advantage, times ``weight``, is added."""

    value: float
    candidates: Sequence[Candidate]
    weight: float = 1.0


class CreditRule(ABC):
    """Sets the advantage of every candidate, on the joint episodes: the sum over its shares.

    ``topologies`` are the samplers' topologies whose episodes the rule can judge; ``min_samples`` is the smallest group
    that makes sense.  A rule declares both ``one_prompt_per_group`` and ``topologies``.

    ``weight`` says how much a message counts in the loss: ``message``, 1 over the messages of its group, or
    ``episode``, 1 / (tasks * K); see :meth:`...routing.Router.route`.  A rule with ``kl`` > 0 takes a penalty on the
    divergence from the reference off the reward, and needs every candidate's ``reference_logprobs``.
    """

    one_prompt_per_group: bool
    topologies: tuple[str, ...]
    min_samples: int = 2
    weight: Weighting = "message"
    kl: float = 0.0

    @abstractmethod
    def key(self, node: Node) -> Hashable:
        """The group that a node's candidates belong to; with ``weight=message`` the loss is a mean over groups, too."""

    @abstractmethod
    def advantages(self, values: Sequence[float]) -> list[float]:
        """The advantages within one group, from its shares' values: as many, and at least two where ``min_samples`` is
        2 or more.
        """

    def shares(self, episode: Episode) -> Iterator[tuple[Hashable, Share]]:
        """(Group, share) of an episode; by default each candidate is one, with its own reward."""
        for node, candidate in episode.candidates():
            yield self.key(node), Share(candidate.reward, (candidate,))

    def __call__(self, episodes: Sequence[Episode]) -> None:
        """Set the advantage of every candidate of ``episodes``.

        The candidate of a group of one has nothing to be compared with, and advantage 0 unless ``min_samples`` is 1.

        Raises :class:`.checks.CreditError` where a group that needs one prompt holds two, where a reward or a
        log-probability is not a finite number, and where the rule does not give a finite advantage for each value of a
        group.
        """
        check_finite(episodes)
        if self.one_prompt_per_group:
            check_one_prompt(type(self).__name__, episodes, self.key)
        groups: dict[Hashable, list[Share]] = {}
        for episode in episodes:
            for _, candidate in episode.candidates():
                candidate.advantage = None
            for key, share in self.shares(episode):
                groups.setdefault(key, []).append(share)
        for key, shares in groups.items():
            advantages = self._checked_advantages(key, [share.value for share in shares])
            for share, advantage in zip(shares, advantages, strict=True):
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
        live = [tasks[key] for key, group in values.items() if any(self._checked_advantages(key, group))]
        return set().union(*live)

    def _checked_advantages(self, key: Hashable, values: Sequence[float]) -> list[float]:
        """The advantages of the group ``key``, one finite number for each value."""
        if len(values) < min(self.min_samples, 2):
            return [0.0] * len(values)
        return check_advantages(type(self).__name__, key, values, self.advantages(values))

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
        if k < self.min_samples:
            raise ValueError(
                f"algorithm.sampler.k={k}: {name} compares the {k} samples of a group with each other, so K must be at "
                f"least {self.min_samples}"
            )

    def state_dict(self) -> dict[str, Any]:
        """What the next call depends on besides its episodes, fit for JSON; nothing for most rules."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that :meth:`state_dict` returned.  Raises ``ValueError`` for the state of another rule."""
        if state:
            raise ValueError(f"{type(self).__name__} has no state, got {', '.join(state)}")


@dataclass(kw_only=True, eq=False)
class GroupRelative(CreditRule):
    """A = (v - b) / (std v + ``std_floor``) over a group's values v; by default b is their mean.

    ``baseline`` chooses b, see :func:`group_advantages`.  The standard deviation is the unbiased one; where all values
    are equal the advantages are 0.  The papers have ``std_floor`` 1e-6.  A larger floor keeps small differences in
    progress from weighing as much as success against failure.  ``normalise=false`` leaves the division out.
    """

    baseline: Baseline = "mean"
    normalise: bool = True
    std_floor: NotNegative = 1e-6
    weight: Weighting = "message"

    def __post_init__(self) -> None:
        check_fields(self, "algorithm.credit.")
        check_baseline(self.baseline, self.normalise)
        if self.baseline == "none":
            self.min_samples = 1

    def advantages(self, values: Sequence[float]) -> list[float]:
        return group_advantages(values, self.baseline, self.normalise, self.std_floor)


def group_advantages(values: Sequence[float], baseline: Baseline, normalise: bool, std_floor: float) -> list[float]:
    """The advantages within one group: each value minus its baseline, over the unbiased std + ``std_floor`` if
    ``normalise``.  Under every baseline but ``none`` they are exactly 0 where all values are equal, but for
    rounding.

    =================  ===============================================================================================
    ``mean``           v - mean(v): GRPO (DeepSeekMath, arXiv 2402.03300, section 4.1.2), without division Dr. GRPO
                       (arXiv 2503.20783, equation 1) and MAGRPO (arXiv 2508.04652, section 4)
    ``leave_one_out``  v_i - mean of the others: RLOO (arXiv 2402.14740, section 3), MARLOO; K / (K - 1) times ``mean``
    ``max``            v - max(v): MAReMax (CoMLRL), after ReMax (arXiv 2310.10505), whose baseline is the greedy
                       answer's reward; no advantage is above 0
    ``none``           v: REINFORCE, MAREINFORCE
    =================  ===============================================================================================
    """
    if baseline == "none":
        return list(values)
    # Sums that are equal may differ in their last bits, which a small std would make a whole advantage.
    if max(values) - min(values) <= 1e-12 * max(1.0, *map(abs, values)):
        return [0.0] * len(values)
    reference = max(values) if baseline == "max" else fmean(values)
    scale = group_scale(values, baseline, normalise, std_floor)
    return [(value - reference) / scale for value in values]


def group_scale(values: Sequence[float], baseline: Baseline, normalise: bool, std_floor: float) -> float:
    """What a value less the group's mean (of ``max``: less its maximum) is divided by; of two values at least."""
    scale = stdev(values) + std_floor if normalise else 1.0
    return scale * (len(values) - 1) / len(values) if baseline == "leave_one_out" else scale


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


def nodes_by_step(episode: Episode) -> list[list[Node]]:
    """The nodes of each step of a chain: of the agents that act at once."""
    return [[episode.nodes[node] for node, _ in edge.members.values()] for edge in episode.edges]


def turn_ends(steps: Sequence[Sequence[Node]]) -> list[bool]:
    """Whether each of a chain's ``steps``, which are not empty, ends its turn: the last one, and those after which the
    turn is higher.  An episode's return has the team rewards of these steps.

    A lower turn does not end one: in a workflow the turn is the number of the agent's earlier calls, which falls where
    the next agent has called less.
    """
    turns = [nodes[0].turn for nodes in steps]
    return [*(later > turn for turn, later in pairwise(turns)), True]
