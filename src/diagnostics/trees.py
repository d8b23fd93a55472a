"""The training trees of an iteration: which are kept, and what is measured of them before and after its update."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import nullcontext
from copy import deepcopy

from ..algorithms.credit.base import CreditRule
from ..envs.base import TeamEnv
from ..experience import Episode
from ..models.pools.team import Team, scored_samples
from ..runs.metrics import timed
from ..runs.output import RunOutput
from ..runs.tables import candidate_table
from .pictures import pictures
from .settings import TreeSettings
from .tree_records import Scores, TrainingTree, baselines, tree_record


class TreeKeeper:
    """Keeps the trees of some tasks.  It changes no weight: what it plays has seeds of its own, is judged by a copy of
    the credit rule, and is never learnt from; what it scores is scored without random draws.
    """

    def __init__(self, settings: TreeSettings, team: Team, output: RunOutput, *, beside: bool) -> None:
        self.settings, self.team, self.output, self.beside = settings, team, output, beside
        self.policies = {agent: client.policy for agent, client in team.training.items()}
        self.tokenizers = {each.policy: each.tokenizer for each in team.training.values()}
        self._scoring: asyncio.Task[None] | None = None
        self._writing: asyncio.Task[int] | None = None

    async def choose(
        self,
        complete: Sequence[Episode],
        watched: Sequence[Episode],
        credit: CreditRule,
        metrics: dict[str, float],
        *,
        due: bool,
    ) -> list[TrainingTree]:
        """The trees of the iteration's first tasks, of ``complete`` episodes with credit, and of the ``watched`` ones,
        which get theirs here; with the learner's log-probabilities before the update.  None where they are not ``due``.
        Adds ``metrics``.
        """
        if self._scoring is not None:
            scoring, self._scoring = self._scoring, None
            with timed(metrics, "trees") if due else nullcontext():  # a row with this time is one of an own file
                await scoring  # before the weights change
        if not (due and (watched or self.settings.tasks)):
            metrics |= await self.written(wait=False)
            return []
        with timed(metrics, "trees"):
            metrics |= await self.written()  # those of an earlier iteration
            if watched:
                await self.team.critics.evaluate(watched, self.team.ranks)
                if credit.kl:
                    await self.team.score_reference(watched)
                deepcopy(credit)(watched)
            first = list(dict.fromkeys(episode.task.task_id for episode in complete))[: self.settings.tasks]
            means = baselines(credit, complete) | baselines(credit, watched)
            trees = [TrainingTree(each, baselines=means) for each in complete if each.task.task_id in first]
            trees += [TrainingTree(each, watched=True, baselines=means) for each in watched]
            before = await self._scores(trees)
            for tree in trees:
                tree.before = before
        return trees

    async def keep(
        self, world: TeamEnv, trees: Sequence[TrainingTree], iteration: int, metrics: dict[str, float]
    ) -> None:
        """Score ``trees`` after the update that followed ``iteration`` iterations, and write them, with pictures; adds
        ``metrics``.  With ``beside`` the run goes on meanwhile, up to its next update, and :meth:`written` has the
        metrics; several processes score at once, since those that share weights must do so together.
        """
        if not trees:
            return
        with timed(metrics, "trees"):
            self._scoring = scoring = asyncio.create_task(self._score(trees))
            if not self.beside or self.team.ranks.world > 1:
                await scoring
            self._writing = asyncio.create_task(self._write(world, trees, iteration, scoring), name="training trees")
            metrics |= {} if self.beside else await self.written()

    async def _score(self, trees: Sequence[TrainingTree]) -> None:
        after = await self._scores(trees)
        for tree in trees:
            tree.after = after

    async def _write(
        self, world: TeamEnv, trees: Sequence[TrainingTree], iteration: int, scoring: asyncio.Task[None]
    ) -> int:
        await scoring
        if not self.team.ranks.first:
            return 0
        if self.settings.pictures:
            for tree in trees:
                tree.pictures = await pictures(world, tree.episode.task, tree.episode)
        records = [tree_record(tree, iteration, self.policies, self.tokenizers) for tree in trees]
        written = self.output.directory.trees(iteration, records, self.settings.max_mb * 10**6)
        self.output.loggers.table(lambda: candidate_table(records), iteration)
        return written

    async def written(self, *, wait: bool = True) -> dict[str, float]:
        """Metrics of the trees that are written since the last call; of none that are not yet, unless it is to
        ``wait``.  A failure is an observer's.
        """
        if self._writing is None or not (wait or self._writing.done()):
            return {}
        await asyncio.wait([self._writing])
        size, self._writing = self.output.observers.run("diagnostics", self._writing.result), None
        return {} if size is None else {"diagnostics/trees_bytes": size}

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
                scores |= {candidate: value for (candidate, _), value in zip(pairs, values, strict=True)}
        return scores
