"""The episodes that diagnostics add to an iteration, played beside its rollout; nothing is learnt from them.

Those of the lazy-agent probe: how often the outcome changes where an agent's message is replaced by another of its own.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from statistics import fmean

from ..envs.base import TeamEnv
from ..experience import Episode, Task
from ..models.pools.team import Team
from ..rollout.samplers.replay import ReplaySampler
from ..rollout.samplers.sampler import Sampler
from ..runs.faults import FaultSettings

Playing = asyncio.Task[list[list[Episode]]]


@dataclass(frozen=True, eq=False)
class Extra:
    """Episodes of ``tasks`` by ``sampler``, with seeds of their own."""

    world: TeamEnv
    sampler: Sampler
    tasks: Sequence[Task]
    seed: int


class ExtraEpisodes:
    """Plays the extras of iterations, by name, shared among the processes.

    ``beside``: those that are begun with a rollout are played while it is, in its engines' batches.  Otherwise nothing
    begins before its end is asked for.  Lockstep needs that: the rows of a batch change the last bits of each other's
    logits, and what is learnt must not depend on what is measured.
    """

    def __init__(self, team: Team, faults: FaultSettings, *, beside: bool) -> None:
        self.team, self.faults, self.beside = team, faults, beside
        self._begun: dict[int, dict[str, tuple[Extra, Playing]]] = {}

    def begin(self, iteration: int, extras: Mapping[str, Extra]) -> None:
        """Begin the ``extras`` of ``iteration``, of which this process plays its own tasks."""
        if self.beside:
            begun = self._begun[iteration] = {}
            for name, extra in extras.items():
                playing = self._play(extra, None, self.team.ranks.own(extra.tasks))
                begun[name] = extra, asyncio.create_task(playing, name=f"{name} episodes")

    async def end(self, iteration: int, extras: Mapping[str, Extra]) -> dict[str, list[Episode]]:
        """The episodes of ``iteration``, by name: of those that were begun, or else of ``extras``.

        The processes exchange them here, after the rollout's: all of them must exchange in one order.  Raises the
        exception of a fault that is not to be dropped.
        """
        begun, played = self._begun.get(iteration, {}), dict[str, list[Episode]]()
        for name, given in extras.items():
            extra, under_way = begun.get(name, (given, None))
            by_task = await self.team.ranks.share(extra.tasks, partial(self._play, extra, under_way))
            played[name] = [episode for episodes in by_task for episode in episodes]
        self._begun.pop(iteration, None)
        return played

    async def _play(self, extra: Extra, under_way: Playing | None, tasks: Sequence[Task]) -> list[list[Episode]]:
        if under_way is not None:
            return await under_way

        def ended(episode: Episode) -> None:
            if episode.failure is not None:
                self.faults.raise_if_stopping(episode.failure)

        return await extra.sampler.collect(extra.world, tasks, self.team.training, extra.seed, ended)

    async def stop(self) -> None:
        """Let all that is under way end.  May be called twice."""
        tasks = [task for extras in self._begun.values() for _, task in extras.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._begun = {}


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
