"""Dr.MAS, REINFORCE++, GiGPO and RLOO on team episodes: values worked out by hand."""

from collections.abc import Callable, Sequence
from math import sqrt

import pytest

from troupe.algorithms.credit.base import CreditError, CreditRule
from troupe.algorithms.credit.dr_mas import DrMas
from troupe.algorithms.credit.gigpo import Gigpo
from troupe.algorithms.credit.grpo import Grpo, MasGrpo
from troupe.algorithms.credit.reinforce_pp import ReinforcePP
from troupe.experience import Episode

Chain = Callable[..., Episode]
Advantages = Callable[[Sequence[Episode]], list[list[float | None]]]
RULES: list[CreditRule] = [Grpo(), MasGrpo(), DrMas(), ReinforcePP(), ReinforcePP(baseline="mean"), Gigpo()]
names = [f"{type(rule).__name__}-{rule.baseline}" for rule in RULES]  # type: ignore[attr-defined]
rules = pytest.mark.parametrize("rule", RULES, ids=names)


def test_rloo(chain: Chain, advantages: Advantages) -> None:
    # Means of the others: 0.5 (of 0 and 1), 1, 0.5.
    episodes = [chain(v, ["tool", "plan"], sample=i) for i, v in enumerate([1, 0, 1])]
    Grpo(baseline="leave_one_out", normalise=False)(episodes)
    assert advantages(episodes) == [pytest.approx([a, a], abs=1e-12) for a in (0.5, -1, 0.5)]


def test_dr_grpo(chain: Chain, advantages: Advantages) -> None:
    episodes = [chain(v, ["solo"], sample=i) for i, v in enumerate([1, 0, 0.5, 0])]
    Grpo(normalise=False)(episodes)
    assert advantages(episodes) == [[0.625], [-0.375], [0.125], [-0.375]]


def test_dr_mas_compares_an_agent_with_itself(chain: Chain, advantages: Advantages) -> None:
    episodes = [chain(1, ["tool", "plan"]), chain(0, ["tool", "plan", "plan"], sample=1)]
    DrMas(std_floor=0)(episodes)
    # tool: 1, 0: mean .5, std sqrt(.5).  plan: 1, 0, 0: mean 1/3, variance (4/9 + 2/9) / 2 = 1/3.
    tool, plan = 0.5 / sqrt(0.5), sqrt(1 / 3)
    assert advantages(episodes) == [
        pytest.approx([tool, 2 / 3 / plan], abs=1e-12),
        pytest.approx([-tool, -1 / 3 / plan, -1 / 3 / plan], abs=1e-12),
    ]


def test_reinforce_pp_normalises_over_the_iterations_tokens(chain: Chain, advantages: Advantages) -> None:
    # Two tasks, one episode each: R = 1 on a message of 3 tokens, R = 0 on two messages of 1 and 2 tokens.
    # Six tokens, three of them 1: mean 1/2, std 1/2: advantages 1 and -1.
    episodes = [chain(1, ["solo"], tokens=[3]), chain(0, ["solo"] * 2, task="u", tokens=[1, 2])]
    ReinforcePP(std_floor=0)(episodes)
    assert advantages(episodes) == [[1.0], [-1.0, -1.0]]
    ReinforcePP().check(1, "chain")


def test_reinforce_pp_with_the_groups_mean(chain: Chain, advantages: Advantages) -> None:
    # Task t: 1, 0 -> 1/2, -1/2.  Task u: 3, 1 -> 1, -1.  Tokens 1, 1, 2, 2: mean 0,
    # squares 1/4 + 1/4 + 2 + 2 = 4.5, / 6 = 0.75.
    episodes = [chain(v, ["solo"], sample=i) for i, v in enumerate([1, 0])]
    episodes += [chain(v, ["solo"], task="u", sample=i, tokens=[2]) for i, v in enumerate([3, 1])]
    ReinforcePP(baseline="mean", std_floor=0)(episodes)
    std = sqrt(0.75)
    found = [a for row in advantages(episodes) for a in row]
    assert found == pytest.approx([0.5 / std, -0.5 / std, 1 / std, -1 / std], abs=1e-12)


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
    with pytest.raises(CreditError, match="episode board-7, sample 0: the sampler kept no state"):
        Gigpo()([episode])


@pytest.mark.parametrize("settings", [{"omega": -1.0}, {"gamma": 1.5}])
def test_gigpos_settings_are_named(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"algorithm\.credit: omega"):
        Gigpo(**settings)  # type: ignore[arg-type]


# ---- every rule -----------------------------------------------------------------------------------------------------


def some(chain: Chain, shift: float = 0.0) -> list[Episode]:
    """Three episodes of two tasks each; ``shift`` is added to every return."""
    found = []
    for task, returns in {"t": [1.5, 0.25, 0.5], "u": [0, 1, 1]}.items():
        for sample, value in enumerate(returns):
            agents = ["tool", "plan"] * (1 + sample % 2)
            found.append(chain(value + shift, agents, task=task, sample=sample, states=["s"] * len(agents)))
    return found


@rules
def test_the_order_of_episodes_does_not_matter(rule: CreditRule, chain: Chain, advantages: Advantages) -> None:
    straight, turned = some(chain), some(chain)
    rule(straight)
    rule(turned[::-1])
    for one, other in zip(advantages(straight), advantages(turned), strict=True):
        assert other == pytest.approx(one, abs=1e-12)
    assert len({a for row in advantages(straight) for a in row}) > 2


@rules
def test_a_constant_on_every_return_changes_nothing(rule: CreditRule, chain: Chain, advantages: Advantages) -> None:
    straight, shifted = some(chain), some(chain, 0.5)
    rule(straight)
    rule(shifted)
    for one, other in zip(advantages(straight), advantages(shifted), strict=True):
        assert other == pytest.approx(one, abs=1e-12)


@rules
def test_judging_twice_is_judging_once(rule: CreditRule, chain: Chain, advantages: Advantages) -> None:
    episodes = some(chain)
    rule(episodes)
    once = advantages(episodes)
    rule(episodes)
    assert advantages(episodes) == once


def test_live_tasks_have_groups_that_differ(chain: Chain) -> None:
    episodes = [chain(v, ["solo"], task=t, sample=i) for t in "abc" for i, v in enumerate([1, 0 if t == "b" else 1])]
    assert Grpo().live(episodes) == {"b"}
    assert Grpo(baseline="none", normalise=False).live(episodes) == {"a", "b", "c"}
