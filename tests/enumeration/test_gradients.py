"""Expected gradients against the true one: what is unbiased in its publication stays so over turns."""

from functools import cache
from math import sqrt
from random import Random

import pytest

from troupe.algorithms.credit.ablations import KeyedGroups
from troupe.algorithms.credit.actor_critic import ActorCritic
from troupe.algorithms.credit.base import Baseline, CreditRule
from troupe.algorithms.credit.counterfactual import Counterfactual
from troupe.algorithms.credit.grpo import Grpo
from troupe.algorithms.credit.grpo_ma import GrpoMa
from troupe.algorithms.credit.iac import Iac
from troupe.algorithms.credit.maac import Maac
from troupe.algorithms.credit.magrpo import Magrpo
from troupe.algorithms.credit.reinforce_pp import ReinforcePP
from troupe.algorithms.credit.role_baselines import RoleBaselines
from troupe.algorithms.credit.tree_grpo import TreeGrpo
from troupe.algorithms.objectives import ClippedObjective, Objective, PolicyGradient
from troupe.enumeration.game import SECOND, TEXTS, EchoGame, Game, probability
from troupe.enumeration.gradients import Gradient, Update, true_gradient, true_values
from troupe.enumeration.outcomes import Draw, outcomes
from troupe.experience import Task
from troupe.rollout.samplers.chain import ChainSampler
from troupe.rollout.samplers.forest import BranchAt, ForestSampler
from troupe.rollout.samplers.joint import JointSampler
from troupe.rollout.samplers.replay import ReplaySampler

TEAMS = {"specialised": {"tool": "tool", "plan": "plan"}, "shared": {"tool": "team", "plan": "team"}}
PLAIN = PolicyGradient(normalisation="sequence_sum")
DR_GRPO = ClippedObjective(normalisation="constant", length=2)


@cache
def pairs(task: str) -> list[Draw]:
    """Of two episodes."""
    return outcomes(ChainSampler(k=2), Game(), Task(task, "train", {}))


@cache
def trees(task: str) -> list[Draw]:
    return outcomes(JointSampler(k=2), Game(at_once=True), Task(task, "train", {}))


def ratios(expected: Gradient, task: str, *, at_once: bool = False) -> dict[str, float]:
    """By prompt of ``task``."""
    true = true_gradient(Game(at_once=at_once), Task(task, "train", {}))
    return {prompt: expected.get(prompt, 0.0) / value for prompt, value in true.items()}


def test_the_true_gradient_by_hand() -> None:
    """The planner's last prompt after 'no, yes' and 'no': the odds that it is met, p (1 - p), and the two returns."""
    met = probability("hard tool ", 0) * probability("hard plan 0", 1) * probability("hard tool 01", 0)
    p = probability("hard plan 010", 1)
    gain = SECOND[0, 1] / 2 - SECOND[0, 0]  # the first turn's reward is the same; a repeated action earns half
    found = true_gradient(Game(), Task("hard", "train", {}))
    assert len(found) == 12
    assert found["hard plan 010"] == pytest.approx(met * p * (1 - p) * gain, rel=1e-12)


@pytest.mark.parametrize("team", TEAMS.values(), ids=TEAMS)
@pytest.mark.parametrize("count", [1, 2], ids=lambda count: f"{count} mini-batches")
@pytest.mark.parametrize(
    ("rule", "objective", "constant"),
    [
        (Grpo(baseline="leave_one_out", normalise=False, weight="episode"), PLAIN, 1),
        (Grpo(baseline="none", normalise=False, weight="episode"), PLAIN, 1),
        (Grpo(baseline="mean", normalise=False, weight="episode"), DR_GRPO, (1 / 2) / 2),  # (K - 1) / K, length
    ],
    ids=["rloo", "reinforce", "dr_grpo"],
)
def test_by_episode_the_gradient_is_the_true_one(
    rule: CreditRule, objective: Objective, constant: float, count: int, team: dict[str, str]
) -> None:
    """Two tasks per iteration.  Whatever happens in one, a long episode or two short ones, the other's is exact."""
    update = Update(rule, objective, team, count)
    for task, other in (("easy", "hard"), ("hard", "easy")):
        longest, shortest = max(pairs(other), key=_messages), min(pairs(other), key=_messages)
        for _, episodes in (longest, shortest):
            expected = update.expected([pairs(task), [(1.0, episodes)]])
            # Each of two tasks counts one half.
            assert ratios(expected, task) == pytest.approx(
                dict.fromkeys(ratios(expected, task), constant / 2), rel=1e-9
            )


