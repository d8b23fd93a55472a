"""Episodes that branch, with scripted agents: where, with which prompts and seeds, and what they cost."""

from collections import Counter
from random import Random

import pytest

from troupe.algorithms.credit.tree_grpo import TreeGrpo, leaves
from troupe.envs.base import TeamEnv
from troupe.envs.grid.sokoban import Sokoban
from troupe.experience import Outcome
from troupe.rollout.samplers.forest import ForestSampler

from .conftest import Play


def babble(prompt: str, row: int, seed: int) -> str:
    rng = Random(f"{seed}/{row}")
    return " ".join(rng.choice("UDLR") for _ in range(rng.randint(0, 4)))


async def test_a_forest_by_hand(play: Play, duet: TeamEnv) -> None:
    """Two turns of two agents at once, so that each of two trees branches twice in turn 1: there they must agree."""
    answers = iter(["U", "R", "D", "R"])  # of the planner at a branch; the tool agent says U

    def script(prompt: str, row: int, seed: int) -> str:
        return "U" if prompt.startswith("tool") or "start" in prompt else next(answers)

    (episode,), engine = await play(script, duet, ForestSampler(k=2, expansions=1))
    assert [(n.agent, n.turn, n.parent, n.path, len(n.candidates)) for n in episode.nodes] == [
        ("tool", 0, None, (), 2),
        ("plan", 0, None, (), 2),
        ("tool", 1, 1, (0,), 2),
        ("plan", 1, 1, (0,), 2),
        ("tool", 1, 1, (1,), 2),
        ("plan", 1, 1, (1,), 2),
    ]
    won, lost = Outcome(True, 2, 1.0), Outcome(False, 2, 0.0)
    said = {(2, 0): "U", (4, 0): "R", (2, 1): "D", (4, 1): "R"}  # the first episodes of both trees, then the branches
    assert {(f, c): episode.nodes[f + 1].candidates[c].completion.text for f, c in said} == said
    tried = [(0, 0, 2, None), (0, 1, 4, None), (2, 0, None, won), (2, 1, None, lost), (4, 0, None, lost)]
    assert [(edge.members, edge.child, edge.outcome) for edge in episode.edges] == [
        ({"tool": (first, c), "plan": (first + 1, c)}, child, outcome)
        for first, c, child, outcome in [*tried, (4, 1, None, lost)]
    ]
    assert not episode.best_of_k and all(candidate.continued for _, candidate in episode.candidates())
    # Two requests of two rows for the root; one row of each agent per turn and tree, and per branch.
    assert sum(request.n for request in engine.requests) == 2 * (2 + 2 + 2) and len(engine.requests) == 2 + 4 + 4
    assert episode.env_steps == 2 + 2 + 2 and not episode.auxiliary
    # Leaves 1 0 | 0 0, mean 1/4; in tree 0, mean 1/2: of the messages in tree 0's second turn and of those before.
    TreeGrpo(normalise=False)([episode])
    first, second = [1 / 2 - 1 / 4, -1 / 4], [1 / 2 + 3 / 4, -1 / 2 - 1 / 4]
    expected = [*first, *first, *second, *second, *[-1 / 4] * 4]
    assert [c.advantage for _, c in episode.candidates()] == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_is_said(play: Play, seed: int) -> None:
    """Leaves, prompts and costs add up; a leaf's messages are a whole episode of the world."""
    world, sampler = Sokoban(horizon=3), ForestSampler(k=3, expansions=4)
    tasks = world.tasks("train", 4, 0)
    episodes, engine = await play(babble, world, sampler, tasks, seed)
    assert max(request.n for request in engine.requests) == 3
    assert len({request.seed for request in engine.requests}) == len(engine.requests)
    for task, episode in zip(tasks, episodes, strict=True):
        paths = list(leaves(episode))
        assert Counter(tree for tree, _, _ in paths) == dict.fromkeys(range(3), 5)
        assert sum(chance for chance, _ in episode.leaves) == pytest.approx(1)
        assert len({node.path for node in episode.nodes}) == len(episode.nodes)
        assert len(episode.nodes[0].candidates) == 3
        assert sum(len(node.candidates) for node in episode.nodes) == episode.env_steps
        for _, path, outcome in paths:
            env, earned = world.fork(), 0.0
            env.reset(task)
            for edge in path:
                ((agent, (index, c)),) = edge.members.items()
                node = episode.nodes[index]
                assert env.next_agents() == (agent,) and node.state == env.state_key()
                turn, result = env.turn, await env.step({agent: node.candidates[c].completion.text})
                earned += result.team if result.done or env.turn > turn else 0.0
            assert outcome == Outcome(result.success, env.turn, pytest.approx(earned)) and result.done
    most = sampler.max_completions(world)
    spoken = Counter(agent for e in episodes for n in e.nodes for agent in [n.agent] * len(n.candidates))
    assert all(spoken[agent] <= len(tasks) * most[agent] for agent in world.agents)
    assert most == {"tool": 3 + 2 * 15, "plan": 3 * 15}


