"""What samplers share: requests and their seeds, steps of the world, nodes with rewards, and episodes that grow."""

import asyncio
from collections.abc import Mapping

import pytest
from transformers import PreTrainedTokenizerFast

from troupe.envs.base import StepResult, TeamEnv
from troupe.envs.grid.sokoban import Sokoban
from troupe.experience import Candidate, Completion, Episode, JointAction, Node, Outcome, Request, Sampling, Task
from troupe.rollout.engines.requests import derive
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.samplers.task_rollout import RewardMix, TaskRollout, advance, auxiliary, extend, first_texts
from troupe.rollout.scripted import ScriptedEngine

TASK = Task("duet-0", "train", {})


class Meeting(ScriptedEngine):
    """Answers once two requests are under way: it never answers agents that are asked one after the other."""

    def __init__(self, words: PreTrainedTokenizerFast) -> None:
        super().__init__(lambda prompt, row, seed: "UD"[row], words)
        self.met = asyncio.Event()

    async def generate(self, request: Request) -> list[Completion]:
        completions = await super().generate(request)
        if len(self.requests) == 2:
            self.met.set()
        await self.met.wait()
        return completions


@pytest.fixture
def engine(words: PreTrainedTokenizerFast) -> ScriptedEngine:
    return Meeting(words)


@pytest.fixture
def rollout(engine: ScriptedEngine, words: PreTrainedTokenizerFast) -> TaskRollout:
    client = PolicyClient("p", engine, words, 512, Sampling(max_tokens=4))
    return TaskRollout(TASK, {"tool": client, "plan": client}, 7, RewardMix(alpha=0.5, overlong=0.5))


async def test_agents_that_act_at_once_are_asked_at_once(
    rollout: TaskRollout, engine: ScriptedEngine, duet: TeamEnv
) -> None:
    answers = await asyncio.wait_for(rollout.sample_all(await rollout.start(duet), 2, "place", 3), 10)
    assert first_texts(answers) == {"tool": "U", "plan": "U"}
    keys = [("duet-0", 0, agent, "place", 3) for agent in ("tool", "plan")]
    assert [(request.n, request.key) for request in engine.requests] == [(2, key) for key in keys]
    assert [request.seed for request in engine.requests] == [derive(7, *key) for key in keys]
    lengths = [len(request.prompt_ids) for request in engine.requests]
    assert [(tokens, c.text) for tokens, c in auxiliary(answers)] == [
        (lengths[0], "U"),
        (lengths[0], "D"),
        (lengths[1], "U"),
        (lengths[1], "D"),
    ]


async def test_nodes_have_each_candidate_with_its_own_rewards(rollout: TaskRollout, duet: TeamEnv) -> None:
    env = await rollout.start(duet)
    answers = await rollout.sample_all(env, 2)
    results = [StepResult({"tool": 0.25, "plan": c}, 9.0, False, False, {"c": c}) for c in (0.0, 1.0)]
    tool, plan = rollout.nodes(env, answers, results, teams=[1.0, 3.0])
    assert (plan.task_id, plan.agent, plan.turn, plan.state) == ("duet-0", "plan", 0, 0)
    assert plan.prompt_ids == answers["plan"].prompt.ids != tool.prompt_ids
    # Two tokens of at most four: the last half costs from 0 to 1, so nothing yet.
    assert [(c.local, c.team, c.reward, c.overlong) for c in plan.candidates] == [(0, 1, 0.5, 0), (1, 3, 2.5, 0)]
    assert [c.reward for c in tool.candidates] == [0.75, 1.75]
    assert [c.info for c in tool.candidates] == [{"c": 0.0}, {"c": 1.0}]


class Stops(Sokoban):
    """Ends in the middle of its first turn where somebody says so."""

    turn = 0

    over = False

    def next_agents(self) -> tuple[str, ...]:
        return () if self.over else ("tool",)

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        (text,) = actions.values()
        self.turn += text == "next"
        self.over = text == "stop"
        return StepResult(dict.fromkeys(actions, 0.0), 0.5, self.over, False)


@pytest.mark.parametrize(("text", "ends_turn"), [("go on", False), ("next", True), ("stop", True)])
async def test_what_ends_a_turn_counts_for_the_team(text: str, ends_turn: bool) -> None:
    world = Stops()
    transition = await advance(world, {"tool": text})
    assert transition.env is world
    assert (transition.ends_turn, transition.team_return) == (ends_turn, 0.5 * ends_turn)
    assert transition.outcome(2.0, 3.0) == Outcome(False, int(text == "next"), 2.0, 3.0)


def test_an_episode_grows_by_steps_and_ends_with_its_outcome() -> None:
    def nodes(*agents: str) -> list[Node]:
        completion = Completion((1,), (0.0,), "U", "stop", "p", 0)
        return [Node("t", agent, 0, (1,), [Candidate(completion, 0, 0, 0) for _ in range(2)]) for agent in agents]

    episode, outcome = Episode(TASK, [], []), Outcome(True, 1, 1.0)
    extend(episode, nodes("tool", "plan"), 1, None)
    extend(episode, nodes("tool"), 0, outcome)
    assert [node.parent for node in episode.nodes] == [None, None, 1]
    assert [[c.continued for c in node.candidates] for node in episode.nodes] == [[False, True]] * 2 + [[True, False]]
    assert episode.edges == [
        JointAction({"tool": (0, 1), "plan": (1, 1)}, child=2),
        JointAction({"tool": (2, 0)}, outcome=outcome),
    ]
