"""TrainLoop: the corridor.  The only place where order is decided."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from transformers import PreTrainedTokenizerBase

from .algorithms.base import CreditRule
from .envs.base import TeamEnv
from .evaluation import PolicySpeaker, evaluate, summarise
from .experience import Episode, Split, Task
from .models.laptop import checkpoint_weights
from .models.pool import LocalPool
from .reports.display import Display
from .reports.metrics import rollout_metrics
from .reports.run_directory import RunDirectory
from .rollout.base import Engine, Sampler
from .rollout.seeds import derive
from .rollout.voice import Voice
from .routing import Router

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoopSettings:
    """How long and how often.

    ``iterations`` in total; ``boards`` training tasks an iteration; the run ends early once about ``completions`` (0:
    no bound) were generated for training: its last iteration plays only as many tasks as are left to pay for.
    ``eval_every`` iterations, ``validation_tasks`` are played; before and after training, ``test_tasks``.
    ``lockstep`` is for the engines: they decode in common rounds, so that a seed fixes the run.
    """

    iterations: int
    boards: int
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


@dataclass
class Team:
    """Who plays and learns: pools by policy, their engines, and each agent's voice in training and in evaluation."""

    pools: Mapping[str, LocalPool]
    engines: Mapping[str, Engine]
    tokenizers: Mapping[str, PreTrainedTokenizerBase]
    training: Mapping[str, Voice]
    evaluation: Mapping[str, Voice]