async def test_branches_are_drawn_over_all_steps_but_the_first(play: Play) -> None:
    world = Sokoban(horizon=2)
    sampler, tasks = ForestSampler(k=2, expansions=2), world.tasks("train", 30, 0)
    episodes, _ = await play(lambda prompt, row, seed: "", world, sampler, tasks)
    depths = Counter(len(n.path) for e in episodes for n in e.nodes if n.path and len(n.candidates) > 1)
    assert set(depths) == {1, 2, 3} and min(depths.values()) > 10
    branching = [{n.path for n in e.nodes if n.path and len(n.candidates) > 1} for e in episodes]
    lengths = [[{len(path) for path in paths if path[0] == tree} for tree in (0, 1)] for paths in branching]
    assert any(one != other for one, other in lengths)  # each tree by itself


async def test_all_branches_leave_at_the_second_step(play: Play) -> None:
    """So that each of K first messages has as many answers as the other."""
    world = Sokoban(horizon=2)
    sampler, tasks = ForestSampler(k=2, expansions=2, branch_at="second"), world.tasks("train", 10, 0)
    episodes, engine = await play(lambda prompt, row, seed: "", world, sampler, tasks)
    for episode in episodes:
        assert [len(n.candidates) for n in episode.nodes if len(n.path) == 0] == [2]
        assert [len(n.candidates) for n in episode.nodes if len(n.path) == 1] == [3, 3]
        assert {len(n.candidates) for n in episode.nodes if len(n.path) > 1} == {1}
        assert [tree for tree, _, _ in leaves(episode)] == [0, 0, 0, 1, 1, 1]
        assert sum(len(n.candidates) for n in episode.nodes) == 2 * (1 + 3 * 3)
    assert len({request.seed for request in engine.requests}) == len(engine.requests)


async def test_a_task_plays_alike_alone_and_in_company(play: Play) -> None:
    world = Sokoban(horizon=2)
    tasks = world.tasks("train", 3, 0)
    together, _ = await play(babble, world, ForestSampler(), tasks)
    for task, episode in zip(tasks, together, strict=True):
        assert (await play(babble, world, ForestSampler(), [task]))[0] == [episode]
    assert (await play(babble, world, ForestSampler(), tasks, seed=1))[0] != together


@pytest.mark.parametrize(("key", "value", "least"), [("k", 0, 1), ("expansions", -1, 0)])
def test_settings_out_of_range_are_named(key: str, value: int, least: int) -> None:
    with pytest.raises(ValueError, match=rf"algorithm\.sampler\.{key} must be at least {least}"):
        ForestSampler(**{key: value})


def test_an_unknown_place_to_branch_is_named() -> None:
    with pytest.raises(ValueError, match=r"algorithm\.sampler\.branch_at must be drawn or second, got first"):
        ForestSampler(branch_at="first")  # type: ignore[arg-type]
