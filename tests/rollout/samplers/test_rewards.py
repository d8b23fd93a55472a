"""``algorithm.reward.team``: what a message of a tree is paid, by hand in the game of ``src/enumeration``."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import permutations, product
from random import Random
from typing import Any

import pytest

from troupe.algorithms.credit.at_grpo import AtGrpo
from troupe.algorithms.credit.gdpo import Gdpo
from troupe.enumeration.game import Game
from troupe.enumeration.outcomes import ListingEngine, outcomes
from troupe.envs.base import StepResult
from troupe.envs.signalling.world import Signalling
from troupe.experience import Episode, Message, Outcome, Sampling, Task
from troupe.rollout.chat_codec import ChatCodec
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.samplers.task_rollout import TeamReward
from troupe.rollout.samplers.tree import TreeSampler

TASK = Task("hard", "train", {})
TEAMS: Sequence[TeamReward] = ("own", "global", "both")


class Bonus(Game):
    """The second action earns its agent 0.05."""

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        result = await super().step(actions)
        return replace(result, local={agent: 0.05 * (text == "yes please") for agent, text in actions.items()})


async def play(world: Game, sampler: TreeSampler, draws: Sequence[int]) -> Episode:
    """The episode of these draws, in the order in which messages are asked for."""
    engine = ListingEngine(list(draws), exchangeable=False)
    clients = {agent: PolicyClient(agent, engine, ChatCodec(), 1000, Sampling()) for agent in world.agents}
    ((episode,),) = await sampler.collect(world, [TASK], clients, seed=0)
    return episode


FIRST, LAST = [0, 1], [0, 1]
"""Both agents say `no` and `yes please`, in both turns."""
A = 0.5**0.5
"""The advantage of the better of two candidates."""
GOLDEN: dict[TeamReward, dict[str, Any]] = {
    # A tool's message is judged on its own: 0.4 for `no`.
    "own": {
        "answers": ([], []),
        "rewards": [[0.4, 0.05], [0.25, 0.15], [0.4, 0.05], [0.025, 0.65]],
        "advantages": [[A, -A], [A, -A], [A, -A], [-A, A]],
        "outcome": Outcome(False, 2, 0.25 + 0.6),
    },
    # By what the turn earns after the planner's answer: `no, yes` 0.1 and `yes, no` 0; then `no, no` 0.025, since it is
    # repeated, and `yes, no` 0.35.
    "global": {
        "answers": ([1, 0], [0, 0]),
        "rewards": [[0.1, 0.05], [0.25, 0.15], [0.025, 0.4], [0.35, 1.05]],
        "advantages": [[A, -A], [A, -A], [-A, A], [-A, A]],
        "outcome": Outcome(True, 2, 0.25 + 1),
    },
    # The sum; of a planner's message its outcome counts twice.
    "both": {
        "answers": ([1, 0], [0, 0]),
        "rewards": [[0.5, 0.05], [0.5, 0.25], [0.425, 0.4], [0.05, 1.25]],
        "advantages": [[A, -A], [A, -A], [A, -A], [-A, A]],
        "outcome": Outcome(False, 2, 0.25 + 0.6),
    },
}


@pytest.mark.parametrize("team", TEAMS)
async def test_every_reward_and_advantage_by_hand(team: TeamReward) -> None:
    """Two agents, two turns, K = 2; intermediate rewards are opposed to success."""
    golden = GOLDEN[team]
    first, last = golden["answers"]
    draws = [*FIRST, *first, *FIRST, *LAST, *last, *LAST]
    episode = await play(Bonus(opposed=True), TreeSampler(k=2, team=team), draws)
    AtGrpo()([episode])
    assert [(node.agent, node.turn) for node in episode.nodes] == [("tool", 0), ("plan", 0), ("tool", 1), ("plan", 1)]
    rewards = [[each.reward for each in node.candidates] for node in episode.nodes]
    assert rewards == [pytest.approx(expected) for expected in golden["rewards"]]
    advantages = [[each.advantage for each in node.candidates] for node in episode.nodes]
    assert advantages == [pytest.approx(expected, abs=1e-4) for expected in golden["advantages"]]
    assert episode.outcomes == [golden["outcome"]]
    # Sampled answers cost as completions do; each took a step of the world.
    answers = len(first) + len(last)
    assert (episode.generated, len(episode.auxiliary), episode.env_steps) == (8 + answers, answers, 8 + answers)
    assert all(each.local == 0.05 * (each.completion.text != "no") for _, each in episode.candidates())


async def test_the_formula_has_alpha_local_and_the_components_of_gdpo() -> None:
    """r = alpha * team + local, where ``both`` adds a message's own outcome to the latter."""
    for team, expected in (("own", [0.2, 0.05]), ("global", [0.05, 0.05]), ("both", [0.45, 0.05])):
        sampler = TreeSampler(k=2, team=team, alpha=0.5)  # type: ignore[arg-type]
        episode = await play(Bonus(opposed=True), sampler, [*FIRST, 1, 0])
        tool = episode.nodes[0].candidates
        assert [each.reward for each in tool] == pytest.approx(expected)
        Gdpo(weights={"team": 1, "local": 1}, alpha=0.5)([episode])  # raises where components make another sum
    for team, expected in (("own", [0.4, 0.0]), ("global", [0.1, 0.0])):
        sampler = TreeSampler(k=2, team=team, local=False)  # type: ignore[arg-type]
        episode = await play(Bonus(opposed=True), sampler, [*FIRST, 1, 0])
        assert [each.reward for each in episode.nodes[0].candidates] == pytest.approx(expected)


