"""The team of a run: its policies, where they learn, and the engines that sample from them."""

from __future__ import annotations

import asyncio
import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from ...cluster.actors import StoredWeights
from ...experience import Candidate, Episode, Sample
from ...rollout.engines.base import Engine, Remembering, Stateful, drain_counters, largest
from ...rollout.engines.plain_pass import BFLOAT16_ROUNDING, ROUNDING
from ...rollout.policy_client import PolicyClient
from ..bases.loading import checkpoint_weights
from ..learning.learner import Groups
from ..learning.ranks import Ranks
from ..learning.settings import Schedule
from .critics import Critics
from .handles import PolicyHandle, PoolHandle


@dataclass
class Team:
    """Engines and tokenizers by policy, and each agent's client in training and in evaluation.

    ``policies`` are those that learn; ``schedules`` says in which iterations, where it is not all of them.
    ``critics`` estimate values for the credit rule; none where it needs none.  ``coarseness``: of policies that learn
    in other numbers than float32's, see :attr:`.strategies.StrategySettings.coarseness`.
    """

    policies: Mapping[str, PolicyHandle]
    engines: Mapping[str, Engine]
    tokenizers: Mapping[str, PreTrainedTokenizerBase]
    training: Mapping[str, PolicyClient]
    evaluation: Mapping[str, PolicyClient]
    schedules: Mapping[str, Schedule] = field(default_factory=dict)
    critics: Critics = field(default_factory=Critics)
    ranks: Ranks = field(default_factory=Ranks)
    coarseness: Mapping[str, float] = field(default_factory=dict)
    _rounding: dict[str, float] = field(default_factory=dict, init=False)  # nats: of engine or learner, the larger

    @property
    def sharded(self) -> bool:
        """Whether each process has a part of the policies alone, so that all of them write a checkpoint."""
        return any(policy.sharded for policy in self.policies.values())

    def versions(self) -> dict[str, int]:
        """By policy that learns, how many updates it has had."""
        return {name: policy.version for name, policy in self.policies.items()}

    def learners(self, iteration: int) -> list[str]:
        """The policies that learn after ``iteration`` iterations."""
        return [name for name in self.policies if name not in self.schedules or self.schedules[name].learns(iteration)]

    async def update(
        self, batches: Mapping[str, Groups], iteration: int, *, in_order: bool, by_agent: bool = False
    ) -> dict[str, dict[str, float]]:
        """One update of every policy that learns after ``iteration`` iterations and has samples in ``batches`` (its
        groups, by policy); returns their metrics.

        Pools update side by side, or ``in_order``, where several processes must communicate in the same order; the
        policies of one pool one after another, as configured.  ``by_agent``: see
        :meth:`..learning.learner.Learner.update`.
        """
        by_pool: dict[PoolHandle, dict[str, Groups]] = {}
        for name in self.learners(iteration):
            if batches[name]:
                by_pool.setdefault(self.policies[name].pool, {})[name] = batches[name]
        updates = [pool.update(groups, by_agent) for pool, groups in by_pool.items()]
        results = [await update for update in updates] if in_order else await asyncio.gather(*updates)
        return self._with_roundings({name: metrics for result in results for name, metrics in result.items()})

    def _with_roundings(self, updates: dict[str, dict[str, float]]) -> dict[str, dict[str, float]]:
        """``updates``, with ``mismatch/AGENT/roundings`` of each agent: by how many times the rounding of its policy's
        model engine and learner are apart, both as root mean squares (k3 is about half a mean square).

        Not of engines that tell no rounding, as those of servers and scripts.
        """
        for agent, client in self.training.items():
            metrics, rounding = updates.get(client.policy, {}), self._rounding.get(client.policy, 0.0)
            if rounding and (k3 := metrics.get(f"mismatch/{agent}/k3_nats")) is not None:
                apart = math.sqrt(2 * max(k3, 0.0)) * client.sampling.temperature  # which divides logits
                metrics[f"mismatch/{agent}/roundings"] = apart / rounding
        return updates

    async def score_reference(self, episodes: Sequence[Episode]) -> None:
        """Set every candidate's log-probabilities under the reference, the same in all processes.

        The reference of a policy is its weights at the run's start; of one that does not learn, itself.
        """
        for _, candidate in (pair for episode in episodes for pair in episode.candidates()):
            candidate.reference_logprobs = candidate.completion.logprobs
        by_policy = scored_samples(episodes)
        for name, policy in self.policies.items():
            pairs = by_policy.get(name, [])
            scores = await self.ranks.share([sample for _, sample in pairs], policy.reference_logprobs)
            for (candidate, _), logprobs in zip(pairs, scores, strict=True):
                candidate.reference_logprobs = logprobs

    async def load_weights(self, *, copies: bool = False) -> dict[str, float]:
        """Load the weights of every policy that learns into its engine, and wake engines that sleep; returns the
        engines' metrics of it, each at its largest.

        ``copies``: for engines that go on while the policies learn.  An engine that keeps what it is given, to give it
        to the next process where one dies, would otherwise keep the learner's own tensors.
        """
        loads = []
        for name, policy in self.policies.items():
            weights = await policy.weights()
            if copies and not isinstance(weights, StoredWeights):  # which nobody changes
                weights = copy.deepcopy(dict(weights))  # tied ones stay so
            loads.append(await self._load(name, weights))
        return largest([*loads, *[await engine.wake() for engine in self.distinct_engines()]])

    async def load_checkpoint(self, folder: Path) -> None:
        """Load the weights of a checkpoint into the engines; the pools keep theirs."""
        for name in self.policies:
            await self._load(name, checkpoint_weights(folder / name))

    async def _load(self, name: str, weights: Mapping[str, Tensor]) -> Mapping[str, float]:
        metrics = await self.engines[name].load(name, weights, self.policies[name].version)
        coarse = self.coarseness.get(name, 0.0) * metrics.get(BFLOAT16_ROUNDING, 0.0)
        self._rounding[name] = max(metrics.get(ROUNDING, 0.0), coarse)
        return metrics

    async def sleep(self) -> None:
        """Let engines release what they can while policies learn; :meth:`load_weights` wakes them."""
        for engine in self.distinct_engines():
            await engine.sleep()

    async def forget(self) -> None:
        """Let engines drop what they keep of earlier prompts.  An iteration begins so, and an evaluation: a run that
        begins there, from a checkpoint, has none either.
        """
        for engine in self.distinct_engines():
            if isinstance(engine, Remembering):
                await engine.forget()

    async def close(self) -> None:
        """Close the engines, then the pools and the critics, each of them whatever fails."""
        async with AsyncExitStack() as closing:
            closing.push_async_callback(self.critics.close)
            for pool in dict.fromkeys(policy.pool for policy in self.policies.values()):
                closing.push_async_callback(pool.close)
            for engine in self.distinct_engines():
                closing.push_async_callback(engine.close)

    def drain_engine_counters(self) -> dict[str, float]:
        """What the engines of this process have counted since the last call, by metric."""
        return drain_counters(self.distinct_engines())

    def drain_all_counters(self) -> dict[str, float]:
        """The sums of what the engines of all processes have counted since the last call, by metric."""
        counts = self.ranks.from_all(self.drain_engine_counters())
        return {key: sum(count[key] for count in counts) for key in counts[0]}

    def engine_states(self) -> dict[str, dict[str, Any]]:
        """By policy, the state of its engine, where that has one; plain data for JSON."""
        return {name: engine.state_dict() for name, engine in self.engines.items() if isinstance(engine, Stateful)}

    def load_engine_states(self, states: Mapping[str, Mapping[str, Any]]) -> None:
        """Restore what :meth:`engine_states` returned."""
        for name, engine in self.engines.items():
            if isinstance(engine, Stateful) and name in states:
                engine.load_state_dict(states[name])

    def distinct_engines(self) -> list[Engine]:
        """Each engine once: several policies may share one."""
        return list(dict.fromkeys(self.engines.values()))


def scored_samples(episodes: Iterable[Episode]) -> dict[str, list[tuple[Candidate, Sample]]]:
    """By policy, the candidates of ``episodes``, each with the sample whose tokens a learner scores, at the temperature
    of its agent; those without tokens, of servers and scripts, are left out.
    """
    by_policy: dict[str, list[tuple[Candidate, Sample]]] = {}
    for node, candidate in (pair for episode in episodes for pair in episode.candidates()):
        spoken = candidate.completion
        if not spoken.text_only:
            sample = Sample(spoken.policy, node.prompt_ids, spoken.token_ids, spoken.logprobs, 0.0, 0.0, node.agent)
            by_policy.setdefault(spoken.policy, []).append((candidate, sample))
    return by_policy
