"""TrainLoop: the order of an iteration.  That of policies in an update is the team's (:mod:`.models.pools.team`)."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from .algorithms.credit.base import CreditRule
from .cluster.actors import LostActorError
from .diagnostics.diagnostics import Diagnostics
from .diagnostics.extra_episodes import Extra
from .envs.returned import TaskSource
from .evaluation.held_out import HeldOut
from .evaluation.self_play import SelfPlay
from .experience import Episode, Task
from .kernels.memory import trim_heap
from .models.learning.learner import Groups
from .models.learning.ranks import Ranks
from .models.pools.checkpoint import CheckpointFolder
from .models.pools.team import Team
from .rollout.ahead import Ahead
from .rollout.engines.requests import derive
from .rollout.playing import complete_tasks, failures_of
from .rollout.samplers.sampler import Closing, Sampler
from .routing import Router
from .runs.budget import TrainSettings
from .runs.interrupts import uninterrupted
from .runs.metrics import prefixed, rollout_metrics, timed, update_metrics
from .runs.output import RunOutput
from .runs.progress import Progress

log = logging.getLogger(__name__)


class TrainLoop:
    """Rollout, credit, routing, update, new weights to the engines; evaluation, checkpoints and reports in between."""

    def __init__(
        self,
        *,
        source: TaskSource,
        team: Team,
        sampler: Sampler,
        credit: CreditRule,
        router: Router,
        settings: TrainSettings,
        checkpoints: CheckpointFolder,
        output: RunOutput,
        diagnostics: Diagnostics,
        self_play: SelfPlay,
    ) -> None:
        self.source, self.world, self.team = source, source.world, team
        self.sampler, self.credit, self.router = sampler, credit, router
        self.settings, self.seed, self.faults = settings.loop, settings.seed, settings.faults
        self.rebuilds, self.checkpoints, self.output = settings.rebuilds, checkpoints, output
        self.directory, self.display, self.observers = output.directory, output.display, output.observers
        self.ranks, self.progress, self.budget = team.ranks, Progress(), settings.loop.budget
        self.diagnostics, self.trees, self.tell = diagnostics, diagnostics.trees, output.callbacks
        self.self_play = self_play
        self.held_out = HeldOut(team, source.held_out, settings, output, self_play)
        self.resample, self.episodes_per_task = sampler.resample, sampler.k if sampler.topology == "chain" else 1
        self.ahead: Ahead | None = None
        if bound := settings.loop.staleness:
            self.ahead = Ahead(bound, self._draw, self._play_ahead, team.versions)
        self.measured: dict[str, float] = {}  # in this iteration, so far
        self.update_in_progress = False  # True while some policies have learnt from an iteration and others have not

    # ---- one iteration ----------------------------------------------------------------------------------------------

    async def run_iteration(self) -> dict[str, Any]:
        """One iteration; returns its metrics.  Once the policies begin to learn from it, no interrupt stops it."""
        self.measured, now = {}, self.progress.iteration
        self.tell("on_iteration_start", self)
        self.measured |= await self.self_play.draw(now)
        with timed(self.measured, "rollout"):
            episodes = await (self.collect() if self.ahead is None else self._collect_ahead(self.ahead))
        self.tell("on_rollout_end", self, episodes)
        tasks = list({episode.task.task_id: episode.task for episode in episodes}.values())
        watched = await self.diagnostics.end(now, self._extras(now, tasks), self.measured)
        self.progress.add_counters(counters := self.team.drain_all_counters())
        self.measured |= counters
        row = await uninterrupted(self._learn(episodes, watched))
        self.tell("on_update_end", self, row)
        return row

    async def _learn(self, episodes: Sequence[Episode], watched: Sequence[Episode]) -> dict[str, Any]:
        now, complete = self.progress.iteration, complete_tasks(episodes)
        await self._judge(complete)
        batches = self.router.route(complete, self.credit.key, self.credit.weight)
        due = self.diagnostics.keeps_trees(now)
        trees = await self.trees.choose(complete, watched, self.credit, self.measured, due=due)
        self.update_in_progress = True
        learnt = await self._update(complete, batches)
        learnt |= await self._load_weights()
        await self.trees.keep(self.world, trees, now, self.measured)
        self.progress.row = self._row(episodes, complete, learnt)
        if self.ahead is not None:
            self.ahead.learnt()
        self.update_in_progress = False
        return self.progress.row

    async def collect(self) -> list[Episode]:
        """The episodes of an iteration: more where too few tasks have a group with a nonzero advantage; all count."""
        await self.team.forget()
        now, count = self.progress.iteration, self.budget.next_tasks(self.progress)
        seed, drawn = self._seed(now), self._draw(now, count)
        self.diagnostics.extra.begin(now, self._extras(now, drawn))
        episodes = await self._sample(drawn, seed)
        for _ in range(self.resample):
            task_ids = {episode.task.task_id for episode in episodes}
            more = count - len(self.credit.live(complete_tasks(episodes)))
            more = min(more, self.budget.tasks_within_budget(self.progress) - len(task_ids))
            if more < 1:
                break
            tasks = self.source.tasks("train", len(task_ids) + more, derive(seed, "more", len(task_ids)))
            episodes += await self._sample([task for task in tasks if task.task_id not in task_ids][:more], seed)
        return episodes

    async def _sample(self, tasks: Sequence[Task], seed: int) -> list[Episode]:
        async def play(mine: Sequence[Task]) -> list[list[Episode]]:
            self.display.phase("rollout", len(mine) * self.episodes_per_task)
            return await self.sampler.collect(self.world, mine, self.team.training, seed, self._ended)

        return self._checked(await self.ranks.share(tasks, play))

    async def _collect_ahead(self, ahead: Ahead) -> list[Episode]:
        """The episodes of an iteration, of those that were begun in this iteration and in earlier ones."""
        staleness = self.settings.staleness
        while size := self.budget.tasks_ahead(self.progress, ahead.next_batch, ahead.begun, staleness):
            batch = ahead.next_batch
            self.diagnostics.extra.begin(batch, self._extras(batch, ahead.begin(size)))
        count = min(ahead.begun, self.budget.next_tasks(self.progress))
        missing = max(0, count - (ahead.begun - ahead.under_way))
        self.display.phase("rollout", missing * self.episodes_per_task)
        by_task = await ahead.take(count)
        self.measured["rollout/tasks_ahead"] = ahead.left
        return self._checked(by_task)

    def _extras(self, iteration: int, tasks: Sequence[Task]) -> dict[str, Extra]:
        """What diagnostics play beside the ``tasks`` of ``iteration``; nothing is learnt from it."""
        watched = self.held_out.tasks["validation"] if self.diagnostics.keeps_trees(iteration) else []
        return self.diagnostics.extras(iteration, self.world, self.sampler, tasks, watched, self._seed(iteration))

    async def _play_ahead(self, task: Task, batch: int) -> list[Episode]:
        return (await self.sampler.collect(self.world, [task], self.team.training, self._seed(batch), self._ended))[0]

    def _seed(self, batch: int) -> int:
        return derive(self.seed, "train", batch)

    def _draw(self, batch: int, size: int) -> list[Task]:
        return self.source.tasks("train", size, self._seed(batch))

    def _ended(self, episode: Episode) -> None:
        if episode.failure is not None:
            self.faults.raise_if_stopping(episode.failure)
        self.display.rollout_episode(episode)

    def _checked(self, by_task: list[list[Episode]]) -> list[Episode]:
        """All episodes, the same in every process, of which too many must not be lost."""
        episodes = [episode for episodes in by_task for episode in episodes]
        self.faults.check(failures_of(episodes), len(episodes), *self.progress.losses_before)
        return episodes

    async def _judge(self, complete: Sequence[Episode]) -> None:
        """Credit for ``complete`` episodes, with the values and the reference that the rule needs."""
        self.display.phase("update")
        with timed(self.measured, "update"):
            if self.ahead is None:
                await self.team.sleep()
            await self.team.critics.evaluate(complete, self.ranks)
            if self.credit.kl:
                await self.team.score_reference(complete)
            self.credit(complete)  # before routing, which takes the joint episode apart

    async def _update(self, complete: Sequence[Episode], batches: Mapping[str, Groups]) -> dict[str, float]:
        """Policies learn from ``batches``, then critics from the returns that credit has set; returns their metrics."""
        now, in_order = self.progress.iteration, self.ranks.world > 1
        with timed(self.measured, "update"):
            updates = await self.team.update(batches, now, in_order=in_order, by_agent=self.diagnostics.due(now))
            return update_metrics(updates, await self.team.critics.update(complete))

    async def _load_weights(self) -> dict[str, float]:
        self.display.phase("loading weights")
        with timed(self.measured, "load"):
            return prefixed("rollout", await self.team.load_weights(copies=self.ahead is not None))

    def _row(
        self, episodes: Sequence[Episode], complete: Sequence[Episode], learnt: dict[str, float]
    ) -> dict[str, Any]:
        """The metrics of an iteration, which is counted."""
        progress, lost, run = self.progress, failures_of(episodes), self.observers.run
        played_s = self.measured["time/rollout_s"] if self.ahead is None else self.ahead.seconds
        row = progress.count(rollout_metrics(episodes, played_s))
        progress.add_losses(len(lost), len(episodes))
        row |= run("diagnostics", self.diagnostics.messages, complete, self.credit.key) or {}
        row |= self.output.count_faults(progress, lost) | self.measured | learnt
        progress.add_counters({key: value for key, value in learnt.items() if key.startswith("faults/")})
        run("diagnostics", self.diagnostics.check, row, progress.alarms)
        return row

    # ---- the run ----------------------------------------------------------------------------------------------------

    async def run(self) -> dict[str, Any]:
        """Train; returns the summary.  An interrupt leaves a run that can be continued, and is raised again.

        The summary's ``status`` is ``finished``, ``interrupted`` or ``failed`` (then ``error`` says why).
        """
        status, count_seconds = "failed", self.progress.clock()
        try:
            if (self.rebuilds or self.self_play.past) and not self.progress.iteration:
                await self.self_play.measure(0)
                self._checkpoint()  # a pool may be lost before the first one that is due; opponents play with the first
            await self._begin()
            while self.progress.row or not self.over():
                if not self.progress.row:
                    self._show(await self.run_iteration())
                await self._end_iteration()
                count_seconds()
                is_best = self.progress.best_iteration == self.progress.iteration
                if self.checkpoints.due(self.progress.iteration) or is_best or self.over():
                    self._checkpoint()
            if self.ahead is not None:
                self.progress.summary["rollout/unused_tasks"] = self.ahead.begun
                await self.ahead.stop()
            await self.diagnostics.extra.stop()
            await self._final_evaluation()
            status = "finished"
        except (KeyboardInterrupt, asyncio.CancelledError):
            status = "interrupted"
            raise
        except LostActorError as error:
            task = asyncio.current_task()
            if task is None or not task.cancelling():
                raise
            status = "interrupted"  # during an update, which was let go on
            raise asyncio.CancelledError from error
        finally:
            async with self._closing():
                self.output.count_last(self.progress, self.team.drain_engine_counters)
                count_seconds()
                summary = self.output.end(self.progress, status, self.diagnostics.raised(self.progress))
                self._last_checkpoint(status)
        self.tell("on_end", self, summary)
        return summary

    def over(self) -> bool:
        """Whether training is over."""
        return bool(self.tell.stopped_by) or self.budget.exhausted(self.progress.iteration, self.progress.completions)

    async def _begin(self) -> None:
        """Open the world, evaluate the team before training, and load its weights into the engines."""
        self.tell("on_start", self)
        self.progress.summary |= prefixed("world", await self.world.open())
        await self.held_out.before_training(self.world, self.progress)
        await self._load_weights()

    def _show(self, row: Mapping[str, Any]) -> None:
        expected = self.budget.expected_iterations(self.progress)
        self.display.iteration(self.progress.iteration, row, self.world.agents, expected)
        self.diagnostics.show_alarms(self.progress)

    async def _end_iteration(self) -> None:
        """Validate where that is due, and write the metrics."""
        row = self.progress.row | await self.held_out.validate(self.world, self.progress, last=self.over())
        row |= await self.self_play.measure(self.progress.iteration)
        self.tell("on_iteration_end", self, row)
        if self.over():
            row |= await self.trees.written()
        trim_heap()
        self.output.row(row, self.progress.iteration)
        self.progress.row = {}

    async def _final_evaluation(self) -> None:
        """Score the last and the best weights once on the test tasks."""
        progress, evaluate = self.progress, self.held_out.evaluate
        self._checkpoint()
        last = best = await evaluate(self.world, progress, "test", "after training")
        if progress.best_iteration not in (None, progress.iteration):
            await self.team.load_checkpoint(self.checkpoints.path / "best")
            best = await evaluate(self.world, progress, "test", "best on validation", "test_best")
        progress.summary |= prefixed("eval", last) | prefixed("eval_best", best)

    def _checkpoint(self) -> None:
        ranks = self.ranks if self.team.sharded else Ranks()
        if not self.ranks.first and ranks.world == 1:
            return
        state = {**self.progress.state_dict(), "credit": self.credit.state_dict(), "engines": self.team.engine_states()}
        state |= {"callbacks": self.tell.state_dict(), "self_play": self.self_play.state_dict()}
        if self.ahead is not None:
            state["ahead"] = self.ahead.state_dict()
        self.checkpoints.write(self.team.policies, self.team.tokenizers, state, ranks, self.team.critics.by_name)

    def _closing(self) -> AsyncExitStack:
        """A context at whose end all is closed, from the last one to the first, whatever fails."""
        closing = AsyncExitStack()
        closing.push_async_callback(self.world.close)
        closing.push_async_callback(self.team.close)
        if isinstance(self.sampler, Closing):
            closing.push_async_callback(self.sampler.close)
        closing.callback(self.output.loggers.close)
        closing.push_async_callback(self.diagnostics.stop)
        if self.ahead is not None:
            closing.push_async_callback(self.ahead.stop)
            self.ahead.cancel()
        return closing

    def _last_checkpoint(self, status: str) -> None:
        """Unless an update is in progress, or the processes that would write it together do not all know that the run
        ends.
        """
        alone = not self.ranks.over and status != "finished" and self.team.sharded and self.ranks.world > 1
        lost = isinstance(sys.exception(), LostActorError)  # with what only it held: there is nothing to write
        if not self.update_in_progress and not alone and not lost:
            try:
                self._checkpoint()
            except LostActorError as error:
                if status != "interrupted":
                    raise
                # Whoever asked the run to stop wants no new actors: the interrupt goes on.
                log.warning("no checkpoint at the interrupt, the one before stays: %s", error)
