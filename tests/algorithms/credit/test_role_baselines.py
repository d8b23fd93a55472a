"""Running baselines per role, by hand, and whatever the returns are."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from troupe.algorithms.credit.role_baselines import RoleBaselines
from troupe.experience import Candidate, Completion, Episode, JointAction, Node, Outcome, Task

Chain = Callable[..., Episode]
Advantages = Callable[[Sequence[Episode]], list[list[float | None]]]


def test_two_iterations_by_hand(chain: Chain, advantages: Advantages) -> None:
    # Own returns: the team's plus the mean of the agent's local rewards.  tool: 1 + (0.2 + 0.4) / 2 and 0; plan: 1, 0.
    first = [
        chain(1.0, ["tool", "plan", "tool", "plan"], turns=[0, 0, 1, 1], local=[0.2, 0, 0.4, 0]),
        chain(0.0, ["tool", "plan"], turns=[0, 0], sample=1),
    ]
    rule = RoleBaselines(decay=0.5)
    rule(first)
    assert advantages(first) == [pytest.approx([1.3, 1, 1.3, 1]), [0, 0]]  # no baselines yet
    # Two episodes: a quarter of the old baseline, 0, and three quarters of the means 0.65 and 0.5.
    assert rule.baselines == pytest.approx({"tool": 0.4875, "plan": 0.375})
    second = [chain(1.0, ["tool", "plan"], task="u")]
    rule(second)
    assert advantages(second) == [pytest.approx([0.5125, 0.625])]
    assert rule.baselines == pytest.approx({"tool": 0.74375, "plan": 0.6875})  # half and half


def test_turns_may_have_baselines_of_their_own(chain: Chain, advantages: Advantages) -> None:
    def episodes() -> list[Episode]:
        return [chain(1.0, ["tool", "tool"]), chain(0.0, ["tool"], sample=1)]

    rule = RoleBaselines(decay=0.0, by_turn=True)
    rule(episodes())
    assert rule.baselines == {"tool, turn 0": 0.5, "tool, turn 1": 1.0}
    again = episodes()
    rule(again)
    assert advantages(again) == [[0.5, 0.0], [-0.5]]


def test_seats_and_games_have_baselines_of_their_own(chain: Chain) -> None:
    def episode(value: float, world: str, role: str) -> Episode:
        own = chain(value, ["player"], task=f"{world} {role}")
        own.task = replace(own.task, world=world, role=role)
        return own

    rule = RoleBaselines(decay=0.0)
    rule([episode(1.0, "", "first"), episode(-1.0, "", "second"), episode(0.5, "kuhn", "first")])
    assert rule.baselines == {"first, player": 1.0, "second, player": -1.0, "kuhn, first, player": 0.5}


def test_alpha_weighs_the_team(chain: Chain, advantages: Advantages) -> None:
    # The chain's rewards are team + local: with alpha = 1 the own rewards are the local ones.
    episode = chain(2.0, ["tool", "plan"], team=[0.5, 2.0], local=[0.25, 0.0])
    RoleBaselines()([episode])
    assert advantages([episode]) == [[2.25, 2.0]]


RETURNS = st.lists(st.floats(-10, 10), min_size=1, max_size=5)


def episode(value: float, sample: int) -> Episode:
    said = Completion((1,), (-0.5,), "U", "stop", "p", 0)
    node = Node("t", "tool", 0, (1,), [Candidate(said, 0.0, value, value)])
    edge = JointAction({"tool": (0, 0)}, outcome=Outcome(False, 1, value, value))
    return Episode(Task("t", "train", {}), [node], [edge], sample=sample)


@given(st.lists(RETURNS, min_size=1, max_size=4), st.floats(0, 0.99), st.randoms())
def test_an_iteration_is_judged_by_earlier_ones_alone(iterations: list[list[float]], decay: float, random) -> None:  # type: ignore[no-untyped-def]
    """In any order of the episodes; and the baseline is the published one, updated return by return, where these are
    equal within an iteration."""
    rule, shuffled = RoleBaselines(decay=decay), RoleBaselines(decay=decay)
    for returns in iterations:
        before = rule.baselines.get("tool", 0.0)
        episodes = [episode(value, i) for i, value in enumerate(returns)]
        rule(episodes)
        assert [e.nodes[0].candidates[0].advantage for e in episodes] == [value - before for value in returns]
        shuffled(random.sample(episodes, len(episodes)))
        assert shuffled.baselines == pytest.approx(rule.baselines, abs=1e-9)
        constant, published = RoleBaselines(decay=decay), before
        constant.baselines = {"tool": before}
        constant([episode(returns[0], i) for i in range(len(returns))])
        for _ in returns:
            published = decay * published + (1 - decay) * returns[0]
        assert constant.baselines["tool"] == pytest.approx(published, abs=1e-9)


def test_the_state_goes_through_json(chain: Chain, advantages: Advantages) -> None:
    rule, restored = RoleBaselines(), RoleBaselines()
    rule([chain(1.0, ["tool", "plan"])])
    restored.load_state_dict(json.loads(json.dumps(rule.state_dict())))
    assert restored.state_dict() == rule.state_dict()
    one, other = chain(0.5, ["tool", "plan"]), chain(0.5, ["tool", "plan"])
    rule([one])
    restored([other])
    assert advantages([one]) == advantages([other]) and restored.state_dict() == rule.state_dict()


@pytest.mark.parametrize("state", [{}, {"rng": []}, {"baselines": {"tool": nan}}])
def test_the_state_of_another_rule_is_refused(state: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="RoleBaselines has the state 'baselines'"):
        RoleBaselines().load_state_dict(state)


@pytest.mark.parametrize("decay", [-0.1, 1.0])
def test_settings_out_of_range_are_named(decay: float) -> None:
    with pytest.raises(ValueError, match=r"algorithm\.credit\.decay must be in \[0, 1\)"):
        RoleBaselines(decay=decay)


def test_one_episode_per_task_is_enough() -> None:
    RoleBaselines().check(1, "chain")