@pytest.mark.parametrize("by_turn", [False, True])
def test_baselines_of_earlier_iterations_leave_the_gradient_unbiased(by_turn: bool) -> None:
    rule = RoleBaselines(by_turn=by_turn)
    agents = {"tool": 0.3, "plan": 0.7}
    turns = {f"{agent}, turn {turn}": value + turn for agent, value in agents.items() for turn in (0, 1)}
    before = {"baselines": turns if by_turn else agents}
    rule.load_state_dict(before)
    expected = Update(rule, PLAIN, TEAMS["specialised"]).expected([pairs("hard")])
    assert ratios(expected, "hard") == pytest.approx(dict.fromkeys(ratios(expected, "hard"), 1), rel=1e-9)
    assert rule.state_dict() == before


@cache
def episodes_of(task: str) -> list[Draw]:
    """Of one episode: an actor-critic compares none with another."""
    return outcomes(ChainSampler(k=1), Game(), Task(task, "train", {}))


def critic_ratios(rule: ActorCritic, values: dict[str, float], value: float = 0.0) -> dict[str, float]:
    update = Update(rule, PLAIN, TEAMS["specialised"], values=values, value=value)
    return ratios(update.expected([episodes_of("hard")]), "hard")


@pytest.mark.parametrize("rule", [Iac, Maac])
def test_an_actor_critic_is_unbiased_with_a_perfect_critic_or_without_bootstrapping(rule: type[ActorCritic]) -> None:
    """In the game each agent sees everything, so that V_i is V."""
    perfect = true_values(Game(), Task("hard", "train", {}))
    for gae_lambda in (0.0, 0.6, 1.0):
        found = critic_ratios(rule(gae_lambda=gae_lambda, normalise=False), perfect)
        assert found == pytest.approx(dict.fromkeys(found, 1), rel=1e-9)
    whole = rule(gae_lambda=1.0, normalise=False)
    for critic in ({}, {prompt: 3.0 * index for index, prompt in enumerate(perfect)}):  # constant; wrong
        found = critic_ratios(whole, critic, value=0.7)
        assert found == pytest.approx(dict.fromkeys(found, 1), rel=1e-9)
    # One step of a constant critic: the later reward of a first message is missing.
    found = critic_ratios(rule(gae_lambda=0.0, normalise=False), {})
    assert max(found.values()) > 1.1 * min(found.values())


def test_true_values_by_hand() -> None:
    """Of the planner's last prompt after 'no, yes' and 'no': the mean of its two rewards."""
    p = probability("hard plan 010", 1)
    values = true_values(Game(), Task("hard", "train", {}))
    assert values["hard plan 010"] == pytest.approx((1 - p) * SECOND[0, 0] + p * SECOND[0, 1] / 2, rel=1e-12)
    assert len(values) == 12


def _messages(outcome: Draw) -> int:
    return sum(len(episode.nodes) for episode in outcome[1])


@pytest.mark.parametrize("task", ["easy", "hard"])
def test_by_message_the_gradient_favours_episodes_that_end_early(task: str) -> None:
    rule = Grpo(baseline="leave_one_out", normalise=False, weight="message")
    found = ratios(Update(rule, PLAIN, TEAMS["specialised"]).expected([pairs(task)]), task)
    assert max(found.values()) > 1.1 * min(found.values())


@pytest.mark.parametrize(("baseline", "constant"), [("mean", 1 / 2), ("leave_one_out", 1), ("none", 1)])
def test_a_full_trees_turns_weigh_as_in_the_true_gradient(baseline: str, constant: float) -> None:
    update = Update(Magrpo(baseline=baseline), PLAIN, TEAMS["specialised"])  # type: ignore[arg-type]
    found = ratios(update.expected([trees("hard")]), "hard", at_once=True)
    assert found == pytest.approx(dict.fromkeys(found, constant), rel=1e-9)


@cache
def forests(task: str, k: int, branch_at: BranchAt = "drawn") -> list[Draw]:
    """Of trees with a branch each, where what is said decides how many steps there are."""
    return outcomes(ForestSampler(k=k, expansions=1, branch_at=branch_at), EchoGame(), Task(task, "train", {}))


def echo_ratios(rule: CreditRule, draws: list[Draw], task: str) -> dict[str, float]:
    expected = Update(rule, PLAIN, TEAMS["specialised"]).expected([draws])
    return {p: expected.get(p, 0.0) / value for p, value in true_gradient(EchoGame(), Task(task, "train", {})).items()}


OUTCOMES = KeyedGroups(by=["agent", "turn"], value="outcome", baseline="none", normalise=False, weight="episode")


