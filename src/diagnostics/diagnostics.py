"""Diagnostics: what the training loop asks for, by the settings of a run."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any

from ..envs.base import TeamEnv
from ..experience import Episode, Node, Task
from ..models.pools.team import Team
from ..rollout.engines.requests import derive
from ..rollout.playing import complete_tasks
from ..rollout.samplers.sampler import Sampler
from ..runs.faults import FaultSettings
from ..runs.metrics import timed
from ..runs.output import RunOutput
from ..runs.progress import Progress
from .alarms import Alarm, State, alarms, check
from .extra_episodes import PROBE, Extra, ExtraEpisodes, cost, influence
from .messages import message_metrics
from .settings import DiagnosticsSettings
from .trees import TreeKeeper


class Diagnostics:
    """What is measured beside training.  It changes no weight: it only reads what training makes, and its own episodes
    have seeds of their own.

    ``beside``: what it plays and draws is done while training goes on, see :class:`.extra_episodes.ExtraEpisodes`.
    """

    def __init__(
        self, settings: DiagnosticsSettings, team: Team, output: RunOutput, faults: FaultSettings, *, beside: bool
    ) -> None:
        self.settings, self.output = settings, output
        self.extra = ExtraEpisodes(team, faults, beside=beside)
        self.trees = TreeKeeper(settings.trees, team, output, beside=beside)

    def due(self, iteration: int) -> bool:
        """Whether what is measured every so many iterations is measured after ``iteration`` of them."""
        return self._is_due(iteration, self.settings.every)

    def keeps_trees(self, iteration: int) -> bool:
        """Whether training trees are kept after ``iteration`` of them."""
        return self._is_due(iteration, self.settings.trees.every)

    def _is_due(self, iteration: int, every: int) -> bool:
        """Whether what is done ``every`` so many iterations, from the first on, is done after ``iteration``."""
        return self.settings.enabled and every > 0 and iteration % every == 0

    def extras(
        self,
        iteration: int,
        world: TeamEnv,
        sampler: Sampler,
        tasks: Sequence[Task],
        watched: Sequence[Task],
        seed: int,
    ) -> dict[str, Extra]:
        """What is played beside the rollout of ``tasks``: the ``probe`` on the first of them, and the first of the
        ``watched`` ones by the run's own ``sampler``; ``seed`` is the iteration's.

        No probe of a world that cannot be forked: it tries several messages in one state.
        """
        extras = {}
        if self.due(iteration) and world.forkable:
            extras["probe"] = Extra(world, PROBE, tasks[: self.settings.probe_tasks], derive(seed, "probe"))
        if self.keeps_trees(iteration) and (count := self.settings.trees.watched):
            extras["watched"] = Extra(world, sampler, watched[:count], derive(seed, "watched"))
        return extras

    async def end(self, iteration: int, extras: Mapping[str, Extra], metrics: dict[str, float]) -> list[Episode]:
        """The watched episodes of ``extras``, complete ones, once all are played; adds ``metrics`` of them."""
        if not extras:
            return []
        self.output.display.phase("probe")
        with timed(metrics, "probe"):
            played = await self.extra.end(iteration, extras)
        metrics |= self.output.observers.run("diagnostics", self._of_extras, played) or {}
        return complete_tasks(played.get("watched", []), least=0)

    def _of_extras(self, played: Mapping[str, Sequence[Episode]]) -> dict[str, float]:
        found = influence(played["probe"]) if "probe" in played else {}
        for name, episodes in played.items():
            found |= cost(episodes, name)
        return _named(found)

    def messages(self, episodes: Sequence[Episode], key: Callable[[Node], Hashable]) -> dict[str, float]:
        """Flat ``diagnostics/...`` metrics of ``episodes`` with credit, none of them lost; ``key`` is the rule's."""
        return _named(message_metrics(episodes, key)) if self.settings.enabled else {}

    def check(self, row: Mapping[str, Any], state: State) -> None:
        """Add an iteration's ``row`` to the ``state`` of the alarms."""
        if self.settings.enabled:
            check(row, self.settings.alarms, state)

    def show_alarms(self, progress: Progress) -> None:
        """Show the alarms that are raised now, and write all to the summary, in case that the run is killed."""

        def active() -> dict[str, str]:
            return {alarm.title: str(alarm) for alarm in self._alarms(progress) if alarm.until is None}

        self.output.display.alarms(self.output.observers.run("diagnostics", active) or {})
        if raised := self.raised(progress):
            self.output.directory.summary(progress.summary | {"alarms": raised})

    def raised(self, progress: Progress) -> list[dict[str, Any]]:
        """All alarms that were raised so far, as ``summary.json`` has them."""
        run = self.output.observers.run
        return run("diagnostics", lambda: [alarm.record() for alarm in self._alarms(progress)]) or []

    def _alarms(self, progress: Progress) -> Iterator[Alarm]:
        return alarms(progress.alarms, self.settings.alarms, self.trees.policies)

    async def stop(self) -> None:
        """End what is played, and wait for what is written."""
        await self.extra.stop()
        await self.trees.written()


def _named(metrics: Mapping[str, float]) -> dict[str, float]:
    return {f"diagnostics/{name}": value for name, value in metrics.items()}
