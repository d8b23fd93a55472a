"""Algorithm 1 of AT-GRPO on real worlds, with scripted agents."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from troupe.envs.base import StepResult, TeamEnv
from troupe.envs.grid.plan_path import PlanPath
from troupe.envs.grid.sokoban import Sokoban
from troupe.envs.history import WithHistory
from troupe.experience import Completion, Episode, Node, Outcome, Request, Sampling, Task
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.samplers.task_rollout import TeamReward
from troupe.rollout.samplers.tree import TreeSampler
from troupe.rollout.scripted import Script, ScriptedEngine

from ..conftest import Duet

SOLVED, HALFWAY, MALFORMED = "box 2,2 R 2,3 R 2,4", "box 2,2 R 2,3", "goal"

Play = Callable[..., tuple[list[Episode], ScriptedEngine]]


@pytest.fixture
def play(words: PreTrainedTokenizerFast, board: Task) -> Callable[..., object]:
    """``await play(script, ...)``: the episodes of ``tasks`` and the engine that both agents spoke with."""

    async def collect(
        script: Script,
        *,
        tasks: Sequence[Task] = (board,),
        world: TeamEnv | None = None,
        seed: int = 0,
        sampler: TreeSampler | None = None,
    ) -> tuple[list[Episode], ScriptedEngine]:
        engine = ScriptedEngine(script, words)
        client = PolicyClient("p", engine, words, 512, Sampling(max_tokens=40))
        sampler = sampler or TreeSampler(k=4)
        results = await sampler.collect(world or Sokoban(), tasks, {"tool": client, "plan": client}, seed)
        return [episode for (episode,) in results], engine

    return collect


def by_agent(**texts: Sequence[str]) -> Script:
    """A script that gives each agent the same rows at every turn."""
    return lambda prompt, row, seed: texts[prompt.split()[0]][row]


def babble(prompt: str, row: int, seed: int) -> str:
    """Random messages, sometimes malformed."""
    rng = Random(f"{seed}/{row}")
    return " ".join(rng.choice(["U", "D", "L", "R", "R", "goal"]) for _ in range(rng.randint(0, 5)))


def continued(node: Node) -> list[int]:
    return [index for index, candidate in enumerate(node.candidates) if candidate.continued]


# ---- a whole episode by hand ----------------------------------------------------------------------------------------

SCRIPT = by_agent(tool=["", SOLVED, HALFWAY, MALFORMED], plan=["", "U", "R", MALFORMED])


async def test_an_episode_by_hand(play: Play, board: Task) -> None:
    (episode,), _ = await play(SCRIPT)
    # Turn 0: the second proposal solves the board when carried out (1 + a share of 0.1 for all of the progress); the
    # third goes half of the way.  The planner's third message pushes once, half of the way.
    # Turn 1: the proposals name a box that has moved on; any of them continues.  The planner's third message solves.
    rewards = [[c.reward for c in node.candidates] for node in episode.nodes]
    assert rewards[0] == pytest.approx([0, 1.1, 0.05, 0])
    assert rewards[1] == pytest.approx([0, 0, 0.05, 0])
    assert rewards[2] == [0, 0, 0, 0]
    assert rewards[3] == pytest.approx([0, 0, 1.05, 0])
    assert [(n.task_id, n.agent, n.turn, n.parent) for n in episode.nodes] == [
        ("board", "tool", 0, None),
        ("board", "plan", 0, 0),
        ("board", "tool", 1, 1),
        ("board", "plan", 1, 2),
    ]
    assert [continued(node) for node in (episode.nodes[0], episode.nodes[1], episode.nodes[3])] == [[1], [2], [2]]
    assert episode.task is board
    assert episode.outcomes == [Outcome(success=True, turns=2, team_return=1.0)]
    assert episode.env_steps == 16
    assert episode.auxiliary == []


async def test_a_failed_episode_uses_every_turn(play: Play) -> None:
    (episode,), _ = await play(by_agent(tool=[SOLVED] * 4, plan=[""] * 4))
    assert len(episode.nodes) == 8
    # The tool agent's team rewards, 1 each, were never earned on the world.
    assert episode.outcomes == [Outcome(success=False, turns=4, team_return=0.0)]


async def test_a_tool_candidate_is_judged_by_its_own_proposal(play: Play) -> None:
    (episode,), _ = await play(SCRIPT)
    tool, planner = episode.nodes[:2]
    assert [c.team for c in tool.candidates] == [0, 1, 0, 0]
    # The planner goes on from the good proposal, and inherits nothing of it.
    assert [c.team for c in planner.candidates] == [0, 0, 0, 0]


async def test_the_best_candidate_is_what_the_next_agent_sees(play: Play, words: PreTrainedTokenizerFast) -> None:
    (episode,), _ = await play(SCRIPT)
    prompts = [words.decode(list(node.prompt_ids), skip_special_tokens=True) for node in episode.nodes]
    assert prompts[0] == "tool sokoban walls box 2,2 goal 2,4 last start"
    assert prompts[1].endswith(f"last start proposal {SOLVED} check goal")
    # The box after the planner's third message, not after its second (U) or first.
    assert prompts[2] == "tool sokoban walls box 2,3 goal 2,4 last ok"


# ---- K candidates from one prompt -----------------------------------------------------------------------------------


async def test_a_node_is_one_request_of_one_prompt(play: Play) -> None:
    (episode,), engine = await play(babble, sampler=TreeSampler(k=5))
    assert len(engine.requests) == len(episode.nodes) > 1
    for request, node in zip(engine.requests, episode.nodes, strict=True):
        assert request.n == len(node.candidates) == 5
        assert request.prompt_ids == node.prompt_ids
    seeds = [request.seed for request in engine.requests]
    assert len(set(seeds)) == len(seeds)
    keys = [request.key for request in engine.requests]
    assert len(set(keys)) == len(keys)
    assert sorted(keys)  # keys can be ordered


async def test_each_agent_speaks_with_its_own_voice(words: PreTrainedTokenizerFast, board: Task) -> None:
    engines = {agent: ScriptedEngine(SCRIPT, words) for agent in ("tool", "plan")}
    samplings = {"tool": Sampling(max_tokens=40), "plan": Sampling(max_tokens=30, temperature=0.5)}
    clients = {a: PolicyClient(f"policy of {a}", engines[a], words, 512, samplings[a]) for a in engines}
    ((episode,),) = await TreeSampler(k=4).collect(Sokoban(), [board], clients, 0)
    for agent, engine in engines.items():
        assert len(engine.requests) == 2
        assert {r.policy for r in engine.requests} == {f"policy of {agent}"}
        assert {r.sampling for r in engine.requests} == {samplings[agent]}
    for node, candidate in episode.candidates():
        assert candidate.completion.policy == f"policy of {node.agent}"


async def test_candidates_are_tried_on_forks_of_one_state(play: Play) -> None:
    # Were they tried one after the other on one board, the second would find half of the progress made.
    world = Sokoban()
    before = world.state_key()
    script = by_agent(tool=[""] * 4, plan=["R", "R R", "R R", ""])
    (episode,), _ = await play(script, world=world)
    assert [c.reward for c in episode.nodes[1].candidates] == pytest.approx([0.05, 1.1, 1.1, 0])
    assert world.state_key() == before


# ---- who continues --------------------------------------------------------------------------------------------------


async def test_ties_are_drawn_from_the_seed(play: Play) -> None:
    script = by_agent(tool=["", SOLVED, SOLVED, HALFWAY], plan=["U", "", "U", "D"])
    seen: dict[str, set[int]] = {"tool": set(), "plan": set()}
    for seed in range(24):
        (episode,), _ = await play(script, seed=seed)
        (again,), _ = await play(script, seed=seed)
        assert [continued(n) for n in episode.nodes] == [continued(n) for n in again.nodes]
        for node in episode.nodes[:2]:
            seen[node.agent] |= set(continued(node))
    assert seen == {"tool": {1, 2}, "plan": {0, 1, 2, 3}}


async def test_nodes_of_one_episode_draw_their_ties_apart(play: Play) -> None:
    (episode,), _ = await play(by_agent(tool=["", ""] * 2, plan=["", ""] * 2))
    assert len({continued(node)[0] for node in episode.nodes}) > 1


@pytest.mark.parametrize(("alpha", "expected"), [(0.0, [0, 0.1, 0.05, 0]), (0.5, [0, 0.6, 0.05, 0])])
async def test_alpha_weighs_the_team_reward(play: Play, alpha: float, expected: list[float]) -> None:
    (episode,), _ = await play(SCRIPT, sampler=TreeSampler(k=4, alpha=alpha))
    tool = episode.nodes[0].candidates
    assert [c.reward for c in tool] == pytest.approx(expected)
    assert [c.team for c in tool] == [0, 1, 0, 0]
    assert [c.local for c in tool] == pytest.approx([0, 0.1, 0.05, 0])


async def test_the_mixed_reward_decides_not_the_team_reward(play: Play) -> None:
    # Pushing once earns more than nothing, though the team reward of both is 0.
    (episode,), _ = await play(by_agent(tool=[""] * 4, plan=["", "", "R", ""]))
    assert continued(episode.nodes[1]) == [2]


# ---- options --------------------------------------------------------------------------------------------------------


async def test_outcome_only_leaves_the_local_reward_out(play: Play) -> None:
    (episode,), _ = await play(SCRIPT, sampler=TreeSampler(k=4, local=False))
    assert [c.reward for c in episode.nodes[0].candidates] == [0, 1, 0, 0]
    assert [c.local for c in episode.nodes[0].candidates] == pytest.approx([0, 0.1, 0.05, 0])


async def test_long_messages_may_cost(play: Play) -> None:
    # max_tokens 40, the last tenth: 36 tokens are free, 38 cost a half, 40 cost 1 (each with its end of sequence).
    texts = [" ".join(["U"] * n) for n in (35, 37, 39, 0)]
    (episode,), _ = await play(by_agent(tool=texts, plan=[""] * 4), sampler=TreeSampler(k=4, overlong=0.1))
    assert [len(c.completion.token_ids) for c in episode.nodes[0].candidates] == [36, 38, 40, 1]
    assert [c.reward - c.team - c.local for c in episode.nodes[0].candidates] == pytest.approx([0, -0.5, -1, 0])


async def test_each_agent_may_have_its_own_k(play: Play) -> None:
    sampler = TreeSampler(k=4, k_by_agent={"plan": 2})
    (episode,), _ = await play(by_agent(tool=[""] * 4, plan=["", "R"]), sampler=sampler)
    assert {node.agent: len(node.candidates) for node in episode.nodes} == {"tool": 4, "plan": 2}
    assert sampler.k == 2  # the least is what a credit rule must be able to judge
    with pytest.raises(ValueError, match=r"algorithm\.sampler\.k_by_agent\.cook: no such agent.*tool, plan"):
        TreeSampler(k_by_agent={"cook": 2}).check(Sokoban())
    with pytest.raises(ValueError, match=r"algorithm\.sampler\.k_by_agent\.tool must be at least 1"):
        TreeSampler(k_by_agent={"tool": 0})


async def test_an_episode_says_whether_the_best_of_k_continued(play: Play) -> None:
    for selection, best_of_k in (("greedy", True), ("sampled", False)):
        (episode,), _ = await play(SCRIPT, sampler=TreeSampler(k=4, selection=selection))
        assert episode.best_of_k is best_of_k


async def test_a_sampled_continuation_is_any_candidate(play: Play) -> None:
    seen = set()
    for seed in range(24):
        (episode,), _ = await play(SCRIPT, seed=seed, sampler=TreeSampler(k=4, selection="sampled"))
        (again,), _ = await play(SCRIPT, seed=seed, sampler=TreeSampler(k=4, selection="sampled"))
        assert episode == again
        seen |= set(continued(episode.nodes[0]))
    assert seen == {0, 1, 2, 3}


async def test_an_episode_ends_where_the_mean_reward_is_high_enough(play: Play) -> None:
    # The tool's rewards 0, 1.1, 0.05, 0 have the mean 0.2875.
    (episode,), _ = await play(SCRIPT, sampler=TreeSampler(k=4, stop_above=0.28))
    assert [node.agent for node in episode.nodes] == ["tool"]
    assert episode.outcomes == [Outcome(success=False, turns=0, team_return=0.0)]
    (longer,), _ = await play(SCRIPT, sampler=TreeSampler(k=4, stop_above=0.29))
    assert len(longer.nodes) == 4
    (failed,), _ = await play(by_agent(tool=[""] * 4, plan=[""] * 4), sampler=TreeSampler(k=4, stop_above=0.0))
    assert len(failed.nodes) == 8  # a mean of exactly stop_above does not exceed it


async def test_states_are_kept(play: Play) -> None:
    (episode,), _ = await play(SCRIPT)
    states = [node.state for node in episode.nodes]
    assert len(set(states)) == len(states) and None not in states


async def test_agents_that_act_at_once_are_tried_together(play: Play, duet: TeamEnv) -> None:
    def script(prompt: str, row: int, seed: int) -> str:
        return "UDL"[row] if prompt.startswith("tool") else "UUL"[row]

    tasks = duet.tasks("train", 1, 0)
    (episode,), engine = await play(script, world=duet, tasks=tasks, sampler=TreeSampler(k=3))
    assert [(n.agent, n.turn, n.parent) for n in episode.nodes] == [
        ("tool", 0, None),
        ("plan", 0, None),
        ("tool", 1, 1),
        ("plan", 1, 1),
    ]
    # Candidate c of the one meets candidate c of the other: U U agree, D U do not, L L agree.
    assert [[c.team for c in node.candidates] for node in episode.nodes[2:]] == [[1, 0, 1], [1, 0, 1]]
    assert [c.reward for c in episode.nodes[2].candidates] == pytest.approx([1.4, 0.4, 1.4])
    assert continued(episode.nodes[2]) == continued(episode.nodes[3])
    assert continued(episode.nodes[2])[0] in (0, 2)
    assert episode.edges[0].members.keys() == {"tool", "plan"} and episode.edges[0].child == 2
    assert episode.outcomes == [Outcome(True, 2, 1.0)]
    assert (episode.env_steps, len(engine.requests)) == (6, 4)
    with pytest.raises(ValueError, match=r"algorithm\.sampler\.k_by_agent: tool, plan act at once"):
        await play(script, world=duet, tasks=tasks, sampler=TreeSampler(k=3, k_by_agent={"plan": 2}))


async def test_the_best_mean_over_agents_continues(play: Play) -> None:
    class Paid(Duet):
        async def step(self, actions: Mapping[str, str]) -> StepResult:
            return replace(await super().step(actions), local={agent: len(each) for agent, each in actions.items()})

        def fork(self) -> "Paid":
            copy = Paid()
            copy.turn = self.turn
            return copy

    def script(prompt: str, row: int, seed: int) -> str:
        return ["R R R R", "R R"][row] if prompt.startswith("tool") else ["", "R R R"][row]

    world = Paid()
    (episode,), _ = await play(script, world=world, tasks=world.tasks("train", 1, 0), sampler=TreeSampler(k=2))
    assert [[c.local for c in node.candidates] for node in episode.nodes[:2]] == [[7, 3], [0, 5]]
    assert continued(episode.nodes[0]) == continued(episode.nodes[1]) == [1]


# ---- the team's reward at the end of a turn --------------------------------------------------------------------------


def contrary(prompt: str, row: int, seed: int) -> str:
    """A planner that solves the board exactly when nothing is proposed."""
    if prompt.startswith("tool"):
        return ["", SOLVED, "", HALFWAY][row]
    return "R R" if "proposal none" in prompt else ""


async def test_a_global_reward_asks_the_next_agent_once_about_each_candidate(play: Play) -> None:
    (episode,), engine = await play(contrary, sampler=TreeSampler(k=4, team="global"))
    tool, planner = episode.nodes
    assert [c.team for c in tool.candidates] == [1, 0, 1, 0]
    assert [c.reward for c in tool.candidates] == pytest.approx([1, 0.1, 1, 0.05])
    assert continued(tool)[0] in (0, 2)
    assert [c.team for c in planner.candidates] == [1, 1, 1, 1]  # the turn ends with it: nobody is asked
    assert [request.n for request in engine.requests] == [4, 1, 1, 1, 1, 4]
    asked = engine.requests[1:5]
    assert len({request.seed for request in engine.requests}) == 6
    assert sorted(request.key for request in engine.requests)
    # Each answer is to the candidate's own message; it costs tokens and a step, and is not learnt from.
    assert [r.prompt_ids for r in asked].count(planner.prompt_ids) == 2
    assert [(length, c.text) for length, c in episode.auxiliary] == [
        (len(r.prompt_ids), text) for r, text in zip(asked, ["R R", "", "R R", ""], strict=True)
    ]
    assert episode.env_steps == 4 + 4 + 4
    assert episode.outcomes == [Outcome(success=True, turns=1, team_return=1.0)]


async def test_an_answer_leaves_the_branch_as_it_was(play: Play) -> None:
    (episode,), _ = await play(contrary, sampler=TreeSampler(k=4, team="global"))
    assert episode.nodes[1].turn == 0
    assert [c.local for c in episode.nodes[1].candidates] == pytest.approx([0.1] * 4)


class Briefing(Duet):
    """One agent speaks before the two that act at once."""

    agents = ("solo", "tool", "plan")

    def __init__(self, briefed: bool = False) -> None:
        super().__init__()
        self.briefed = briefed

    def next_agents(self) -> tuple[str, ...]:
        return super().next_agents()[1:] if self.briefed else super().next_agents()[:1]

    async def step(self, actions: Mapping[str, str]) -> StepResult:
        if not self.briefed:
            self.briefed = True
            return StepResult({"solo": 0.0}, 0.0, False, False)
        self.briefed = False
        return await super().step(actions)

    def fork(self) -> "Briefing":
        copy = Briefing(self.briefed)
        copy.turn = self.turn
        return copy


async def test_agents_that_act_at_once_are_asked_at_once(words: PreTrainedTokenizerFast) -> None:
    """Sampled answers come once those of all branches and agents are asked for."""
    asked: list[Request] = []
    together = asyncio.Event()

    class Patient(ScriptedEngine):
        async def generate(self, request: Request) -> list[Completion]:
            if "answer" in request.key and request.key[1] == 0:
                asked.append(request)
                if len(asked) == 2 * 2:
                    together.set()
                await together.wait()
            return await super().generate(request)

    world = Briefing()
    client = PolicyClient("p", Patient(lambda prompt, row, seed: "U", words), words, 512, Sampling(max_tokens=40))
    sampler = TreeSampler(k=2, team="global")
    playing = sampler.collect(world, world.tasks("train", 1, 0), dict.fromkeys(world.agents, client), 0)
    ((episode,),) = await asyncio.wait_for(playing, 10)
    assert [request.key[2] for request in sorted(asked, key=lambda r: (r.key[5], r.key[2]))] == ["plan", "tool"] * 2
    assert [node.agent for node in episode.nodes] == ["solo", "tool", "plan"] * 2
    # After the last turn's briefing the two agree: 1 for the team.
    assert [c.team for c in episode.nodes[3].candidates] == [1, 1]
    assert len(episode.auxiliary) == 2 * 2 * 2 and episode.env_steps == 2 * (2 + 2 + 2)


# ---- any episode ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("team", ["own", "global"])
@pytest.mark.parametrize("world", [Sokoban(), PlanPath()], ids=["sokoban", "plan_path"])
async def test_the_tree_is_consistent(play: Play, world: TeamEnv, team: TeamReward) -> None:
    tasks = world.tasks("train", 8, 1)
    episodes, _ = await play(babble, tasks=tasks, world=world, sampler=TreeSampler(k=3, team=team))
    assert [episode.task for episode in episodes] == tasks
    for episode in episodes:
        assert len(episode.edges) == len(episode.nodes)
        team_return = 0.0
        for index, (node, edge) in enumerate(zip(episode.nodes, episode.edges, strict=True)):
            assert node.task_id == episode.task.task_id
            assert node.parent == (index - 1 if index else None)
            assert (node.agent, node.turn) == (world.agents[index % 2], index // 2)
            (best,) = continued(node)
            assert edge.members == {node.agent: (index, best)}
            assert node.candidates[best].reward == max(c.reward for c in node.candidates)
            assert edge.child == (index + 1 if index + 1 < len(episode.nodes) else None)
            if node.agent == "plan":
                team_return += node.candidates[best].team
        (outcome,) = episode.outcomes
        assert episode.edges[-1].outcome == outcome
        assert outcome.team_return == team_return
        assert outcome.turns == len(episode.nodes) / 2 <= world.horizon
        assert outcome.success == (episode.nodes[-1].candidates[continued(episode.nodes[-1])[0]].team == 1)
        assert outcome.success or outcome.turns == world.horizon
        answers = 3 * sum(node.agent == "tool" for node in episode.nodes) if team == "global" else 0
        assert len(episode.auxiliary) == answers
        assert episode.env_steps == 3 * len(episode.nodes) + answers


async def test_an_episode_does_not_depend_on_those_beside_it(play: Play) -> None:
    world = PlanPath()
    tasks = world.tasks("train", 4, 2)
    together, _ = await play(babble, tasks=tasks, world=world)
    for task, expected in zip(tasks, together, strict=True):
        (alone,), _ = await play(babble, tasks=[task], world=world)
        assert alone == expected


async def test_another_seed_asks_for_other_draws(play: Play) -> None:
    _, one = await play(babble, seed=0)
    _, other = await play(babble, seed=1)
    assert one.requests[0].prompt_ids == other.requests[0].prompt_ids
    assert one.requests[0].seed != other.requests[0].seed


# ---- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "setting",
    [{"k": 0}, {"selection": "best"}, {"local": "off"}, {"overlong": 2.0}, {"resample": -1}],
)
def test_settings_out_of_range_are_named(setting: Mapping[str, Any]) -> None:
    (name,) = setting
    with pytest.raises(ValueError, match=rf"algorithm\.sampler\.{name}"):
        TreeSampler(**setting)


async def test_candidates_of_a_node_remember_the_same(play: Play) -> None:
    """With a memory, too, a node has one prompt: that of the branch that went on, with what was said on it."""

    def script(prompt: str, row: int, seed: int) -> str:
        return ["U", "D", "L", "U D"][row]

    world = WithHistory(Sokoban(horizon=3))
    (episode,), engine = await play(script, world=world)
    prompts: dict[str, list[str]] = {}
    decode = engine.tokenizer.decode
    for node in episode.nodes:
        prompts.setdefault(node.agent, []).append(decode(list(node.prompt_ids)))
    kept = {
        agent: [n.candidates[continued(n)[0]].completion.text for n in episode.nodes if n.agent == agent]
        for agent in prompts
    }
    assert [len(each) for each in prompts.values()] == [3, 3]
    for agent, seen in prompts.items():
        for turn, prompt in enumerate(seen):
            assert prompt.count("last") == turn + 1  # an observation per turn
            observation = prompt.split("<answer>")[0]
            for earlier in kept[agent][:turn]:
                assert f" {earlier} " in observation
    states = [node.state for node in episode.nodes]
    assert len(set(states)) == len(states)
