"""Independent episodes on real worlds, with scripted agents."""

from collections.abc import Callable, Sequence
from random import Random

import pytest
from transformers import PreTrainedTokenizerFast

from troupe.envs.base import TeamEnv
from troupe.envs.grid.sokoban import Sokoban
from troupe.experience import Episode, JointAction, Outcome, Sampling, Task
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.samplers.chain import ChainSampler
from troupe.rollout.scripted import Script, ScriptedEngine

SOLVED = "box 2,2 R 2,3 R 2,4"

Play = Callable[..., tuple[list[Episode], ScriptedEngine]]


@pytest.fixture
def play(words: PreTrainedTokenizerFast, board: Task) -> Callable[..., object]:
    async def collect(
        script: Script,
        *,
        tasks: Sequence[Task] = (board,),
        world: TeamEnv | None = None,
        seed: int = 0,
        sampler: ChainSampler | None = None,
    ) -> tuple[list[Episode], ScriptedEngine]:
        engine = ScriptedEngine(script, words)
        world = world or Sokoban()
        client = PolicyClient("p", engine, words, 512, Sampling(max_tokens=40))
        sampler = sampler or ChainSampler(k=3)
        results = await sampler.collect(world, tasks, dict.fromkeys(world.agents, client), seed)
        assert [{episode.task.task_id for episode in each} for each in results] == [{task.task_id} for task in tasks]
        return [episode for episodes in results for episode in episodes], engine

    return collect


def babble(prompt: str, row: int, seed: int) -> str:
    rng = Random(f"{seed}/{row}")
    return " ".join(rng.choice(["U", "D", "L", "R", "R"]) for _ in range(rng.randint(0, 5)))


async def test_an_episode_by_hand(play: Play) -> None:
    """The tool agent proposes well, then badly and badly; the planner pushes the box once in each of two turns."""

    def script(prompt: str, row: int, seed: int) -> str:
        return ([SOLVED, "", "goal"][row] if "last start" in prompt else "") if prompt.startswith("tool") else "R"

    episodes, engine = await play(script)
    assert [episode.sample for episode in episodes] == [0, 1, 2]
    for episode, proposed in zip(episodes, [1.1, 0, 0], strict=True):
        assert [(n.agent, n.turn, n.parent) for n in episode.nodes] == [
            ("tool", 0, None),
            ("plan", 0, 0),
            ("tool", 1, 1),
            ("plan", 1, 2),
        ]
        assert [c.reward for _, c in episode.candidates()] == pytest.approx([proposed, 0.05, 0, 1.05])
        assert all(len(node.candidates) == 1 and node.candidates[0].continued for node in episode.nodes)
        assert episode.edges[:3] == [JointAction({n.agent: (i, 0)}, i + 1) for i, n in enumerate(episode.nodes[:3])]
        assert episode.env_steps == 4
    # 1 for the goal, once; 0.05 on average of the planner's messages, and half of 0.1 of the first tool agent's.
    expected = [Outcome(True, 2, 1.0, pytest.approx(value)) for value in (1.1, 1.05, 1.05)]
    assert [episode.outcomes for episode in episodes] == [[outcome] for outcome in expected]
    # The three first messages are one request; then everybody asks alone.
    assert [request.n for request in engine.requests] == [3, *[1] * 9]


async def test_failing_longer_never_pays(play: Play) -> None:
    """A tool agent that could earn its local reward at every turn is better off when the team succeeds at once."""

    def slow(prompt: str, row: int, seed: int) -> str:
        return SOLVED if prompt.startswith("tool") else ""

    def swift(prompt: str, row: int, seed: int) -> str:
        return SOLVED if prompt.startswith("tool") else "R R"

    (late, *_), _ = await play(slow)
    (soon, *_), _ = await play(swift)
    assert (late.outcomes[0].turns, late.outcomes[0].mixed_return) == (4, pytest.approx(0.1))
    assert (soon.outcomes[0].turns, soon.outcomes[0].mixed_return) == (1, pytest.approx(1.2))


async def test_alpha_weighs_the_team(play: Play) -> None:
    (episode, *_), _ = await play(
        lambda prompt, row, seed: SOLVED if prompt.startswith("tool") else "R R", sampler=ChainSampler(k=2, alpha=0.5)
    )
    assert [c.reward for _, c in episode.candidates()] == pytest.approx([0.6, 0.6])
    assert episode.outcomes[0].mixed_return == pytest.approx(0.5 + 0.1 + 0.1)


async def test_episodes_go_apart_and_repeat_by_seed(play: Play) -> None:
    tasks = Sokoban().tasks("train", 3, 0)
    episodes, engine = await play(babble, tasks=tasks, sampler=ChainSampler(k=4))
    assert [(e.task.task_id, e.sample) for e in episodes] == [(t.task_id, s) for t in tasks for s in range(4)]
    assert len({request.seed for request in engine.requests}) == len(engine.requests)
    assert len({request.key for request in engine.requests}) == len(engine.requests)
    texts = [[c.completion.text for _, c in e.candidates()] for e in episodes]
    assert len({str(text) for text in texts[:4]}) > 1
    again, _ = await play(babble, tasks=tasks, sampler=ChainSampler(k=4))
    other, _ = await play(babble, tasks=tasks, sampler=ChainSampler(k=4), seed=1)
    assert again == episodes != other


async def test_a_task_plays_alike_alone_and_in_company(play: Play) -> None:
    tasks = Sokoban().tasks("train", 3, 0)
    together, _ = await play(babble, tasks=tasks)
    alone, _ = await play(babble, tasks=tasks[1:2])
    assert alone == together[3:6]


async def test_agents_may_speak_at_once(play: Play, duet: TeamEnv) -> None:
    world = duet

    def script(prompt: str, row: int, seed: int) -> str:
        return "UDL"[row] if prompt.startswith("tool") else "U"

    episodes, engine = await play(script, tasks=world.tasks("train", 1, 0), world=world)
    assert [request.n for request in engine.requests] == [3, 3, *[1] * 6]
    for episode in episodes:
        assert [(n.agent, n.turn, n.parent) for n in episode.nodes] == [
            ("tool", 0, None),
            ("plan", 0, None),
            ("tool", 1, 1),
            ("plan", 1, 1),
        ]
        assert [edge.members for edge in episode.edges] == [
            {"tool": (0, 0), "plan": (1, 0)},
            {"tool": (2, 0), "plan": (3, 0)},
        ]
        # The last messages agree ("U", both): 1 for the team, once, and the mean of 0.2 and 0.4.
        assert episode.outcomes == [Outcome(True, 2, 1.0, pytest.approx(1.3))]


def test_no_episodes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"algorithm\.sampler\.k must be at least 1, got 0"):
        ChainSampler(k=0)
