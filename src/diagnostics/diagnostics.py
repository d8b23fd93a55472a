"""Diagnostics: what the training loop asks for, by the settings of a run."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from ..envs.base import TeamEnv
from ..evaluation.episodes import EpisodeResult
from ..experience import Episode, Node, Task
from ..faults import FaultSettings
from ..models.ranks import Ranks
from ..rollout.policy_client import PolicyClient
from ..rollout.seeds import derive
from .alarms import State, alarms, check
from .influence import PROBE, cost, influence
from .messages import message_metrics
from .settings import DiagnosticsSettings
from .states import divergence


class Diagnostics:
    """What is measured beside training.  It changes no weight: it only reads what training makes, and its own episodes
    have seeds of their own.

    ``team`` maps agent to policy.
    """

    def __init__(self, settings: DiagnosticsSettings, team: Mapping[str, str]) -> None:
        self.settings, self.team = settings, dict(team)

    def due(self, iteration: int) -> bool:
        """Whether what is measured every so many iterations is measured after ``iteration`` of them."""
        return self._is_due(iteration, self.settings.every)

    def keeps_trees(self, iteration: int) -> bool:
        """Whether training trees are kept after ``iteration`` of them."""
        return self._is_due(iteration, self.settings.trees.every)

    def _is_due(self, iteration: int, every: int) -> bool:
        """Whether what is done ``every`` so many iterations, from the first on, is done after ``iteration``."""
        return self.settings.enabled and every > 0 and iteration % every == 0

    async def probe(
        self,
        world: TeamEnv,
        tasks: Sequence[Task],
        clients: Mapping[str, PolicyClient],
        seed: int,
        ranks: Ranks,
        faults: FaultSettings,
    ) -> dict[str, float]:
        """Flat ``diagnostics/...`` metrics of further episodes on the first of ``tasks``, shared among the processes;
        ``seed`` is the iteration's.  Raises the exception of a fault that ``faults`` does not drop.

        None of a world that cannot be forked: the probe tries several messages in one state.
        """
        if not world.forkable:
            return {}

        def ended(episode: Episode) -> None:
            if episode.failure is not None:
                faults.raise_if_stopping(episode.failure)

        own, some = derive(seed, "probe"), tasks[: self.settings.probe_tasks]
        by_task = await ranks.share(some, lambda mine: PROBE.collect(world, mine, clients, own, ended))
        episodes = [episode for episodes in by_task for episode in episodes]
        return _named(influence(episodes) | cost(episodes))

    def messages(self, episodes: Sequence[Episode], key: Callable[[Node], Hashable]) -> dict[str, float]:
        """Flat ``diagnostics/...`` metrics of ``episodes`` with credit, none of them lost; ``key`` is the rule's."""
        return _named(message_metrics(episodes, key)) if self.settings.enabled else {}

    def evaluation(self, row: Mapping[str, Any], results: Sequence[EpisodeResult]) -> dict[str, float]:
        """Metrics of an evaluation, of its ``results``, beside the training iteration of ``row``."""
        return divergence(row, results)

    def check(self, row: Mapping[str, Any], state: State) -> None:
        """Add an iteration's ``row`` to the ``state`` of the alarms."""
        if self.settings.enabled:
            check(row, self.settings.alarms, state)

    def active(self, state: State) -> dict[str, str]:
        """The alarms that are raised now: a line for each, by a name."""
        raised = alarms(state, self.settings.alarms, self.team)
        return {alarm.title: str(alarm) for alarm in raised if alarm.until is None}

    def records(self, state: State) -> list[dict[str, Any]]:
        """All alarms that were raised so far, as ``summary.json`` has them."""
        return [alarm.record() for alarm in alarms(state, self.settings.alarms, self.team)]


def _named(metrics: Mapping[str, float]) -> dict[str, float]:
    return {f"diagnostics/{name}": value for name, value in metrics.items()}
