"""GRPO over whole episodes: of one agent (``grpo``), or of a team (``mas_grpo``)."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from ...experience import Episode, Node
from .base import GroupRelative, Share
from .checks import CreditError


class Grpo(GroupRelative):
    """Outcome-supervised GRPO (DeepSeekMath, arXiv 2402.03300, section 4.1.2): a task's K episodes are one group; each
    of an episode's messages gets the advantage of the episode's return.
    """

    one_prompt_per_group = False
    topologies = ("chain",)

    def key(self, node: Node) -> Hashable:
        return node.task_id

    def shares(self, episode: Episode) -> Iterator[tuple[Hashable, Share]]:
        yield episode.task.task_id, Share(episode_return(episode), [candidate for _, candidate in episode.candidates()])


class MasGrpo(GroupRelative):
    """The team baseline of AT-GRPO's paper (arXiv 2510.11062): all messages of a task's K episodes are one flat group,
    whoever wrote them at whatever turn; a message's value is its episode's return.

    It differs from :class:`Grpo` where episodes differ in length: a longer one weighs more in mean and deviation.
    """

    one_prompt_per_group = False
    topologies = ("chain",)

    def key(self, node: Node) -> Hashable:
        return node.task_id

    def shares(self, episode: Episode) -> Iterator[tuple[Hashable, Share]]:
        value = episode_return(episode)
        for node, candidate in episode.candidates():
            yield self.key(node), Share(value, (candidate,))


def episode_return(episode: Episode) -> float:
    """The return of a chain.  Raises :class:`.checks.CreditError` for an episode that is not one."""
    if len(episode.outcomes) != 1 or (value := episode.outcomes[0].mixed_return) is None:
        raise CreditError(f"the episode of task {episode.task.task_id} is no chain: it has no return of its own")
    return value