@pytest.mark.parametrize("team", TEAMS)
async def test_permuted_candidates_have_permuted_rewards_and_advantages(team: TeamReward) -> None:
    rng = Random(0)
    pairs = [(rng.randrange(2), rng.randrange(2)) for _ in range(3)]  # a candidate, and the answer to it

    async def first_node(pairs: Sequence[tuple[int, int]]) -> list[tuple[str, float, float | None]]:
        answers = [] if team == "own" else [answer for _, answer in pairs]
        episode = await play(Game(), TreeSampler(k=3, team=team), [*(said for said, _ in pairs), *answers])
        AtGrpo()([episode])
        return [(each.completion.text, each.reward, each.advantage) for each in episode.nodes[0].candidates]

    node = await first_node(pairs)
    for order in permutations(range(3)):
        assert await first_node([pairs[i] for i in order]) == [node[i] for i in order]


class Deaf(Game):
    """The team earns what the planner says, who does not hear the tool agent; of one turn, so that outcomes are few."""

    horizon = 1

    def observe(self, agent: str) -> Sequence[Message]:
        return [{"role": "user", "content": f"{self.task_id} {agent} "}]

    def _reward(self) -> float:
        return [0.3, 1.0][int(self.actions[-1])]


@pytest.mark.parametrize("team", TEAMS)
def test_an_agent_without_influence_has_equal_global_rewards_on_average(team: TeamReward) -> None:
    total, chances = {"no": 0.0, "yes please": 0.0}, {"no": 0.0, "yes please": 0.0}
    for chance, (episode,) in outcomes(TreeSampler(k=2, team=team), Deaf(), TASK):
        for each in episode.nodes[0].candidates:
            total[each.completion.text] += chance * each.team
            chances[each.completion.text] += chance
    no, yes = (total[text] / chances[text] for text in total)
    assert (no == pytest.approx(yes, abs=1e-12)) == (team != "own")


def test_a_turn_s_end_is_worth_its_mean_over_the_answers_of_the_policies() -> None:
    """By enumeration: the expected ``global`` reward of the tool's message is the mean over the planner's actions."""
    from troupe.enumeration.game import FIRST as EARNED
    from troupe.enumeration.game import TEXTS, probability

    world = Game()
    world.horizon = 1
    for said in (0, 1):
        expected = sum(probability(f"hard plan {said}", a) * EARNED[said, a] for a in (0, 1))
        pairs = [
            (chance, each.team)
            for chance, (episode,) in outcomes(TreeSampler(k=2, team="global"), world, TASK)
            for each in episode.nodes[0].candidates
            if each.completion.text == TEXTS[said]
        ]
        assert sum(c * team for c, team in pairs) / sum(c for c, _ in pairs) == pytest.approx(expected, rel=1e-12)


class Quitting(Game):
    """The tool agent's ``no`` ends the episode at once."""

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        result = await super().step(actions)
        self.done = self.done or actions.get("tool") == "no"
        return replace(result, done=self.done)


async def test_nobody_is_asked_after_a_message_that_ends_the_episode() -> None:
    episode = await play(Quitting(opposed=True), TreeSampler(k=2, team="global"), [0, 1, 0])
    assert [each.team for each in episode.nodes[0].candidates] == [0.4, 0.0]
    assert len(episode.auxiliary) == 1 and episode.outcomes == [Outcome(False, 0, 0.4)]


async def test_agents_that_act_at_once_earn_the_same_whatever_the_setting() -> None:
    for said in product((0, 1), repeat=4):
        own, team = [await play(Game(at_once=True), TreeSampler(k=2, team=each), said) for each in ("own", "global")]
        assert own == team and not team.auxiliary


REFUSED: dict[str, dict[str, Any]] = {
    r"algorithm\.reward\.team must be global, own, both, got 'mine'": {"team": "mine"},
    r"algorithm\.reward\.team=both has a message's own outcome .*algorithm\.sampler\.local=false": {
        "team": "both",
        "local": False,
    },
    r"algorithm\.reward\.team=global samples answers .*algorithm\.sampler\.alpha=0": {"team": "global", "alpha": 0.0},
}


@pytest.mark.parametrize("message", REFUSED)
def test_a_combination_without_a_meaning_is_refused(message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TreeSampler(**REFUSED[message])


def test_both_needs_a_message_that_does_not_end_its_turn() -> None:
    with pytest.raises(ValueError, match=r"algorithm\.reward\.team=both: in this world every message ends its turn"):
        TreeSampler(team="both").check(Game(at_once=True))
    TreeSampler(team="both").check(Signalling())


def test_the_budget_has_the_answers() -> None:
    """Of three agents in turn the first is followed by two."""

    class Trio(Game):
        agents = ("tool", "plan", "chair")
        stages = (("tool",), ("plan",), ("chair",))

    sizes = {"k": 4, "k_by_agent": {"plan": 2}}
    assert TreeSampler(**sizes).max_completions(Trio()) == {"tool": 8, "plan": 4, "chair": 8}  # type: ignore[arg-type]
    found = TreeSampler(**sizes, team="global").max_completions(Trio())  # type: ignore[arg-type]
    assert found == {"tool": 8, "plan": 2 * (2 + 4), "chair": 2 * (4 + 4 + 2)}
