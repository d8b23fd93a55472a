"""TrainLoop: the corridor.  The only place where order is decided."""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import time
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from transformers import PreTrainedTokenizerBase

from .algorithms.credit.base import CreditRule
from .envs.base import TeamEnv, WorldFailure
from .evaluation.episodes import PolicyActor, evaluate, summarise
from .experience import Episode, Split, Task
from .models.checkpoint_folder import CheckpointFolder
from .models.loading import checkpoint_weights
from .models.pool import Backbone, PolicyHandle
from .models.ranks import Ranks
from .models.schedule import Schedule
from .rollout.engines.base import Counting, Engine
from .rollout.policy_client import PolicyClient
from .rollout.samplers.base import Sampler
from .rollout.seeds import derive
from .routing import Router
from .runs.directory import RunDirectory
from .runs.display import Display
from .runs.loggers import Loggers
from .runs.metrics import rollout_metrics
from .runs.progress import Progress

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoopSettings:
    """How long and how often.

    ``iterations`` in total; ``tasks_per_iteration`` training tasks; the run ends early once about ``completions`` (0:
    no bound) were generated for training: its last iteration plays only as many tasks as are left to pay for.
    ``eval_every`` iterations, ``validation_tasks`` are played; before and after training, ``test_tasks``.
    ``lockstep`` is for the engines: they decode in common rounds, so that a seed fixes the run.
    """

    iterations: int
    tasks_per_iteration: int
    completions: int
    eval_every: int
    validation_tasks: int
    test_tasks: int
    lockstep: bool = True

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name == "lockstep":
                continue
            least = 0 if name in ("iterations", "completions") else 1
            if not isinstance(value, int) or value < least:
                raise ValueError(f"loop.{name} must be a whole number of at least {least}, got {value!r}")

    def over(self, progress: Progress) -> bool:
        """Whether all iterations are done, or all completions spent."""
        spent = 0 < self.completions <= progress.completions
        return progress.iteration >= self.iterations or spent


