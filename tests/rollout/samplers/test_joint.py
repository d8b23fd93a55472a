"""Trees of joint actions, with scripted agents: at once in a small world, in turn in a real one."""

from collections.abc import Callable, Sequence
from random import Random

import pytest
from transformers import PreTrainedTokenizerFast

from troupe.algorithms.credit.magrpo import Magrpo
from troupe.envs.base import TeamEnv
from troupe.envs.grid.sokoban import Sokoban
from troupe.experience import Episode, JointAction, Outcome, Sampling, Task
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.samplers.joint import JointSampler
from troupe.rollout.scripted import Script, ScriptedEngine

from ...envs.test_turns import Relay

Play = Callable[..., tuple[Episode, ScriptedEngine]]


@pytest.fixture
def play(words: PreTrainedTokenizerFast) -> Play:
    async def collect(
        script: Script, world: TeamEnv, sampler: JointSampler, tasks: Sequence[Task] | None = None, seed: int = 0
    ) -> tuple[Episode, ScriptedEngine]:
        engine = ScriptedEngine(script, words)
        client = PolicyClient("p", engine, words, 512, Sampling(max_tokens=40))
        tasks = tasks or world.tasks("train", 1, 0)
        ((episode,),) = await sampler.collect(world, tasks, dict.fromkeys(world.agents, client), seed)
        return episode, engine

    return collect


def duo(prompt: str, row: int, seed: int) -> str:
    """Candidate 0 of both agree, the others do not."""
    return "UDL"[row] if prompt.startswith("tool") else "URR"[row]


async def test_an_aligned_tree_by_hand(play: Play, duet: TeamEnv) -> None:
    episode, engine = await play(duo, duet, JointSampler(k=2))
    assert [(n.agent, n.turn, n.parent, n.path) for n in episode.nodes] == [
        ("tool", 0, None, ()),
        ("plan", 0, None, ()),
        ("tool", 1, 1, (0,)),
        ("plan", 1, 1, (0,)),
        ("tool", 1, 1, (1,)),
        ("plan", 1, 1, (1,)),
    ]
    # The local rewards: 0.2 and 0, then 0.4 and 0; a joint action earns their mean, and 1 where the two agree at last.
    won, lost = Outcome(True, 2, 1.0), Outcome(False, 2, 0.0)
    edges = [
        JointAction({"tool": (first, c), "plan": (first + 1, c)}, child, outcome, pytest.approx(reward), reward // 1)
        for first, c, child, outcome, reward in [
            (0, 0, 2, None, 0.1),
            (0, 1, 4, None, 0.1),
            (2, 0, None, won, 1.2),
            (2, 1, None, lost, 0.2),
            (4, 0, None, won, 1.2),
            (4, 1, None, lost, 0.2),
        ]
    ]
    assert episode.edges == edges
    assert [c.reward for c in episode.nodes[2].candidates] == pytest.approx([1.4, 0.4])
    assert [c.reward for c in episode.nodes[3].candidates] == pytest.approx([1, 0])
    assert all(c.continued for _, c in episode.candidates()) and not episode.best_of_k
    assert episode.env_steps == 6 and len(engine.requests) == 6
    assert len({request.seed for request in engine.requests}) == 6
    assert {request.n for request in engine.requests} == {2}
    Magrpo()([episode])
    assert [c.advantage for c in episode.nodes[4].candidates] == pytest.approx([0.5, -0.5])


async def test_crossed_candidates_bear_means(play: Play, duet: TeamEnv) -> None:
    episode, _ = await play(duo, duet, JointSampler(k=2, pairing="cross", local=False))
    assert len(episode.nodes) == 2 + 4 * 2
    assert len(episode.edges) == 4 + 4 * 4 == episode.env_steps
    assert [tuple(c for _, c in edge.members.values()) for edge in episode.edges[:4]] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
    ]
    # U with U and R: 1 and 0.  D with either: 0.
    assert [edge.reward for edge in episode.edges[4:8]] == [1, 0, 0, 0]
    assert [c.team for c in episode.nodes[2].candidates] == [0.5, 0]
    assert [c.reward for c in episode.nodes[3].candidates] == [0.5, 0]
    Magrpo()([episode])
    assert [c.advantage for c in episode.nodes[2].candidates] == [0.25, -0.25]


