"""The training trees of an iteration: which are kept, and what is measured of them before and after its update."""

from __future__ import annotations

import time
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from ..algorithms.credit.base import CreditRule
from ..envs.base import TeamEnv
from ..experience import Episode, Task
from ..faults import FaultSettings
from ..models.ranks import Ranks
from ..models.team import Team, scored_samples
from ..rollout.samplers.base import Sampler
from ..rollout.seeds import derive
from .pictures import pictures
from .settings import TreeSettings
from .tree_records import Scores, TrainingTree, baselines, tree_record


class TreeKeeper:
    """Keeps the trees of some tasks.  It changes no weight: what it plays has seeds of its own, is judged by a copy of
    the credit rule, and is never learnt from; what it scores is scored without random draws.
    """

    def __init__(self, settings: TreeSettings, team: Team, ranks: Ranks) -> None:
        self.settings, self.team, self.ranks = settings, team, ranks
        self.policies = {agent: client.policy for agent, client in team.training.items()}
        self.tokenizers = {each.policy: each.tokenizer for each in team.training.values()}
        self.seconds = 0.0
        """What the trees of this iteration took, beside the episodes that :meth:`watch` plays."""

    async def watch(
        self, world: TeamEnv, sampler: Sampler, tasks: Sequence[Task], seed: int, faults: FaultSettings
    ) -> list[Episode]:
        """Episodes of the watched ``tasks`` by the run's own sampler; ``seed`` is the iteration's.  Raises the
        exception of a fault that ``faults`` does not drop.
        """

        def ended(episode: Episode) -> None:
            if episode.failure is not None:
                faults.raise_if_stopping(episode.failure)

        async def play(mine: Sequence[Task]) -> list[list[Episode]]:
            return await sampler.collect(world, mine, self.team.training, derive(seed, "watched"), ended)

        return [episode for episodes in await self.ranks.share(tasks, play) for episode in episodes]

    async def choose(
        self, world: TeamEnv, complete: Sequence[Episode], watched: Sequence[Episode], credit: CreditRule
    ) -> list[TrainingTree]:
        """The trees of the iteration's first tasks, of ``complete`` episodes with credit, and of the ``watched`` ones,
        which get theirs here; with pictures, and with the learner's log-probabilities before the update.
        """
        start = time.perf_counter()
        if watched:
            await self.team.critics.evaluate(watched, self.ranks)
            if credit.kl:
                await self.team.score_reference(watched, self.ranks)
            deepcopy(credit)(watched)
        first = list(dict.fromkeys(episode.task.task_id for episode in complete))[: self.settings.tasks]
        means = baselines(credit, complete) | baselines(credit, watched)
        kept = [(each, False) for each in complete if each.task.task_id in first] + [(each, True) for each in watched]
        trees = [TrainingTree(episode, is_watched, baselines=means) for episode, is_watched in kept]
        if self.settings.pictures and self.ranks.first:
            for tree in trees:
                tree.pictures = await pictures(world, tree.episode.task, tree.episode)
        before = await self._scores(trees)
        for tree in trees:
            tree.before = before
        self.seconds = time.perf_counter() - start
        return trees

    async def records(self, trees: Sequence[TrainingTree], iteration: int) -> list[dict[str, Any]]:
        """The lines of a file, after the update that followed ``iteration`` iterations."""
        start, after = time.perf_counter(), await self._scores(trees)
        for tree in trees:
            tree.after = after
        records = [tree_record(tree, iteration, self.policies, self.tokenizers) for tree in trees]
        self.seconds += time.perf_counter() - start
        return records

    async def _scores(self, trees: Sequence[TrainingTree]) -> Scores:
        """The log-probabilities of all tokens under the present weights of the policies that learn, in all processes
        alike; of one whose weights are shared among processes, each must take part.
        """
        if not self.settings.ratios:
            return {}
        by_policy = scored_samples(tree.episode for tree in trees)
        scores: Scores = {}
        for name, policy in self.team.policies.items():
            if pairs := by_policy.get(name, []):
                values = await policy.logprobs([sample for _, sample in pairs])
                scores |= {id(candidate): value for (candidate, _), value in zip(pairs, values, strict=True)}
        return scores