class TrainLoop:
    """Rollout, credit, routing, update, new weights to the engines; evaluation and reports in between."""

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
        display: Display,
        seed: int,
    ) -> None:
        self.world, self.team, self.sampler, self.credit, self.router = world, team, sampler, credit, router
        self.settings, self.directory, self.display, self.seed = settings, directory, display, seed
        self.resample = sampler.resample
        self.iteration = self.completions = self.tokens = self.env_steps = 0
        self._cost = 0.0  # completions a board, in the last iteration
        self.best = -1.0
        self.summary: dict[str, Any] = {}

    async def run(self) -> dict[str, Any]:
        """Train; returns the summary.  An interrupt leaves a usable run directory and is raised again."""
        started = time.perf_counter()
        try:
            self.summary |= _prefixed("eval_before", await self.play("test", "before training"))
            self.directory.summary(self.summary)
            while self.iteration < self.settings.iterations and not self._spent():
                row = await self.advance()
                try:
                    self.display.iteration(self.iteration, row, self.world.agents)
                    last = self.iteration == self.settings.iterations or self._spent()
                    if self.iteration % self.settings.eval_every == 0 or last:
                        row |= await self.validate()
                finally:
                    self.directory.metrics(row)
            await self._finish()
        except (KeyboardInterrupt, asyncio.CancelledError):
            self.summary["interrupted"] = True
            raise
        finally:
            self.summary |= {
                "iterations": self.iteration,
                "train/completions": self.completions,
                "train/tokens": self.tokens,
                "train/env_steps": self.env_steps,
                "time/wall_s": time.perf_counter() - started,
            }
            self._checkpoint("last")
            self.directory.summary(self.summary)
            for engine in set(self.team.engines.values()):
                await engine.close()
        return self.summary

    async def advance(self) -> dict[str, Any]:
        """One iteration; returns its metrics."""
        t0 = time.perf_counter()
        episodes = await self._collect()
        t1 = time.perf_counter()
        self.credit(episodes)
        batches = self.router.route(episodes, self.credit.key)
        stats = await self._update(batches)
        t2 = time.perf_counter()
        await self._load()
        return self._report(episodes, stats, t1 - t0, t2 - t1, time.perf_counter() - t2)

    async def _collect(self) -> list[Episode]:
        seed, boards = derive(self.seed, "train", self.iteration), self._boards()
        tasks = self.world.tasks("train", boards, seed)
        episodes = await self.sampler.collect(self.world, tasks, self.team.training, seed)
        for _ in range(self.resample):  # tasks whose groups do not differ are replaced; what they cost still counts
            played = {episode.task.task_id for episode in episodes}
            missing = min(boards - len(self.credit.live(episodes)), self._payable() - len(played))
            if missing < 1:
                break
            drawn = self.world.tasks("train", len(played) + missing, derive(seed, "more", len(played)))
            tasks = [task for task in drawn if task.task_id not in played][:missing]
            episodes += await self.sampler.collect(self.world, tasks, self.team.training, seed)
        return episodes

    def _boards(self) -> int:
        """``settings.boards``; fewer where the bound on completions leaves less."""
        return max(1, min(self.settings.boards, self._payable()))

    def _payable(self) -> int:
        """How many tasks the bound on completions leaves to play, judged by what a task has cost."""
        if not self.settings.completions or not self._cost:
            return sys.maxsize
        return round((self.settings.completions - self.completions) / self._cost)

    async def _update(self, batches: Mapping[str, list]) -> dict[str, dict[str, float]]:
        names = [name for name, groups in batches.items() if groups]
        stats = await asyncio.gather(*(self.team.pools[name].update(batches[name]) for name in names))
        return dict(zip(names, stats, strict=True))

    async def _load(self) -> None:
        """Every pool's weights into its engine."""
        for name, pool in self.team.pools.items():
            await self.team.engines[name].load(name, await pool.weights(), pool.version)

    def _report(
        self,
        episodes: Sequence[Episode],
        stats: dict[str, dict[str, float]],
        rollout: float,
        update: float,
        load: float,
    ) -> dict[str, Any]:
        self.iteration += 1
        row = {"iteration": self.iteration, **rollout_metrics(episodes, rollout)}
        for policy, values in stats.items():
            row |= _prefixed(f"train/{policy}", values)
        row |= {"time/rollout_s": rollout, "time/update_s": update, "time/load_s": load}
        self.completions += int(row["rollout/completions"])
        self._cost = row["rollout/completions"] / len({episode.task.task_id for episode in episodes})
        self.tokens += int(row["rollout/tokens"])
        self.env_steps += int(row["rollout/env_steps"])
        return row

    # ---- evaluation and checkpoints ---------------------------------------------------------------------------------

    def held_out(self, split: Split) -> list[Task]:
        count = self.settings.test_tasks if split == "test" else self.settings.validation_tasks
        return self.world.tasks(split, count, 0)

    async def play(self, split: Split, title: str, file: str | None = None) -> dict[str, Any]:
        """Evaluate the engines' present weights on ``split``; shows the result and writes the episodes to ``file``."""
        speakers = {agent: PolicySpeaker(voice) for agent, voice in self.team.evaluation.items()}
        results = await evaluate(self.world, self.held_out(split), speakers, derive(self.seed, "eval", split))
        summary = summarise(results)
        self.directory.episodes(file or f"{split}_{self.iteration:05d}", map(asdict, results))
        self.display.evaluation(title, summary)
        return summary

    async def validate(self) -> dict[str, Any]:
        """Play the validation tasks; keep the weights where they are the best so far.  Returns flat metrics."""
        result = await self.play("validation", f"validation after {self.iteration} iterations")
        self._checkpoint("last")
        if result["success"] > self.best:
            self.best = result["success"]
            self._checkpoint("best")
        return _prefixed("eval", result)

    async def _finish(self) -> None:
        """Score the last and the best weights once on the test tasks."""
        self.summary |= _prefixed("eval", await self.play("test", "after training"))
        best = self.directory.checkpoints / "best"
        if best.exists() and json.loads((best / "state.json").read_text())["iteration"] != self.iteration:
            for name, pool in self.team.pools.items():
                await self.team.engines[name].load(name, checkpoint_weights(best / name), pool.version)
            self.summary |= _prefixed("eval_best", await self.play("test", "best on validation", "test_best"))
        else:
            self.summary |= {
                key.replace("eval/", "eval_best/", 1): value
                for key, value in self.summary.items()
                if key.startswith("eval/")
            }

    def _checkpoint(self, name: str) -> None:
        """Write every policy as ``from_pretrained`` reads it, through a temporary folder."""
        folder = self.directory.checkpoints / name
        temporary, old = folder.with_name(name + ".tmp"), folder.with_name(name + ".old")
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
        for policy, pool in self.team.pools.items():
            pool.export(temporary / policy)
            self.team.tokenizers[policy].save_pretrained(temporary / policy)
        state = {"iteration": self.iteration, "versions": {name: p.version for name, p in self.team.pools.items()}}
        (temporary / "state.json").write_text(json.dumps(state) + "\n")
        if folder.exists():
            os.replace(folder, old)
        os.replace(temporary, folder)
        shutil.rmtree(old, ignore_errors=True)

    def _spent(self) -> bool:
        return 0 < self.settings.completions <= self.completions


def _prefixed(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{prefix}/{key}": value for key, value in values.items()}
