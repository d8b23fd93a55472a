"""GiGPO by hand: episodes, and messages that were sent in one state."""

from collections.abc import Callable, Sequence

import pytest

from troupe.algorithms.credit.checks import CreditError
from troupe.algorithms.credit.gigpo import Gigpo
from troupe.experience import Episode

Chain = Callable[..., Episode]
Advantages = Callable[[Sequence[Episode]], list[list[float | None]]]


def test_gigpo_by_hand(chain: Chain, advantages: Advantages) -> None:
    """Two solo episodes that start in one state; the first succeeds in its second turn, the second never does."""
    episodes = [
        chain(1, ["solo"] * 2, team=[0, 1], local=[0.1, 0], states=["start", "half"]),
        chain(0, ["solo"] * 2, team=[0, 0], local=[0, 0.2], states=["start", "far"], sample=1),
    ]
    Gigpo(omega=2.0, gamma=0.5, normalise=False)(episodes)
    # A^E = 1/2, -1/2.  In "start": 0.1 + 0.5 * 1 = 0.6 against 0: +-0.3.  "half" and "far" were met once.
    assert advantages(episodes) == [
        pytest.approx([0.5 + 2 * 0.3, 0.5], abs=1e-12),
        pytest.approx([-0.5 - 2 * 0.3, -0.5], abs=1e-12),
    ]


def test_gigpo_counts_what_was_earned_on_the_world(chain: Chain, advantages: Advantages) -> None:
    """Two agents a turn: the tool's proposal would have solved it (team 1, judged on a copy), the planner fails."""
    settings = {"turns": [0, 0], "states": ["a", "b"]}
    episodes = [
        chain(0, ["tool", "plan"], team=[1, 0], **settings),
        chain(0, ["tool", "plan"], team=[0, 1], sample=1, **settings),
    ]
    Gigpo(omega=1.0, alpha=1.0, normalise=False)(episodes)
    # What came of the proposals is the planner's 0 and 1, not their own 1 and 0.
    assert advantages(episodes) == [[-0.5, -0.5], [0.5, 0.5]]


def test_gigpo_keeps_agents_and_tasks_apart(chain: Chain, advantages: Advantages) -> None:
    episodes = [
        chain(0, ["tool", "plan"], team=[0, 1], states=["a", "a"], turns=[0, 1]),
        chain(0, ["plan"], team=[0], states=["a"], task="u"),
    ]
    Gigpo(normalise=False)(episodes)
    assert advantages(episodes) == [[0, 0], [0]]


def test_gigpo_needs_states(chain: Chain) -> None:
    episode = chain(1, ["solo"], task="board-7")
    episode.nodes[0].state = None
    with pytest.raises(CreditError, match="episode board-7, sample 0: the sampler recorded no state"):
        Gigpo()([episode])


@pytest.mark.parametrize("settings", [{"omega": -1.0}, {"gamma": 1.5}])
def test_gigpos_settings_are_named(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"algorithm\.credit: omega"):
        Gigpo(**settings)  # type: ignore[arg-type]
