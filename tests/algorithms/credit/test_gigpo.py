"""GiGPO by hand: episodes, and messages at one anchor."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from troupe.algorithms.credit.gigpo import Gigpo
from troupe.experience import Episode

Chain = Callable[..., Episode]
Advantages = Callable[[Sequence[Episode]], list[list[float | None]]]


def test_gigpo_by_hand(chain: Chain, advantages: Advantages) -> None:
    """Two solo episodes that start in one state; the first succeeds in its second turn, the second never does."""
    episodes = [
        chain(1, ["solo"] * 2, team=[0, 1], local=[0.1, 0], anchors=["start", "half"]),
        chain(0, ["solo"] * 2, team=[0, 0], local=[0, 0.2], anchors=["start", "far"], sample=1),
    ]
    Gigpo(omega=2.0, gamma=0.5, normalise=False)(episodes)
    # A^E = 1/2, -1/2.  In "start": 0.1 + 0.5 * 1 = 0.6 against 0 + 0.5 * 0.2 = 0.1: +-0.25.  The others were met once.
    assert advantages(episodes) == [
        pytest.approx([0.5 + 2 * 0.25, 0.5], abs=1e-12),
        pytest.approx([-0.5 - 2 * 0.25, -0.5], abs=1e-12),
    ]


def test_an_agents_later_own_rewards_count_and_those_of_others_do_not(chain: Chain, advantages: Advantages) -> None:
    settings = {"turns": [0, 0, 1, 1], "team": [0.0] * 4, "anchors": ["a", "b", "c", "d"]}
    episodes = [
        chain(0, ["tool", "plan"] * 2, local=[0, 0, 0.4, 0], **settings),
        chain(0, ["tool", "plan"] * 2, local=[0, 0, 0, 0.2], sample=1, **settings),
    ]
    Gigpo(gamma=0.5, normalise=False)(episodes)
    # Turn 0: the tool 0.5 * 0.4 against 0, the planner 0 against 0.5 * 0.2; turn 1: 0.4 against 0, 0 against 0.2.
    assert advantages(episodes) == [
        pytest.approx([0.1, -0.05, 0.2, -0.1], abs=1e-12),
        pytest.approx([-0.1, 0.05, -0.2, 0.1], abs=1e-12),
    ]


def test_gigpo_counts_what_was_earned_on_the_world(chain: Chain, advantages: Advantages) -> None:
    """Two agents a turn: the tool's proposal would have solved it (team 1, judged on a copy), the planner fails."""
    settings = {"turns": [0, 0], "anchors": ["a", "b"]}
    episodes = [
        chain(0, ["tool", "plan"], team=[1, 0], **settings),
        chain(0, ["tool", "plan"], team=[0, 1], sample=1, **settings),
    ]
    Gigpo(omega=1.0, alpha=1.0, normalise=False)(episodes)
    # What came of the proposals is the planner's 0 and 1, not their own 1 and 0.
    assert advantages(episodes) == [[-0.5, -0.5], [0.5, 0.5]]


def test_gigpo_where_the_turn_falls(chain: Chain, advantages: Advantages) -> None:
    """Calls of a workflow by a, a and b: the second ends no turn, and the third is paid for both."""
    settings = {"turns": [0, 1, 0], "anchors": ["a", "b", "c"]}
    episodes = [
        chain(0, ["a", "a", "b"], team=[0.5, 0.125, 1.375], **settings),
        chain(0, ["a", "a", "b"], team=[0, 0, 0], sample=1, **settings),
    ]
    Gigpo(gamma=0.5, normalise=False)(episodes)
    # R: .5 + .5 * 1.375, then 1.375 twice, against 0.
    assert advantages(episodes)[0] == pytest.approx([1.1875 / 2, 1.375 / 2, 1.375 / 2], abs=1e-12)


def test_gigpo_keeps_agents_and_tasks_apart(chain: Chain, advantages: Advantages) -> None:
    episodes = [
        chain(0, ["tool", "plan"], team=[0, 1], anchors=["a", "a"], turns=[0, 1]),
        chain(0, ["plan"], team=[0], anchors=["a"], task="u"),
    ]
    Gigpo(normalise=False)(episodes)
    assert advantages(episodes) == [[0, 0], [0]]


def test_a_states_turn_does_not_separate_messages(chain: Chain, advantages: Advantages) -> None:
    """The second episode is in the first's state one turn later, and its ``state_key`` says so."""
    episodes = [
        chain(1, ["solo"], team=[1], anchors=["here"], states=["0/here"]),
        chain(0, ["solo"] * 2, team=[0, 0], anchors=["there", "here"], states=["0/there", "1/here"], sample=1),
    ]
    Gigpo(normalise=False)(episodes)
    assert advantages(episodes) == [[0.5 + 0.5], [-0.5, -0.5 - 0.5]]


@pytest.mark.parametrize("settings", [{"anchor": "prompt", "anchors": ["a", "b"]}, {"anchor": "view"}])
def test_by_prompt_or_where_the_world_does_not_tell(
    chain: Chain, advantages: Advantages, settings: dict[str, Any]
) -> None:
    rule = Gigpo(normalise=False, anchor=settings.pop("anchor"))
    episodes = [chain(1, ["solo"] * 2, team=[0.5, 0.5], **settings), chain(0, ["solo"] * 2, sample=1, **settings)]
    episodes[1].nodes[1].prompt_ids = episodes[0].nodes[1].prompt_ids
    rule(episodes)
    assert advantages(episodes) == [[0.5, 0.5 + 0.25], [-0.5, -0.5 - 0.25]]


@pytest.mark.parametrize("settings", [{"omega": -1.0}, {"gamma": 1.5}, {"anchor": "board"}])
def test_gigpos_settings_are_named(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"algorithm\.credit\.{next(iter(settings))} must be"):
        Gigpo(**settings)
