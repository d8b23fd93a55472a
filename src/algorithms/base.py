"""What a credit rule is, and the groups over which a baseline is computed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from ..experience import Candidate, Episode, Node


class CreditError(ValueError):
    """Episodes that a credit rule cannot judge; the message names the episode."""


class CreditRule(ABC):
    """Sets the advantage of every candidate, on the joint episodes."""

    one_prompt_per_group: bool

    @abstractmethod
    def key(self, node: Node) -> Hashable:
        """The group that a node's candidates belong to."""

    @abstractmethod
    def advantages(self, rewards: Sequence[float]) -> list[float]:
        """The advantages within one group, from its candidates' rewards."""

    @abstractmethod
    def check(self, k: int) -> None:
        """Raise ``ValueError`` where K candidates a node make no sense under this rule."""

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
        for nodes in self.groups(episodes).values():
            if self.one_prompt_per_group and len({node.prompt_ids for node in nodes}) > 1:
                raise CreditError(
                    f"{type(self).__name__} needs one prompt a group, but the group {self.key(nodes[0])} of task "
                    f"{nodes[0].task_id} holds {len(nodes)} nodes with different prompts"
                )
            members: list[Candidate] = [candidate for node in nodes for candidate in node.candidates]
            advantages = self.advantages([candidate.reward for candidate in members])
            for candidate, advantage in zip(members, advantages, strict=True):
                candidate.advantage = advantage

    def groups(self, episodes: Sequence[Episode]) -> dict[Hashable, list[Node]]:
        """The nodes of each group, in the order of the episodes.  Groups never cross episodes of different tasks."""
        found: dict[Hashable, list[Node]] = {}
        for episode in episodes:
            for node in episode.nodes:
                found.setdefault(self.key(node), []).append(node)
        return found