async def test_only_the_best_goes_on(play: Play, duet: TeamEnv) -> None:
    def script(prompt: str, row: int, seed: int) -> str:
        return duo(prompt, 1 - row if "last ok" in prompt else row, seed)

    episode, _ = await play(script, duet, JointSampler(k=2, growth="best", local=False))
    assert [node.turn for node in episode.nodes] == [0, 0, 1, 1]
    went_on = [edge.child is not None for edge in episode.edges]
    assert sorted(went_on[:2]) == [False, True] and not any(went_on[2:])
    assert episode.nodes[2].path == (went_on.index(True),)
    assert [edge.outcome for edge in episode.edges] == [None, None, None, Outcome(True, 2, 1.0)]
    assert [c.continued for c in episode.nodes[3].candidates] == [False, True]
    assert episode.best_of_k
    ties = {(await play(script, duet, JointSampler(k=2, growth="best"), seed=s))[0].nodes[2].path for s in range(8)}
    assert ties == {(0,), (1,)}


async def test_an_episode_ends_where_the_mean_is_high_enough(play: Play, duet: TeamEnv) -> None:
    episode, _ = await play(duo, duet, JointSampler(k=2, stop_above=0.09))
    assert [edge.outcome for edge in episode.edges] == [Outcome(False, 1, 0.0)] * 2
    longer, _ = await play(duo, duet, JointSampler(k=2, stop_above=0.11))
    assert len(longer.nodes) == 6


async def test_agents_in_turn_are_worth_what_they_lead_to(play: Play, board: Task) -> None:
    """The tool agent's proposals are not rewarded by the team; the planner's answers are."""

    def script(prompt: str, row: int, seed: int) -> str:
        if prompt.startswith("tool"):
            return "box 2,2 R 2,3 R 2,4" if row == 0 else ""
        return "R R" if row == 0 and "proposal none" not in prompt else ""

    world = Sokoban(horizon=1)
    episode, _ = await play(script, world, JointSampler(k=2, local=False), [board])
    assert [(n.agent, n.path) for n in episode.nodes] == [("tool", ()), ("plan", (0,)), ("plan", (1,))]
    assert [edge.reward for edge in episode.edges] == [0, 0, 1, 0, 0, 0]
    Magrpo()([episode])
    assert [[c.advantage for c in n.candidates] for n in episode.nodes] == [[0.25, -0.25], [0.5, -0.5], [0, 0]]


async def test_a_task_plays_alike_alone_and_in_company(play: Play) -> None:
    def babble(prompt: str, row: int, seed: int) -> str:
        rng = Random(f"{seed}/{row}")
        return " ".join(rng.choice("UDLR") for _ in range(rng.randint(0, 4)))

    world, clients = Sokoban(horizon=1), {}
    _, engine = await play(babble, world, JointSampler(k=2))
    clients = dict.fromkeys(world.agents, PolicyClient("p", engine, engine.tokenizer, 512, Sampling(max_tokens=40)))
    tasks = world.tasks("train", 3, 0)
    together = await JointSampler(k=2).collect(world, tasks, clients, 5)
    for task, episodes in zip(tasks, together, strict=True):
        assert await JointSampler(k=2).collect(world, [task], clients, 5) == [episodes]
    assert await JointSampler(k=2).collect(world, tasks[:1], clients, 6) != together[:1]


@pytest.mark.parametrize(
    ("settings", "key"), [({"k": 0}, "k"), ({"pairing": "all"}, "pairing"), ({"growth": "all"}, "growth")], ids=str
)
def test_settings_out_of_range_are_named(settings: dict[str, object], key: str) -> None:
    with pytest.raises(ValueError, match=rf"algorithm\.sampler\.{key}"):
        JointSampler(**settings)


def test_the_bound_on_completions_counts_each_stage_of_a_turn() -> None:
    world = Relay()  # one agent, then two at once; two turns
    per_node = [2, 4, 2, 4]  # joint actions, with pairing=cross
    branches = [1, 2, 2 * 4, 2 * 4 * 2]
    sampler = JointSampler(k=2, pairing="cross")
    assert sum(a * b for a, b in zip(per_node, branches, strict=True)) == 2 + 8 + 16 + 64
    assert sampler.max_completions(world) == {"scout": 2 * (1 + 8), "left": 2 * (2 + 16), "right": 2 * (2 + 16)}
    with pytest.raises(ValueError, match=r"4 steps, with up to 81 joint actions at each node, may hold"):
        JointSampler(k=9, pairing="cross").check(world)


def test_trees_beyond_bounds_are_refused(duet: TeamEnv) -> None:
    JointSampler(k=4, pairing="cross").check(duet)  # 16 + 16^2
    with pytest.raises(ValueError, match=r"2 steps, with up to 100 joint actions .* 10,100 of them"):
        JointSampler(k=10, pairing="cross").check(duet)
    with pytest.raises(ValueError, match=r"8 steps, with up to 4 .*env\.horizon=4, or .*\.sampler\.growth=best"):
        JointSampler(k=4).check(Sokoban(horizon=4))
    JointSampler(k=4, growth="best").check(Sokoban(horizon=4))
