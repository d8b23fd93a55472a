"""TrainLoop: the training loop.  The only place where order is decided."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from typing import Any

from .algorithms.credit.base import CreditRule
from .cluster.actors import LostActorError
from .diagnostics.diagnostics import Diagnostics
from .diagnostics.influence import cost
from .diagnostics.settings import DEFAULT_DIAGNOSTICS, DiagnosticsSettings
from .diagnostics.tree_records import TrainingTree
from .diagnostics.trees import TreeKeeper
from .envs.base import TeamEnv
from .evaluation.episodes import EpisodeResult, PolicyActor, evaluate
from .evaluation.summary import lost_failures, summarise
from .experience import Episode, Split, Task
from .faults import DEFAULT_FAULTS, Failure, FaultSettings, LostEpisodesError
from .memory import UpdateMemoryError, trim_heap
from .models.checkpoint_folder import CheckpointFolder
from .models.ranks import Ranks
from .models.team import Team
from .rollout.ahead import Ahead, MaySpeak, held
from .rollout.samplers.base import Closing, Sampler
from .rollout.seeds import derive
from .routing import Router
from .runs.budget import LoopSettings
from .runs.directory import RunDirectory
from .runs.display import Display
from .runs.interrupts import uninterrupted
from .runs.loggers import Loggers
from .runs.metrics import fault_metrics, prefixed, rollout_metrics, update_metrics
from .runs.progress import Progress
from .runs.tables import episode_table, tree_table

log = logging.getLogger(__name__)


class TrainLoop:
    """Rollout, credit, routing, update, new weights to the engines; evaluation, checkpoints and reports in between."""

    def __init__(
        self,
        *,
        world: TeamEnv,
        team: Team,
        sampler: Sampler,
        credit: CreditRule,
        router: Router,
        settings: LoopSettings,
        directory: RunDirectory,
        checkpoints: CheckpointFolder,
        loggers: Loggers,
        display: Display,
        seed: int,
        ranks: Ranks | None = None,
        faults: FaultSettings = DEFAULT_FAULTS,
        diagnostics: DiagnosticsSettings = DEFAULT_DIAGNOSTICS,
        rebuilds: int = 0,
        staleness: Mapping[str, int] | None = None,
    ) -> None:
        self.world, self.team, self.sampler, self.credit, self.router = world, team, sampler, credit, router
        self.settings, self.directory, self.checkpoints = settings, directory, checkpoints
        self.loggers, self.display, self.seed = loggers, display, seed
        self.ranks, self.progress, self.budget = ranks or Ranks(), Progress(), settings.budget
        self.faults, self.diagnostics = faults, Diagnostics(diagnostics, router.team)
        self.trees = TreeKeeper(diagnostics.trees, team, self.ranks)
        self.rebuilds = rebuilds
        self.resample = sampler.resample
        self.episodes_per_task = sampler.k if sampler.topology == "chain" else 1
        self.ahead = self._ahead(settings.staleness, staleness or {}) if settings.staleness else None
        self._last_taken: float | None = None
        self.update_in_progress = False  # True while some policies have learnt from an iteration and others have not
        self._held_out: dict[Split, list[Task]] = {}

    # ---- one iteration ----------------------------------------------------------------------------------------------

    async def run_iteration(self) -> dict[str, Any]:
        """One iteration; returns its metrics.  Once the policies begin to learn from it, no interrupt stops it."""
        start = time.perf_counter()
        episodes = await (self.collect() if self.ahead is None else self._collect_ahead(self.ahead))
        end = time.perf_counter()
        played_s = end - (self._last_taken or start)
        if self.ahead is not None:  # whose tasks are played during updates, too
            self._last_taken = end
        probe, watched = await self._probe(episodes)
        counters = probe | self._drain_engine_counters()
        return await uninterrupted(self._learn(episodes, end - start, played_s, counters, watched))

    async def _learn(
        self,
        episodes: Sequence[Episode],
        rollout_s: float,
        played_s: float,
        counters: dict[str, float],
        watched: Sequence[Episode],
    ) -> dict[str, Any]:
        start = time.perf_counter()
        complete = complete_tasks(episodes)
        self.display.phase("update")
        if self.ahead is None:
            await self.team.sleep()
        else:
            counters["rollout/tasks_ahead"] = self.ahead.begun - len({episode.task.task_id for episode in episodes})
        await self.team.critics.evaluate(complete, self.ranks)  # values for credit rules that need them
        if self.credit.kl:
            await self.team.score_reference(complete, self.ranks)
        self.credit(complete)  # before routing, which takes the joint episode apart
        batches = self.router.route(complete, self.credit.key, self.credit.weight)
        trees = await self._choose_trees(complete, watched)
        self.update_in_progress = True
        now, in_order = self.progress.iteration, self.ranks.world > 1
        updates = await self.team.update(batches, now, in_order=in_order, by_agent=self.diagnostics.due(now))
        fits = await self.team.critics.update(complete)  # towards the returns that credit has set
        counters |= await self._keep(trees)
        after_update = time.perf_counter()
        self.display.phase("loading weights")
        loads = await self._load_weights()
        end, trees_s = time.perf_counter(), counters.get("time/trees_s", 0.0)
        times = {"rollout_s": rollout_s, "update_s": after_update - start - trees_s, "load_s": end - after_update}
        row = self.progress.count(rollout_metrics(episodes, played_s))
        failures, learnt = _failures(episodes), update_metrics(updates, fits)
        self.progress.add_losses(len(failures), len(episodes))
        row |= self.diagnostics.messages(complete, self.credit.key)
        row |= self._count_faults(failures) | prefixed("rollout", loads) | counters | learnt | prefixed("time", times)
        self.progress.add_counters({key: value for key, value in learnt.items() if key.startswith("faults/")})
        self.diagnostics.check(row, self.progress.alarms)
        self.progress.row = row
        if self.ahead is not None:
            self.ahead.learnt()
        self.update_in_progress = False
        return row

    async def collect(self) -> list[Episode]:
        """The episodes of an iteration.

        While too few tasks have a group with a nonzero advantage, more are played; all completions count.
        """
        await self.team.forget()
        seed, count = derive(self.seed, "train", self.progress.iteration), self.budget.next_tasks(self.progress)
        episodes = await self._sample(self.world.tasks("train", count, seed), seed)
        for _ in range(self.resample):
            task_ids = {episode.task.task_id for episode in episodes}
            more = count - len(self.credit.live(complete_tasks(episodes)))
            more = min(more, self.budget.tasks_within_budget(self.progress) - len(task_ids))
            if more < 1:
                break
            tasks = self.world.tasks("train", len(task_ids) + more, derive(seed, "more", len(task_ids)))
            episodes += await self._sample([task for task in tasks if task.task_id not in task_ids][:more], seed)
        return episodes

    def _ahead(self, staleness: int, bounds: Mapping[str, int]) -> Ahead:
        """What plays the tasks of further iterations, each with the tasks and seeds that it has on-policy; ``bounds``
        are those of policies with a smaller one.
        """

        def seed_of(batch: int) -> int:
            return derive(self.seed, "train", batch)

        def draw(batch: int, size: int) -> list[Task]:
            return self.world.tasks("train", size, seed_of(batch))

        async def play(task: Task, batch: int, may_speak: MaySpeak) -> list[Episode]:
            clients = held(self.team.training, bounds, may_speak)
            return (await self.sampler.collect(self.world, [task], clients, seed_of(batch), self._ended))[0]

        def versions() -> dict[str, int]:
            return {name: policy.version for name, policy in self.team.policies.items()}

        return Ahead(staleness, draw, play, versions, bounds)

    async def _collect_ahead(self, ahead: Ahead) -> list[Episode]:
        """The episodes of an iteration, of those that were begun in this iteration and in earlier ones."""
        staleness = self.settings.staleness
        while size := self.budget.tasks_ahead(self.progress, ahead.next_batch, ahead.begun, staleness):
            ahead.begin(size)
        count = min(ahead.begun, self.budget.next_tasks(self.progress))
        missing = max(0, count - (ahead.begun - ahead.under_way))
        self.display.phase("rollout", missing * self.episodes_per_task)
        episodes = [episode for episodes in await ahead.take(count, self.progress.iteration) for episode in episodes]
        self.faults.check(_failures(episodes), len(episodes), *self.progress.losses_before)
        return episodes

    def _ended(self, episode: Episode) -> None:
        if episode.failure is not None:
            self.faults.raise_if_stopping(episode.failure)
        self.display.rollout_episode(episode)

    async def _load_weights(self) -> dict[str, float]:
        return await self.team.load_weights(copies=self.ahead is not None)

    async def _sample(self, tasks: Sequence[Task], seed: int) -> list[Episode]:
        async def play(mine: Sequence[Task]) -> list[list[Episode]]:
            self.display.phase("rollout", len(mine) * self.episodes_per_task)
            return await self.sampler.collect(self.world, mine, self.team.training, seed, self._ended)

        by_task = await self.ranks.share(tasks, play)
        episodes = [episode for episodes in by_task for episode in episodes]
        # The same in every process: all of them have all episodes.
        self.faults.check(_failures(episodes), len(episodes), *self.progress.losses_before)
        return episodes

    async def _probe(self, episodes: Sequence[Episode]) -> tuple[dict[str, float], list[Episode]]:
        """Metrics of a few more episodes, where they are due, and those among them whose trees are kept; nothing is
        learnt from these.
        """
        now, metrics, watched = self.progress.iteration, {}, []
        start, seed = time.perf_counter(), derive(self.seed, "train", now)
        if self.diagnostics.due(now):
            self.display.phase("probe")
            tasks = list({episode.task.task_id: episode.task for episode in episodes}.values())
            clients = self.team.training
            metrics = await self.diagnostics.probe(self.world, tasks, clients, seed, self.ranks, self.faults)
        if self.diagnostics.keeps_trees(now) and (count := self.trees.settings.watched):
            self.display.phase("probe")
            tasks = self.held_out("validation")[:count]
            episodes = await self.trees.watch(self.world, self.sampler, tasks, seed, self.faults)
            metrics |= prefixed("diagnostics", cost(episodes, "watched"))
            watched = complete_tasks(episodes, least=0)
        return metrics | ({"time/probe_s": time.perf_counter() - start} if metrics else {}), watched

    async def _choose_trees(self, complete: Sequence[Episode], watched: Sequence[Episode]) -> list[TrainingTree]:
        """The trees that are kept of this iteration, none where they are not due."""
        if not self.diagnostics.keeps_trees(self.progress.iteration):
            return []
        return await self.trees.choose(self.world, complete, watched, self.credit)

    async def _keep(self, trees: Sequence[TrainingTree]) -> dict[str, float]:
        """Write ``trees`` after the update; metrics of what that took."""
        if not trees:
            return {}
        now = self.progress.iteration
        records = await self.trees.records(trees, now)
        written = self.directory.trees(now, records, self.trees.settings.max_mb * 10**6)
        self.loggers.table(lambda: tree_table(records), now)
        return {"diagnostics/trees_bytes": written, "time/trees_s": self.trees.seconds}

    def _drain_engine_counters(self) -> dict[str, float]:
        """What the engines of all processes have counted since the last call; added to the totals."""
        counts = self.ranks.from_all(self.team.drain_engine_counters())
        totals = {key: sum(count[key] for count in counts) for key in counts[0]}
        self.progress.add_counters(totals)
        return totals

    def _count_faults(self, failures: Sequence[Failure]) -> dict[str, float]:
        """Metrics of lost episodes, and of loggers since the last call; added to the totals."""
        counts = fault_metrics(failures, self.loggers.drain())
        self.progress.add_counters(counts)
        return counts

    # ---- the run ----------------------------------------------------------------------------------------------------

    async def run(self) -> dict[str, Any]:
        """Train; returns the summary.  An interrupt leaves a run that can be continued, and is raised again.

        The summary's ``status`` is ``finished``, ``interrupted`` or ``failed`` (then ``error`` says why).
        """
        progress, start = self.progress, time.perf_counter() - self.progress.wall_s
        cpu_start = time.process_time() - progress.cpu_s
        status = "failed"
        try:
            if self.rebuilds and not progress.iteration:
                self._checkpoint()  # a pool may be lost before the first one that is due
            await self._begin()
            while progress.row or not self.over():
                if not progress.row:
                    row = await self.run_iteration()
                    expected = self.budget.expected_iterations(progress)
                    self.display.iteration(progress.iteration, row, self.world.agents, expected)
                    self.display.alarms(self.diagnostics.active(progress.alarms))
                    if raised := self.diagnostics.records(progress.alarms):  # in case that the run is killed
                        self.directory.summary(progress.summary | {"alarms": raised})
                row = progress.row | await self.validate()
                trim_heap()
                self._write(row)
                progress.row, progress.wall_s = {}, time.perf_counter() - start
                progress.cpu_s = time.process_time() - cpu_start
                is_best = progress.best_iteration == progress.iteration
                if self.checkpoints.due(progress.iteration) or is_best or self.over():
                    self._checkpoint()
            if self.ahead is not None:
                progress.summary["rollout/unused_tasks"] = self.ahead.begun
                await self.ahead.stop()
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
            async with AsyncExitStack() as closing:  # from the last one to the first, whatever fails
                closing.push_async_callback(self.world.close)
                closing.push_async_callback(self.team.close)
                if isinstance(self.sampler, Closing):
                    closing.push_async_callback(self.sampler.close)
                if self.ahead is not None:
                    closing.push_async_callback(self.ahead.stop)
                    self.ahead.cancel()
                closing.callback(self.loggers.close)
                try:
                    progress.add_counters(self.team.drain_engine_counters())
                except Exception as error:  # whatever it is, the summary and the checkpoint matter more
                    log.warning("what the engines have counted last is lost: %s", _describe(error))
                self._count_faults([])
                if isinstance(sys.exception(), UpdateMemoryError):
                    progress.add_counters({"faults/oom_stops": 1})
                progress.wall_s, progress.cpu_s = time.perf_counter() - start, time.process_time() - cpu_start
                summary = progress.totals() | {"status": status, "alarms": self.diagnostics.records(progress.alarms)}
                if status == "failed":
                    summary["error"] = _describe(sys.exception())
                self._write_final_state(summary)
        return summary

    def over(self) -> bool:
        """Whether training is over."""
        return self.budget.exhausted(self.progress.iteration, self.progress.completions)

    async def _begin(self) -> None:
        """Open the world, evaluate the team before training, and load its weights into the engines."""
        summary = self.progress.summary
        summary |= prefixed("world", await self.world.open())
        if "eval_before/success" not in summary:
            summary |= prefixed("eval_before", await self.evaluate("test", "before training"))
            self.directory.summary(summary)
            self.loggers.metrics(summary, self.progress.iteration)
        if self.settings.validate_first and "validation_before/success" not in summary:
            result = await self.evaluate("validation", "validation before training")
            summary |= prefixed("validation_before", result)
        self.display.phase("loading weights")
        await self._load_weights()

    # ---- evaluation -------------------------------------------------------------------------------------------------

    def held_out(self, split: Split) -> list[Task]:
        """The tasks of an evaluation, the same at each; drawn once."""
        if split not in self._held_out:
            count = self.settings.test_tasks if split == "test" else self.settings.validation_tasks
            self._held_out[split] = self.world.tasks(split, count, self.settings.task_seed)
        return self._held_out[split]

    async def evaluate(self, split: Split, title: str, file: str | None = None) -> dict[str, Any]:
        """Evaluate the engines' present weights on ``split``; shows the result and writes the episodes to ``file``."""
        if self.ahead is None:
            await self.team.forget()
        actors = {agent: PolicyActor(client) for agent, client in self.team.evaluation.items()}
        seed = derive(self.seed, "eval", split)

        async def play_all(mine: Sequence[Task]) -> list[EpisodeResult]:
            self.display.phase("evaluation", len(mine), title)
            show = self.display.evaluation_episode
            return await evaluate(self.world, mine, actors, seed, lambda result: show(result.messages), self.faults)

        results = await self.ranks.share(self.held_out(split), play_all)
        self._drain_engine_counters()
        self._count_faults(failures := lost_failures(results))
        self.faults.check(failures, len(results))
        summary = summarise(results) | self.diagnostics.evaluation(self.progress.row, results)
        self.directory.episodes(file or f"{split}_{self.progress.iteration:05d}", map(asdict, results))
        self.loggers.table(lambda: episode_table(file or split, map(asdict, results)), self.progress.iteration)
        self.display.evaluation(title, summary)
        return summary

    async def validate(self) -> dict[str, Any]:
        """Evaluate on the validation tasks where it is due, and note whether these weights are the best; returns
        metrics.
        """
        progress = self.progress
        if progress.iteration % self.settings.eval_every and not self.over():
            return {}
        start = time.perf_counter()
        result = await self.evaluate("validation", f"validation after iteration {progress.iteration}")
        if result["success"] > progress.best:
            progress.best, progress.best_iteration = result["success"], progress.iteration
        return prefixed("eval", result) | {"time/validation_s": time.perf_counter() - start}

    async def _final_evaluation(self) -> None:
        """Score the last and the best weights once on the test tasks."""
        progress = self.progress
        self._checkpoint()
        last = best = await self.evaluate("test", "after training")
        if progress.best_iteration not in (None, progress.iteration):
            await self.team.load_checkpoint(self.checkpoints.path / "best")
            best = await self.evaluate("test", "best on validation", "test_best")
        progress.summary |= prefixed("eval", last) | prefixed("eval_best", best)

    # ---- files ------------------------------------------------------------------------------------------------------

    def _checkpoint(self) -> None:
        ranks = self.ranks if self.team.sharded else Ranks()
        if not self.ranks.first and ranks.world == 1:
            return
        state = {**self.progress.state_dict(), "credit": self.credit.state_dict(), "engines": self.team.engine_states()}
        if self.ahead is not None:
            state["ahead"] = self.ahead.state_dict()
        self.checkpoints.write(self.team.policies, self.team.tokenizers, state, ranks, self.team.critics.by_name)

    def _write(self, row: Mapping[str, Any]) -> None:
        self.directory.metrics(row)
        self.loggers.metrics(row, self.progress.iteration)

    def _write_final_state(self, summary: Mapping[str, Any]) -> None:
        """Write the metrics of an unfinished validation and the summary; and a checkpoint, unless an update is in
        progress, or the processes that would write it together do not all know that the run ends.
        """
        if self.progress.row:
            self._write(self.progress.row)
        self.directory.summary(summary)
        self.loggers.metrics(prefixed("summary", summary), self.progress.iteration)
        alone = not self.ranks.over and summary["status"] != "finished" and self.team.sharded and self.ranks.world > 1
        lost = isinstance(sys.exception(), LostActorError)  # with what only it held: there is nothing to write
        if not self.update_in_progress and not alone and not lost:
            try:
                self._checkpoint()
            except LostActorError as error:
                if summary["status"] != "interrupted":
                    raise
                # Whoever asked the run to stop wants no new actors: the interrupt goes on.
                log.warning("no checkpoint at the interrupt, the one before stays: %s", error)


def complete_tasks(episodes: Sequence[Episode], least: int = 1) -> list[Episode]:
    """The episodes of the tasks that lost none.

    What is lost may depend on what was said (a message that the world cannot judge), so that the samples that are left
    of a group would be a biased selection.  Raises :class:`.faults.LostEpisodesError` where fewer than ``least`` are
    complete.
    """
    failures = _failures(episodes)
    broken = {episode.task.task_id for episode in episodes if episode.failure is not None}
    complete = [episode for episode in episodes if episode.task.task_id not in broken]
    if len(complete) < least and episodes:
        first = failures[0].message
        raise LostEpisodesError(f"every task lost an episode, so that none is learnt from; the first: {first}")
    return complete


def _failures(episodes: Sequence[Episode]) -> list[Failure]:
    return [episode.failure for episode in episodes if episode.failure is not None]


def _describe(error: BaseException | None) -> str:
    return "; ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])])
