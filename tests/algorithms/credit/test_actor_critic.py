"""Generalised advantage estimation: by hand, against the double sum, and its limits; what an actor-critic refuses."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.algorithms.credit.actor_critic import gae
from troupe.algorithms.credit.checks import CreditError
from troupe.algorithms.credit.iac import Iac
from troupe.algorithms.credit.maac import Maac
from troupe.experience import Episode

NUMBERS = st.floats(-10, 10)
TRAJECTORIES = st.lists(st.tuples(NUMBERS, NUMBERS), max_size=8)
SHARES = st.floats(0, 1)


def test_gae_by_hand() -> None:
    # gamma 1/2, lambda 1/2; deltas: 1 + .5 * 1 - 2 = -.5;  0 + .5 * 4 - 1 = 1;  2 - 4 = -2.
    # A_2 = -2;  A_1 = 1 + .25 * -2 = .5;  A_0 = -.5 + .25 * .5 = -.375.
    assert gae([1, 0, 2], [2, 1, 4], 0.5, 0.5) == [-0.375, 0.5, -2.0]
    assert gae([], [], 0.5, 0.5) == []


@given(TRAJECTORIES, SHARES, SHARES)
def test_gae_is_the_double_sum(trajectory: list[tuple[float, float]], gamma: float, gae_lambda: float) -> None:
    rewards, values = [r for r, _ in trajectory], [v for _, v in trajectory]
    count, after = len(trajectory), [*values[1:], 0.0]
    deltas = [r + gamma * v_next - v for r, v, v_next in zip(rewards, values, after[:count], strict=True)]
    expected = [sum((gamma * gae_lambda) ** (k - t) * deltas[k] for k in range(t, count)) for t in range(count)]
    assert gae(rewards, values, gamma, gae_lambda) == pytest.approx(expected, abs=1e-9)


@given(TRAJECTORIES, SHARES)
def test_with_lambda_1_it_is_the_return_less_the_value(trajectory: list[tuple[float, float]], gamma: float) -> None:
    rewards, values = [r for r, _ in trajectory], [v for _, v in trajectory]
    returns = [sum(gamma ** (k - t) * rewards[k] for k in range(t, len(rewards))) for t in range(len(rewards))]
    expected = [r - v for r, v in zip(returns, values, strict=True)]
    assert gae(rewards, values, gamma, 1.0) == pytest.approx(expected, abs=1e-9)
    # A critic that knows these very returns leaves no advantage, whatever lambda is.
    assert gae(rewards, returns, gamma, 0.3) == pytest.approx([0.0] * len(rewards), abs=1e-9)


@pytest.mark.parametrize("rule", [Iac, Maac])
@pytest.mark.parametrize("key", ["gamma", "gae_lambda", "std_floor"])
def test_values_out_of_range_are_named(rule: type[Iac | Maac], key: str) -> None:
    with pytest.raises(ValueError, match=rf"algorithm\.credit\.{key} must be"):
        rule(**{key: -0.1})


def test_an_episode_without_values_is_refused(chain: Callable[..., Episode]) -> None:
    episode = chain(1, ["tool", "plan"], team=[0, 1], turns=[0, 0])
    with pytest.raises(CreditError, match="episode t, sample 0: a node has no value"):
        Maac()([episode])
    assert Maac().live([episode]) == {"t"}
    Maac().check(1, "chain")  # one episode is enough
    with pytest.raises(ValueError, match="judges episodes of a chain sampler"):
        Iac().check(4, "tree")
