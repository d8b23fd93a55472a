"""The evaluations of a run that trains, on held-out tasks that are the same each time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..envs.base import TeamEnv
from ..experience import Split, Task
from ..models.pools.team import Team
from ..rollout.engines.requests import derive
from ..runs.budget import TrainSettings
from ..runs.metrics import prefixed, timed
from ..runs.output import RunOutput
from ..runs.progress import Progress
from ..runs.tables import episode_table
from .episodes import EpisodeResult, PolicyActor, evaluate
from .self_play import SelfPlay
from .summary import lost_failures, summarise


class HeldOut:
    """Evaluates ``team`` with the weights that its engines have."""

    def __init__(
        self,
        team: Team,
        tasks: Mapping[Split, Sequence[Task]],
        settings: TrainSettings,
        output: RunOutput,
        self_play: SelfPlay,
    ) -> None:
        self.team, self.tasks, self.settings, self.output, self.self_play = team, tasks, settings, output, self_play

    async def evaluate(
        self, world: TeamEnv, progress: Progress, split: Split, title: str, file: str | None = None
    ) -> dict[str, Any]:
        """Evaluate on ``split``; shows the result and writes the episodes to ``file``."""
        if not self.settings.loop.staleness:  # else prompts of training are under way
            await self.team.forget()
        await self.self_play.first()
        actors = {agent: PolicyActor(client) for agent, client in self.team.evaluation.items()}
        seed, faults, display = derive(self.settings.seed, "eval", split), self.settings.faults, self.output.display

        async def play(mine: Sequence[Task]) -> list[EpisodeResult]:
            display.phase("evaluation", len(mine), title)
            return await evaluate(
                world, mine, actors, seed, lambda result: display.evaluation_episode(result.messages), faults
            )

        results = await self.team.ranks.share(self.tasks[split], play)
        progress.add_counters(self.team.drain_all_counters())
        self.output.count_faults(progress, lost := lost_failures(results))
        faults.check(lost, len(results))
        summary, at = summarise(results), progress.iteration
        episodes, table = list(map(asdict, results)), file or split
        self.output.directory.episodes(file or f"{split}_{at:05d}", episodes)
        self.output.loggers.table(lambda: episode_table(table, episodes), at)
        display.evaluation(title, summary)
        return summary

    async def before_training(self, world: TeamEnv, progress: Progress) -> None:
        """Evaluate the team as it begins, where a run that goes on has not done so."""
        summary = progress.summary
        if "eval_before/success" not in summary:
            summary |= prefixed("eval_before", await self.evaluate(world, progress, "test", "before training"))
            self.output.summary(summary, summary, progress.iteration)
        if self.settings.loop.validate_first and "validation_before/success" not in summary:
            result = await self.evaluate(world, progress, "validation", "validation before training")
            summary |= prefixed("validation_before", result)

    async def validate(self, world: TeamEnv, progress: Progress, *, last: bool) -> dict[str, Any]:
        """Evaluate on the validation tasks where it is due, as it is in the ``last`` iteration, and note whether these
        weights are the best; returns metrics.
        """
        if progress.iteration % self.settings.loop.eval_every and not last:
            return {}
        times: dict[str, float] = {}
        with timed(times, "validation"):
            title = f"validation after iteration {progress.iteration}"
            result = await self.evaluate(world, progress, "validation", title)
        if result["success"] > progress.best:
            progress.best, progress.best_iteration = result["success"], progress.iteration
        return prefixed("eval", result) | times
