"""The critics of a run: from episodes to values, and from returns to their updates."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from statistics import fmean, pvariance

from ...algorithms.credit.actor_critic import ActorCritic, CriticInput
from ...experience import Episode, Node
from ..learning.critic import ValueSample
from ..learning.ranks import Ranks
from .handles import CriticHandle


@dataclass(frozen=True)
class Critics:
    """The critics by name, and the credit rule whose values they estimate; None where the run's rule needs none.

    A node whose critic is not among them (of a policy that does not learn) has the value 0.  Of an input longer than
    a critic's context, the first tokens are left out.
    """

    rule: ActorCritic | None = None
    by_name: Mapping[str, CriticHandle] = field(default_factory=dict)

    async def evaluate(self, episodes: Sequence[Episode], ranks: Ranks) -> None:
        """Set the value of every node, the same in all processes."""
        nodes = self._nodes(episodes)
        for node, _ in nodes:
            node.value = 0.0
        for name, critic in self.by_name.items():
            own = [(node, each.token_ids[-critic.context :]) for node, each in nodes if each.critic == name]

            async def estimate(inputs: Sequence[tuple[int, ...]], critic: CriticHandle = critic) -> list[float]:
                return await asyncio.to_thread(critic.evaluate, inputs)

            distinct = list(dict.fromkeys(token_ids for _, token_ids in own))
            values = dict(zip(distinct, await ranks.share(distinct, estimate), strict=True))
            for node, token_ids in own:
                node.value = values[token_ids]

    async def update(self, episodes: Sequence[Episode]) -> dict[str, dict[str, float]]:
        """One update of each critic that has judged a node of ``episodes``; its metrics by name.

        ``value_loss`` (mean squared error) and ``explained_variance`` (1 - that of the error over that of the returns;
        0 where all returns are equal) are those of the values that the credit rule had, before the update.
        """
        nodes, metrics = self._nodes(episodes), {}
        for name, critic in self.by_name.items():
            if own := [(node, each.token_ids) for node, each in nodes if each.critic == name]:
                fitted = await asyncio.to_thread(critic.update, _samples(own, critic.context))
                cut = fmean(len(token_ids) > critic.context for _, token_ids in own)
                metrics[name] = {**_fit([node for node, _ in own]), "cut_inputs": cut, **fitted}
        return metrics

    async def close(self) -> None:
        """End what critics have started, each of them whatever fails."""
        async with AsyncExitStack() as closing:
            for critic in self.by_name.values():
                closing.push_async_callback(critic.close)

    def _nodes(self, episodes: Sequence[Episode]) -> list[tuple[Node, CriticInput]]:
        if self.rule is None:
            return []
        return [pair for each in episodes for pair in zip(each.nodes, self.rule.inputs(each), strict=True)]


def _samples(own: Sequence[tuple[Node, tuple[int, ...]]], context: int) -> list[ValueSample]:
    returns: dict[tuple[int, ...], list[float]] = {}
    for node, token_ids in own:
        returns.setdefault(token_ids[-context:], []).append(_return(node))
    return [ValueSample(token_ids, fmean(values), len(values)) for token_ids, values in returns.items()]


def _fit(nodes: Sequence[Node]) -> dict[str, float]:
    values, returns = [node.value or 0.0 for node in nodes], [_return(node) for node in nodes]
    errors = [r - v for r, v in zip(returns, values, strict=True)]
    variance = pvariance(returns)
    return {
        "value_loss": fmean(error * error for error in errors),
        "explained_variance": 1 - pvariance(errors) / variance if variance else 0.0,
        "value": fmean(values),
        "return": fmean(returns),
    }


def _return(node: Node) -> float:
    assert node.return_to_go is not None, "the credit rule sets it"
    return node.return_to_go
