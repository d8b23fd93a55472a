"""DAPO's dynamic sampling (arXiv 2503.14476, section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence

from ...experience import Episode
from .grpo import Grpo


class DynamicSampling(Grpo):
    """GRPO's advantages in tasks of which some episodes succeed and some fail; 0 in all others.

    The filter is the outcome (equation 11: 0 < number of correct answers < G) and not the return, which differs within
    most groups where rewards are dense: two failures with unequal progress teach nothing here.  With the sampler's
    ``resample`` further tasks are played; ``update.live_groups_only`` leaves them out of the loss.
    """

    def __call__(self, episodes: Sequence[Episode]) -> None:
        super().__call__(episodes)
        contested = _contested(episodes)
        for episode in episodes:
            if episode.task.task_id not in contested:
                for _, candidate in episode.candidates():
                    candidate.advantage = 0.0

    def live(self, episodes: Sequence[Episode]) -> set[str]:
        return super().live(episodes) & _contested(episodes)


def _contested(episodes: Sequence[Episode]) -> set[str]:
    """The tasks (``task_id``) that some of ``episodes`` solve and some do not."""
    results: dict[str, set[bool]] = {}
    for episode in episodes:
        results.setdefault(episode.task.task_id, set()).update(outcome.success for outcome in episode.outcomes)
    return {task_id for task_id, successes in results.items() if len(successes) == 2}