@dataclass
class Team:
    """Who plays and learns: engines and tokenizers by policy, and each agent's client in training and in evaluation.

    ``pools`` has each policy that learns, as its pool hands it out; ``schedules`` says in which iterations, where it is
    not all of them.
    """

    pools: Mapping[str, PolicyHandle]
    engines: Mapping[str, Engine]
    tokenizers: Mapping[str, PreTrainedTokenizerBase]
    training: Mapping[str, PolicyClient]
    evaluation: Mapping[str, PolicyClient]
    schedules: Mapping[str, Schedule] = field(default_factory=dict)

    def learning(self, iteration: int) -> list[str]:
        """The policies that learn after ``iteration`` iterations."""
        return [name for name in self.pools if name not in self.schedules or self.schedules[name].learns(iteration)]


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
    ) -> None:
        self.world, self.team, self.sampler, self.credit, self.router = world, team, sampler, credit, router
        self.settings, self.directory, self.checkpoints = settings, directory, checkpoints
        self.loggers, self.display, self.seed = loggers, display, seed
        self.ranks, self.progress = ranks or Ranks(), Progress()
        self.resample = sampler.resample
        self.whole = True  # False while some policies have learnt from an iteration and others have not
        self._held_out: dict[Split, list[Task]] = {}

    async def run(self) -> dict[str, Any]:
        """Train; returns the summary.  An interrupt leaves a run that can be continued, and is raised again.

        The summary's ``status`` is ``finished``, ``interrupted`` or ``failed`` (then ``error`` says why).
        """
        at, started = self.progress, time.perf_counter() - self.progress.wall_s
        status = "failed"
        try:
            at.summary |= _prefixed("world", await self.world.open())
            if "eval_before/success" not in at.summary:
                at.summary |= _prefixed("eval_before", await self.play("test", "before training"))
                self.directory.summary(at.summary)
                self.loggers.metrics(at.summary, at.iteration)
            await self._load()
            while at.row or not self.over():
                if not at.row:
                    row = await self.advance()
                    self.display.iteration(at.iteration, row, self.world.agents, self._expected())
                self._write(at.row | await self.validate())
                at.row, at.wall_s = {}, time.perf_counter() - started
                if self.checkpoints.due(at.iteration) or at.best_iteration == at.iteration or self.over():
                    self._checkpoint()
            await self._finish()
            status = "finished"
        except (KeyboardInterrupt, asyncio.CancelledError):
            status = "interrupted"
            raise
        finally:
            self._count(self._metered())
            at.wall_s = time.perf_counter() - started
            summary = at.totals() | {"status": status}
            if status == "failed":
                summary["error"] = _described(sys.exception())
            try:
                self._leave(summary)
            finally:
                self.loggers.close()
                for engine in self._engines():
                    await engine.close()
                await self.world.close()
        return summary

    async def advance(self) -> dict[str, Any]:
        """One iteration; returns its metrics.  Once the policies begin to learn from it, no interrupt stops it."""
        t0 = time.perf_counter()
        episodes = await self._collect()
        rollout_s, asked = time.perf_counter() - t0, await self._asked()
        return await uninterrupted(self._learn(episodes, rollout_s, asked))

    async def _collect(self) -> list[Episode]:
        seed, count = derive(self.seed, "train", self.progress.iteration), self._task_count()
        episodes = await self._sample(self.world.tasks("train", count, seed), seed)
        for _ in range(self.resample):  # tasks whose groups do not differ are replaced; what they cost still counts
            played = {episode.task.task_id for episode in episodes}
            missing = min(count - len(self.credit.live(kept(episodes))), self._payable() - len(played))
            if missing < 1:
                break
            drawn = self.world.tasks("train", len(played) + missing, derive(seed, "more", len(played)))
            episodes += await self._sample([task for task in drawn if task.task_id not in played][:missing], seed)
        return episodes

    async def _sample(self, tasks: Sequence[Task], seed: int) -> list[Episode]:
        played = await self.ranks.share(
            tasks, lambda mine: self.sampler.collect(self.world, mine, self.team.training, seed)
        )
        return [episode for episodes in played for episode in episodes]

    async def _learn(self, episodes: Sequence[Episode], rollout_s: float, asked: Mapping[str, float]) -> dict[str, Any]:
        t1 = time.perf_counter()
        played = kept(episodes)
        self.credit(played)
        batches = self.router.route(played, self.credit.key)
        for engine in self._engines():
            await engine.sleep()
        self.whole = False
        stats = await self._update(batches)
        t2 = time.perf_counter()
        measured = await self._load()
        times = {"rollout_s": rollout_s, "update_s": t2 - t1, "load_s": time.perf_counter() - t2}
        row = self.progress.count(rollout_metrics(episodes, rollout_s)) | _prefixed("rollout", measured)
        row |= asked
        for policy, values in stats.items():
            row |= {key if key.startswith("mismatch/") else f"train/{policy}/{key}": v for key, v in values.items()}
        self.progress.row = row | _prefixed("time", times)
        self.whole = True
        return self.progress.row

    def _metered(self) -> dict[str, float]:
        """What this process's engines have counted since the last call, by metric."""
        found: Counter[str] = Counter()
        for engine in self._engines():
            if isinstance(engine, Counting):
                found.update(engine.drain())
        return dict(found)

    def _count(self, asked: Mapping[str, float]) -> dict[str, float]:
        """Add ``asked`` to the totals of the summary; returns it."""
        self.progress.summary |= {key: self.progress.summary.get(key, 0) + value for key, value in asked.items()}
        return dict(asked)

    async def _asked(self) -> dict[str, float]:
        """What engines have counted since the last call, in all processes; added to the totals."""
        if not any(isinstance(engine, Counting) for engine in self._engines()):
            return {}

        async def mine(_: Sequence[int]) -> list[dict[str, float]]:
            return [self._metered()]

        everyone = await self.ranks.share(range(self.ranks.world), mine)
        return self._count({key: sum(one[key] for one in everyone) for key in everyone[0]})

    def _task_count(self) -> int:
        """``settings.tasks_per_iteration``; fewer where the bound on completions leaves less."""
        return max(1, min(self.settings.tasks_per_iteration, self._payable()))

    def _payable(self) -> int:
        """How many tasks the bound on completions leaves to play, judged by what a task has cost."""
        at = self.progress
        if not self.settings.completions or not at.task_cost:
            return sys.maxsize
        return round((self.settings.completions - at.completions) / at.task_cost)

    def _expected(self) -> int:
        """How many iterations the run will have, judged by what the tasks of the last one have cost."""
        at = self.progress
        left = math.ceil(max(0, self._payable()) / self.settings.tasks_per_iteration)
        return min(self.settings.iterations, at.iteration + left)

    async def _update(self, batches: Mapping[str, list]) -> dict[str, dict[str, float]]:
        mine: dict[Backbone, dict[str, list]] = {}  # by pool
        for name in self.team.learning(self.progress.iteration):
            if batches[name]:
                mine.setdefault(self.team.pools[name].pool, {})[name] = batches[name]
        updates = [pool.learn(groups) for pool, groups in mine.items()]
        if self.ranks.world > 1:  # processes must meet in the same order
            stats = [await update for update in updates]
        else:
            stats = await asyncio.gather(*updates)
        return {name: values for found in stats for name, values in found.items()}

    def _engines(self) -> list[Engine]:
        """Each once."""
        return list(dict.fromkeys(self.team.engines.values()))

    async def _load(self) -> dict[str, float]:
        """The weights of every policy that learns into its engine, and whatever sleeps awake; returns what engines
        measured of it, each metric at its largest.
        """
        measured: dict[str, float] = {}
        pools, engines = self.team.pools.items(), self.team.engines
        loads = [await engines[name].load(name, await pool.weights(), pool.version) for name, pool in pools]
        for found in (*loads, *[await engine.wake() for engine in self._engines()]):
            measured |= {key: max(value, measured.get(key, value)) for key, value in found.items()}
        return measured

    def over(self) -> bool:
        """Whether all iterations are done, or all completions spent."""
        return self.settings.over(self.progress)

    # ---- evaluation and checkpoints ---------------------------------------------------------------------------------

    def held_out(self, split: Split) -> list[Task]:
        """The tasks of an evaluation, the same at each; drawn once."""
        if split not in self._held_out:
            count = self.settings.test_tasks if split == "test" else self.settings.validation_tasks
            self._held_out[split] = self.world.tasks(split, count, 0)
        return self._held_out[split]

    async def play(self, split: Split, title: str, file: str | None = None) -> dict[str, Any]:
        """Evaluate the engines' present weights on ``split``; shows the result and writes the episodes to ``file``."""
        actors = {agent: PolicyActor(client) for agent, client in self.team.evaluation.items()}
        seed = derive(self.seed, "eval", split)
        results = await self.ranks.share(self.held_out(split), lambda mine: evaluate(self.world, mine, actors, seed))
        await self._asked()
        summary = summarise(results)
        self.directory.episodes(file or f"{split}_{self.progress.iteration:05d}", map(asdict, results))
        self.display.evaluation(title, summary)
        return summary

    async def validate(self) -> dict[str, Any]:
        """Where it is due, play the validation tasks and note whether these weights are the best.  Returns metrics."""
        at = self.progress
        if at.iteration % self.settings.eval_every and not self.over():
            return {}
        result = await self.play("validation", f"validation after iteration {at.iteration}")
        if result["success"] > at.best:
            at.best, at.best_iteration = result["success"], at.iteration
        return _prefixed("eval", result)

    async def _finish(self) -> None:
        """Score the last and the best weights once on the test tasks."""
        at = self.progress
        self._checkpoint()
        last = await self.play("test", "after training")
        best = last
        if at.best_iteration not in (None, at.iteration):
            for name, pool in self.team.pools.items():
                weights = checkpoint_weights(self.checkpoints.path / "best" / name)
                await self.team.engines[name].load(name, weights, pool.version)
            best = await self.play("test", "best on validation", "test_best")
        at.summary |= _prefixed("eval", last) | _prefixed("eval_best", best)

    def _checkpoint(self) -> None:
        if not self.ranks.first:
            return
        state = {**self.progress.state_dict(), "credit": self.credit.state_dict()}
        self.checkpoints.write(self.team.pools, self.team.tokenizers, state)

    def _write(self, row: Mapping[str, Any]) -> None:
        self.directory.metrics(row)
        self.loggers.metrics(row, self.progress.iteration)

    def _leave(self, summary: Mapping[str, Any]) -> None:
        """Write down what was reached; a checkpoint too, where the weights are those of a whole iteration."""
        if self.progress.row:
            self._write(self.progress.row)
        self.directory.summary(summary)
        self.loggers.metrics(_prefixed("summary", summary), self.progress.iteration)
        if self.whole:
            self._checkpoint()


def kept(episodes: Sequence[Episode]) -> list[Episode]:
    """The episodes that were not lost.  Raises :class:`.envs.base.WorldFailure` where all were."""
    found = [episode for episode in episodes if episode.failure is None]
    if not found and episodes:
        raise WorldFailure(f"all {len(episodes)} episodes are lost; the first: {episodes[0].failure}")
    return found


async def uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Await ``work`` to its end; a cancellation that arrives meanwhile is raised after it."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None and task.exception() is None:
        raise cancelled
    return task.result()


def _described(error: BaseException | None) -> str:
    return f"{type(error).__name__}: {error}"


def _prefixed(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}/{key}": value for key, value in values.items()}
