"""What every rule refuses: numbers that are not finite, and settings without sense."""

import math
from collections.abc import Callable

import pytest

from troupe.algorithms.credit.at_grpo import AtGrpo
from troupe.algorithms.credit.checks import CreditError
from troupe.algorithms.credit.grpo import Grpo
from troupe.experience import Completion, Episode

Tree = Callable[..., Episode]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("field", ["local", "team", "reward"])
def test_a_reward_that_is_not_finite_names_the_episode(tree: Tree, field: str, value: float) -> None:
    episodes = [tree(("tool", 0, [1, 0])), tree(("tool", 0, [1, 0]), ("plan", 2, [1, 0]), task="board-7")]
    setattr(episodes[1].nodes[1].candidates[1], field, value)
    with pytest.raises(CreditError, match=rf"board-7, sample 0: candidate 1 of agent 'plan' at turn 2.*{value}"):
        AtGrpo()(episodes)
    assert all(candidate.advantage is None for episode in episodes for _, candidate in episode.candidates())


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_logprob_that_is_not_finite_names_the_episode(tree: Tree, value: float) -> None:
    episode = tree(("tool", 0, [1, 0]), task="board-7")
    episode.nodes[0].candidates[0].completion = Completion((1, 2), (-0.5, value), "U", "stop", "scout", 0)
    with pytest.raises(CreditError, match=r"board-7.*policy 'scout'\) has a log-probability of"):
        AtGrpo()([episode])


def test_a_return_that_is_not_finite_names_the_episode(chain: Callable[..., Episode]) -> None:
    episodes = [chain(1, ["solo"]), chain(math.nan, ["solo"], task="board-7", sample=3)]
    with pytest.raises(CreditError, match=r"episode board-7, sample 3: its return is not finite"):
        Grpo()(episodes)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"baseline": "median"},
            r"algorithm\.credit\.baseline must be one of .*leave_one_out.* got 'median'",
        ),
        ({"baseline": "none"}, r"algorithm\.credit\.normalise=true with baseline=none"),
        ({"normalise": "batch"}, r"algorithm\.credit\.normalise must be true or false, got 'batch'"),
    ],
)
def test_settings_without_sense_are_named(settings: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Grpo(**settings)  # type: ignore[arg-type]


def test_an_unknown_weight_is_named() -> None:
    with pytest.raises(ValueError, match=r"algorithm\.credit\.weight must be message or episode, got 'turn'"):
        Grpo(weight="turn")  # type: ignore[arg-type]
