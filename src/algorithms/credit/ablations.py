"""One credit rule with the group and the value as keys: the ablations of AT-GRPO (arXiv 2510.11062)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from ...experience import Candidate, Episode, Node
from .base import GroupRelative, Share
from .grpo import episode_return
from .tree_grpo import candidates_of, leaves

MessageValue = Literal["reward", "episode", "outcome"]
TOPOLOGIES = {"reward": ("tree", "chain", "replay"), "episode": ("chain",), "outcome": ("forest",)}


@dataclass(kw_only=True, eq=False)
class KeyedGroups(GroupRelative):
    """Group-relative advantages over the messages of a task, grouped by some of ``agent`` and ``turn``.

    ``by=[agent]``: an agent's messages of all turns are one group; ``by=[turn]``: a turn's messages of all agents;
    ``by=[]``: all messages of the team.  Messages of one group may answer different prompts, and their baseline then
    depends on how hard the prompts were; ``by=[agent, turn]`` on trees is AT-GRPO, with one prompt per group.

    ``value`` of a message: its own ``reward``, as the sampler judges it (trees, chains, replays); the return of its
    ``episode`` (chains; with ``by=[]`` this is MAS-GRPO, with ``by=[agent]`` Dr.MAS); or its ``outcome``, the mean
    team return of the episodes that go through it (forests), in which no message is judged before the end.
    """

    one_prompt_per_group = False

    by: Sequence[str]
    value: MessageValue = "reward"

    def __post_init__(self) -> None:
        super().__post_init__()
        if unknown := [name for name in self.by if name not in ("agent", "turn")]:
            raise ValueError(f"algorithm.credit.by may hold agent and turn, got {', '.join(map(str, unknown))}")
        self.topologies = TOPOLOGIES[self.value]

    def key(self, node: Node) -> Hashable:
        return (node.task_id, *(getattr(node, name) for name in self.by))

    def shares(self, episode: Episode) -> Iterator[tuple[Hashable, Share]]:
        if self.value == "reward":
            yield from super().shares(episode)
            return
        outcomes = _outcomes(episode) if self.value == "outcome" else {}
        for node, candidate in episode.candidates():
            value = fmean(outcomes[candidate]) if outcomes else episode_return(episode)
            yield self.key(node), Share(value, (candidate,))


def _outcomes(episode: Episode) -> dict[Candidate, list[float]]:
    """The team returns of the leaves below each candidate."""
    outcomes: dict[Candidate, list[float]] = {}
    for _, path, outcome in leaves(episode):
        below: list[Candidate] = candidates_of(episode, path)
        for candidate in below:
            outcomes.setdefault(candidate, []).append(outcome.team_return)
    return outcomes
