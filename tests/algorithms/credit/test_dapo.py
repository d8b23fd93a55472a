"""DAPO's dynamic sampling by hand: by success, not by return."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from troupe.algorithms.credit.dapo import DynamicSampling
from troupe.algorithms.credit.grpo import Grpo
from troupe.experience import Episode, JointAction

Chain = Callable[..., Episode]
Advantages = Callable[[Sequence[Episode]], list[list[float | None]]]


def failed(episode: Episode) -> Episode:
    """``episode`` with a return, but without success."""
    last = episode.edges[-1]
    assert last.outcome is not None
    episode.edges[-1] = JointAction(last.members, outcome=replace(last.outcome, success=False))
    return episode


def three_tasks(chain: Chain) -> list[Episode]:
    """t fails with unequal progress, u succeeds with unequal progress, v fails once and succeeds once."""
    episodes = [failed(chain(value, ["solo"], sample=i)) for i, value in enumerate([0.1, 0.3])]
    episodes += [chain(value, ["solo"], task="u", sample=i) for i, value in enumerate([1.1, 1.3])]
    return [*episodes, failed(chain(0.25, ["solo"], task="v")), chain(1.25, ["solo"] * 2, task="v", sample=1)]


def test_tasks_that_all_episodes_solve_or_fail_teach_nothing(chain: Chain, advantages: Advantages) -> None:
    episodes = three_tasks(chain)
    rule = DynamicSampling(normalise=False)
    assert rule.live(episodes) == {"v"}
    rule(episodes)
    assert advantages(episodes) == [[0.0], [0.0], [0.0], [0.0], [-0.5], [0.5, 0.5]]
    assert Grpo().live(episodes) == {"t", "u", "v"}  # dense returns differ everywhere


def test_equal_returns_teach_nothing_either(chain: Chain) -> None:
    episodes = [failed(chain(1, ["solo"])), chain(1, ["solo"], sample=1)]
    assert DynamicSampling().live(episodes) == set()