@pytest.mark.parametrize("task", ["easy", "hard"])
@pytest.mark.parametrize(
    ("rule", "constant"),
    [(TreeGrpo(value="team_return", baseline="none", normalise=False), 2), (OUTCOMES, 1)],  # 2: tree and task
    ids=["tree_grpo", "forest_groups"],
)
def test_where_episodes_end_at_different_times_a_forests_gradient_is_the_true_one(
    rule: CreditRule, constant: float, task: str
) -> None:
    """A draw from the steps of a tree's own episode has a cosine of 0.965 here, and ratios from -7 to 6."""
    found = echo_ratios(rule, forests(task, 1), task)
    assert sum(chance for chance, _ in forests(task, 1)) == pytest.approx(1, abs=1e-12)
    assert found == pytest.approx(dict.fromkeys(found, constant), rel=1e-9)


@pytest.mark.slow
def test_a_forests_published_baselines_favour_later_turns() -> None:
    rule = TreeGrpo(value="team_return", baseline="mean", normalise=False)
    found = echo_ratios(rule, forests("hard", 2), "hard")
    assert found["hard tool "] < 0.8 * min(found["hard tool 01"], found["hard tool 10"])


def test_thoughts_and_answers_are_unbiased_without_the_std() -> None:
    """With the mean of all as the baseline a message's own outcomes are in it: 1 - 1/K of a thought, 1 - 1 / (2 K) of
    an answer."""

    def ratios_with(baseline: Baseline) -> dict[str, float]:
        rule = GrpoMa(value="team_return", baseline=baseline, normalise=False)
        return echo_ratios(rule, forests("hard", 2, "second"), "hard")

    for baseline in ("none", "leave_one_out"):
        found = ratios_with(baseline)
        assert found == pytest.approx(dict.fromkeys(found, 1), rel=1e-9)
    published = ratios_with("mean")
    assert published == pytest.approx({p: 1 / 2 if p == "hard tool " else 3 / 4 for p in published}, rel=1e-9)


def test_without_branches_a_forest_is_k_episodes() -> None:
    draws = outcomes(ForestSampler(k=2, expansions=0), EchoGame(), Task("hard", "train", {}))
    rule = TreeGrpo(value="team_return", normalise=False)
    found = echo_ratios(rule, draws, "hard")
    assert found == pytest.approx(dict.fromkeys(found, 1 / 2), rel=1e-9)  # (K - 1) / K


def test_the_outcome_without_a_message_is_an_unbiased_baseline() -> None:
    """In the game, whose agents must say one of two things, the first takes the place of a removed message."""
    draws = outcomes(ReplaySampler(k=1, removal=TEXTS[0]), Game(at_once=True), Task("hard", "train", {}))
    assert sum(chance for chance, _ in draws) == pytest.approx(1, abs=1e-12)
    rule = Counterfactual(removal=TEXTS[0], weight="episode")
    found = ratios(Update(rule, PLAIN, TEAMS["specialised"]).expected([draws]), "hard", at_once=True)
    assert found == pytest.approx(dict.fromkeys(found, 1), rel=1e-9)


def test_with_equal_nodes_the_second_turn_weighs_more() -> None:
    update = Update(Magrpo(baseline="none", weight="message"), PLAIN, TEAMS["specialised"])
    found = ratios(update.expected([trees("hard")]), "hard", at_once=True)
    first, later = found["hard tool "], [ratio for prompt, ratio in found.items() if len(prompt.split()) > 2]
    assert min(later) > 1.05 * first


@pytest.mark.slow
def test_the_bias_of_reinforce_pp_vanishes_as_the_iteration_grows() -> None:
    """One task per iteration: exact.  Sixteen of each kind: 300 drawn iterations."""
    update = Update(ReinforcePP(), ClippedObjective(normalisation="token_mean"), TEAMS["specialised"])
    tasks = ("easy", "hard")
    true = {p: value for task in tasks for p, value in true_gradient(Game(), Task(task, "train", {})).items()}
    one = {prompt: value for task in tasks for prompt, value in update.expected([pairs(task)]).items()}
    many = update.estimated([pairs(task) for task in tasks], copies=16, iterations=300, rng=Random(0))
    assert cosine(one, true) < 0.97
    assert cosine(many, true) > 0.995


def cosine(found: Gradient, true: Gradient) -> float:
    product = sum(found[prompt] * value for prompt, value in true.items())
    return product / sqrt(sum(v * v for v in found.values()) * sum(v * v for v in true.values()))
