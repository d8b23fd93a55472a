"""TrainLoop: the training loop.  The only place where order is decided."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from .algorithms.credit.base import CreditRule
from .diagnostics.diagnostics import Diagnostics
from .diagnostics.settings import DEFAULT_DIAGNOSTICS, DiagnosticsSettings
from .envs.base import TeamEnv
from .evaluation.episodes import EpisodeResult, PolicyActor, evaluate
from .evaluation.summary import lost_failures, summarise
from .experience import Episode, Split, Task
from .faults import DEFAULT_FAULTS, Failure, FaultSettings, LostEpisodesError
from .memory import UpdateMemoryError
from .models.checkpoint_folder import CheckpointFolder
from .models.ranks import Ranks
from .models.team import Team
from .rollout.samplers.base import Sampler
from .rollout.seeds import derive
from .routing import Router
from .runs.budget import LoopSettings
from .runs.directory import RunDirectory
from .runs.display import Display
from .runs.interrupts import uninterrupted
from .runs.loggers import Loggers
from .runs.metrics import fault_metrics, prefixed, rollout_metrics, update_metrics
from .runs.progress import Progress


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
    ) -> None:
        self.world, self.team, self.sampler, self.credit, self.router = world, team, sampler, credit, router
        self.settings, self.directory, self.checkpoints = settings, directory, checkpoints
        self.loggers, self.display, self.seed = loggers, display, seed
        self.ranks, self.progress, self.budget = ranks or Ranks(), Progress(), settings.budget
        self.faults, self.diagnostics = faults, Diagnostics(diagnostics, router.team)
        self.resample = sampler.resample
        self.episodes_per_task = sampler.k if sampler.topology == "chain" else 1
        self.update_in_progress = False  # True while some policies have learnt from an iteration and others have not
        self._held_out: dict[Split, list[Task]] = {}

    # ---- one iteration ----------------------------------------------------------------------------------------------

    async def run_iteration(self) -> dict[str, Any]:
        """One iteration; returns its metrics.  Once the policies begin to learn from it, no interrupt stops it."""
        start = time.perf_counter()
        episodes = await self.collect()
        rollout_s = time.perf_counter() - start
        probe = await self._probe(episodes)
        return await uninterrupted(self._learn(episodes, rollout_s, probe | self._drain_engine_counters()))

    async def _learn(self, episodes: Sequence[Episode], rollout_s: float, counters: dict[str, float]) -> dict[str, Any]:
        start = time.perf_counter()
        complete = complete_tasks(episodes)
        self.display.phase("update")
        await self.team.sleep()
        await self.team.critics.evaluate(complete, self.ranks)  # values for credit rules that need them
        if self.credit.kl:
            await self.team.score_reference(complete, self.ranks)
        self.credit(complete)  # before routing, which takes the joint episode apart
        batches = self.router.route(complete, self.credit.key, self.credit.weight)
        self.update_in_progress = True
        now, in_order = self.progress.iteration, self.ranks.world > 1
        updates = await self.team.update(batches, now, in_order=in_order, by_agent=self.diagnostics.due(now))
        fits = await self.team.critics.update(complete)  # towards the returns that credit has set
        after_update = time.perf_counter()
        self.display.phase("loading weights")
        loads = await self.team.load_weights()
        end = time.perf_counter()
        times = {"rollout_s": rollout_s, "update_s": after_update - start, "load_s": end - after_update}
        row = self.progress.count(rollout_metrics(episodes, rollout_s))
        failures, learnt = _failures(episodes), update_metrics(updates, fits)
        self.progress.add_losses(len(failures), len(episodes))
        row |= self.diagnostics.messages(complete, self.credit.key)
        row |= self._count_faults(failures) | prefixed("rollout", loads) | counters | learnt | prefixed("time", times)
        self.progress.add_counters({key: value for key, value in learnt.items() if key.startswith("faults/")})
        self.diagnostics.check(row, self.progress.alarms)
        self.progress.row = row
        self.update_in_progress = False
        return row

    async def collect(self) -> list[Episode]:
        """The episodes of an iteration.

        While too few tasks have a group with a nonzero advantage, more are played; all completions count.
        """
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

    async def _sample(self, tasks: Sequence[Task], seed: int) -> list[Episode]:
        def ended(episode: Episode) -> None:
            if episode.failure is not None:
                self.faults.raise_if_stopping(episode.failure)
            self.display.rollout_episode(episode)

        async def play(mine: Sequence[Task]) -> list[list[Episode]]:
            self.display.phase("rollout", len(mine) * self.episodes_per_task)
            return await self.sampler.collect(self.world, mine, self.team.training, seed, ended)

        by_task = await self.ranks.share(tasks, play)
        episodes = [episode for episodes in by_task for episode in episodes]
        # The same in every process: all of them have all episodes.
        self.faults.check(_failures(episodes), len(episodes), *self.progress.losses_before)
        return episodes

    async def _probe(self, episodes: Sequence[Episode]) -> dict[str, float]:
        """Metrics of a few more episodes, where they are due; nothing is learnt from these."""
        if not self.diagnostics.due(self.progress.iteration):
            return {}
        start, seed = time.perf_counter(), derive(self.seed, "train", self.progress.iteration)
        self.display.phase("probe")
        tasks = list({episode.task.task_id: episode.task for episode in episodes}.values())
        metrics = await self.diagnostics.probe(self.world, tasks, self.team.training, seed, self.ranks, self.faults)
        return metrics | {"time/probe_s": time.perf_counter() - start}

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
            await self._begin()
            while progress.row or not self.over():
                if not progress.row:
                    row = await self.run_iteration()
                    expected = self.budget.expected_iterations(progress)
                    self.display.iteration(progress.iteration, row, self.world.agents, expected)
                    self.display.alarms(self.diagnostics.active(progress.alarms))
                self._write(progress.row | await self.validate())
                progress.row, progress.wall_s = {}, time.perf_counter() - start
                progress.cpu_s = time.process_time() - cpu_start
                is_best = progress.best_iteration == progress.iteration
                if self.checkpoints.due(progress.iteration) or is_best or self.over():
                    self._checkpoint()
            await self._final_evaluation()
            status = "finished"
        except (KeyboardInterrupt, asyncio.CancelledError):
            status = "interrupted"
            raise
        finally:
            progress.add_counters(self.team.drain_engine_counters())
            self._count_faults([])
            if isinstance(sys.exception(), UpdateMemoryError):
                progress.add_counters({"faults/oom_stops": 1})
            progress.wall_s, progress.cpu_s = time.perf_counter() - start, time.process_time() - cpu_start
            summary = progress.totals() | {"status": status, "alarms": self.diagnostics.records(progress.alarms)}
            if status == "failed":
                summary["error"] = _describe(sys.exception())
            try:
                self._write_final_state(summary)
            finally:
                self.loggers.close()
                await self.team.close()
                await self.world.close()
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
        await self.team.load_weights()

    # ---- evaluation -------------------------------------------------------------------------------------------------

    def held_out(self, split: Split) -> list[Task]:
        """The tasks of an evaluation, the same at each; drawn once."""
        if split not in self._held_out:
            count = self.settings.test_tasks if split == "test" else self.settings.validation_tasks
            self._held_out[split] = self.world.tasks(split, count, self.settings.task_seed)
        return self._held_out[split]

    async def evaluate(self, split: Split, title: str, file: str | None = None) -> dict[str, Any]:
        """Evaluate the engines' present weights on ``split``; shows the result and writes the episodes to ``file``."""
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
        self.display.evaluation(title, summary)
        return summary

    async def validate(self) -> dict[str, Any]:
        """Evaluate on the validation tasks where it is due, and note whether these weights are the best; returns
        metrics.
        """
        progress = self.progress
        if progress.iteration % self.settings.eval_every and not self.over():
            return {}
        result = await self.evaluate("validation", f"validation after iteration {progress.iteration}")
        if result["success"] > progress.best:
            progress.best, progress.best_iteration = result["success"], progress.iteration
        return prefixed("eval", result)

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
        if not self.update_in_progress and not alone:
            self._checkpoint()


def complete_tasks(episodes: Sequence[Episode]) -> list[Episode]:
    """The episodes of the tasks that lost none.

    What is lost may depend on what was said (a message that the world cannot judge), so that the samples that are left
    of a group would be a biased selection.  Raises :class:`.faults.LostEpisodesError` where no task is complete.
    """
    failures = _failures(episodes)
    broken = {episode.task.task_id for episode in episodes if episode.failure is not None}
    complete = [episode for episode in episodes if episode.task.task_id not in broken]
    if not complete and episodes:
        first = failures[0].message
        raise LostEpisodesError(f"every task lost an episode, so that none is learnt from; the first: {first}")
    return complete


def _failures(episodes: Sequence[Episode]) -> list[Failure]:
    return [episode.failure for episode in episodes if episode.failure is not None]


def _describe(error: BaseException | None) -> str:
    return "; ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])])
