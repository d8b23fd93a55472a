"""Messages replayed with scripted agents: alternatives, continuations, and what they cost."""

from random import Random

import pytest

from troupe.algorithms.credit.c3 import C3
from troupe.algorithms.credit.counterfactual import Counterfactual
from troupe.envs.base import TeamEnv
from troupe.envs.grid.sokoban import Sokoban
from troupe.experience import JointAction, Outcome, Task
from troupe.rollout.samplers.replay import ReplaySampler

from .conftest import Play

SOLVED = "box 2,2 R 2,3 R 2,4"


async def test_an_episode_by_hand(play: Play, board: Task) -> None:
    """The planner solves the board when something was proposed to it, and in turn 1 when it thinks of it itself."""

    def script(prompt: str, row: int, seed: int) -> str:
        if prompt.startswith("tool"):
            return SOLVED if row == 1 else ""
        solves = "proposal none" not in prompt or (row == 2 and "last start" not in prompt)
        return "R R" if solves else ""

    (episode,), engine = await play(script, Sokoban(horizon=2), ReplaySampler(k=3, local=False), [board])
    # The main line is row 0 throughout: nothing is proposed, nothing done.
    assert [(n.agent, n.turn, n.parent) for n in episode.nodes] == [
        ("tool", 0, None),
        ("plan", 0, 0),
        ("tool", 1, 1),
        ("plan", 1, 2),
    ]
    assert [[c.continued for c in n.candidates] for n in episode.nodes] == [[True, False, False]] * 4
    assert episode.outcomes == [Outcome(False, 2, 0.0)] and not episode.best_of_k
    assert episode.edges[:3] == [JointAction({n.agent: (i, 0)}, i + 1) for i, n in enumerate(episode.nodes[:3])]
    # A proposal leads to the goal whenever it comes; of the planner's own answers, row 2 in turn 1.
    assert [[c.team for c in n.candidates] for n in episode.nodes] == [[0, 1, 0], [0, 0, 0], [0, 1, 0], [0, 0, 1]]
    C3()([episode])
    expected = [-0.5, 1, -0.5, 0, 0, 0, -0.5, 1, -0.5, -0.5, -0.5, 1]
    assert [c.advantage for _, c in episode.candidates()] == pytest.approx(expected)
    # Continuations: after the first proposal 1 message and after nothing 3, of 2 alternatives; 2 and 2; 1 and 1; none.
    assert len(episode.auxiliary) == (1 + 3) + (2 + 2) + (1 + 1)
    assert episode.env_steps == 4 + 8 + len(episode.auxiliary)
    assert sum(request.n for request in engine.requests) == 4 * 3 + len(episode.auxiliary)


async def test_equal_messages_have_equal_ends(play: Play) -> None:
    """What follows is drawn with the main line's seeds: rows that repeat row 0 earn what row 0 earned."""

    def script(prompt: str, row: int, seed: int) -> str:
        rng = Random(f"{seed}/0")  # row 0's words in every row
        return " ".join(rng.choice("UDLR") for _ in range(rng.randint(0, 6)))

    world = Sokoban(horizon=3)
    episodes, _ = await play(script, world, ReplaySampler(k=3), world.tasks("train", 6, 0))
    for episode in episodes:
        for node in episode.nodes:
            assert len({(c.team, c.local, c.completion.text) for c in node.candidates}) == 1
    assert any(c.local for episode in episodes for _, c in episode.candidates())


async def test_messages_beside_an_alternative_are_kept(play: Play, duet: TeamEnv) -> None:
    def script(prompt: str, row: int, seed: int) -> str:
        return "UD"[row] if prompt.startswith("tool") else "UR"[row]

    (episode,), engine = await play(script, duet, ReplaySampler(k=2, local=False))
    # In the last turn both say U; either's alternative breaks it, alone.  Before, no alternative changes the end.
    assert [[c.team for c in n.candidates] for n in episode.nodes] == [[1, 1], [1, 1], [1, 0], [1, 0]]
    assert episode.edges[0] == JointAction({"tool": (0, 0), "plan": (1, 0)}, child=2)
    assert episode.outcomes == [Outcome(True, 2, 1.0)]
    assert len(episode.auxiliary) == 4 and episode.env_steps == 2 + 2 * 2 + 2
    assert len(engine.requests) == 4 + 4


async def test_several_continuations_are_averaged(play: Play, board: Task) -> None:
    """The planner solves the board or not by the seed: 0 and 1 on average of many, something between."""

    def script(prompt: str, row: int, seed: int) -> str:
        return "" if prompt.startswith("tool") else ("R R" if seed % 2 else "")

    (episode,), engine = await play(script, Sokoban(horizon=1), ReplaySampler(k=2, continuations=8), [board])
    tool, planner = episode.nodes
    # The tool agent's two messages are the same: both are played on with the same eight seeds.
    assert tool.candidates[0].team == tool.candidates[1].team
    assert 0 < tool.candidates[0].team < 1
    assert planner.candidates[0].team in (0, 1)
    assert len(episode.auxiliary) == 15
    seeds = [request.seed for request in engine.requests if request.key[2] == "plan"]
    assert len(set(seeds)) == 8


async def test_a_removed_message_is_played_on(play: Play, board: Task) -> None:
    """The planner does what was proposed; without a proposal, and without its own answer, the board stays unsolved."""

    def script(prompt: str, row: int, seed: int) -> str:
        if prompt.startswith("tool"):
            return SOLVED
        return "" if "proposal none" in prompt else "R R"

    world, sampler = Sokoban(horizon=1), ReplaySampler(k=1, removal="", local=False, alpha=0.5)
    (episode,), engine = await play(script, world, sampler, [board])
    assert [([c.team for c in n.candidates], n.removed) for n in episode.nodes] == [([1.0], 0.0)] * 2
    # The planner answered in the main episode, and once more where nothing was proposed; both were then silent.
    assert len(engine.requests) == 3 and len(episode.auxiliary) == 1 and episode.env_steps == 2 + (1 + 1) + 1
    assert sampler.max_completions(world) == {"tool": 1, "plan": 1 + 1}
    Counterfactual(removal="")([episode])
    assert [c.advantage for _, c in episode.candidates()] == [0.5, 0.5]


async def test_in_place_of_a_message_another_text_may_stand(play: Play, duet: TeamEnv) -> None:
    (episode,), _ = await play(lambda prompt, row, seed: "U", duet, ReplaySampler(k=1, removal="D", local=False))
    # Agreement counts in the last turn alone.
    assert [(n.candidates[0].team, n.removed) for n in episode.nodes] == [(1, 1), (1, 1), (1, 0), (1, 0)]


@pytest.mark.parametrize("continuations", [1, 2])
async def test_removing_what_says_nothing_changes_nothing(play: Play, board: Task, continuations: int) -> None:
    """Under the same seeds: a message that is the removal's text earns exactly what its removal does."""

    def script(prompt: str, row: int, seed: int) -> str:
        return Random(f"{seed}/{row}").choice(["", "", "R", "R R", "L"])

    world, seeds = Sokoban(horizon=3), range(8)
    sampler = ReplaySampler(k=2, removal="", continuations=continuations, local=False)
    plays = [await play(script, world, sampler, [board], seed) for seed in seeds]
    judged = [(n.removed, c) for (episode,), _ in plays for n, c in episode.candidates()]
    assert all(c.team == removed for removed, c in judged if not c.completion.text)
    assert any(c.team != removed for removed, c in judged)
    most = sum(sampler.max_completions(world).values())
    assert all(sum(request.n for request in engine.requests) <= most for _, engine in plays)


async def test_a_task_plays_alike_alone_and_in_company(play: Play) -> None:
    def babble(prompt: str, row: int, seed: int) -> str:
        rng = Random(f"{seed}/{row}")
        return " ".join(rng.choice("UDLR") for _ in range(rng.randint(0, 4)))

    world = Sokoban(horizon=2)
    tasks = world.tasks("train", 3, 0)
    together, _ = await play(babble, world, ReplaySampler(k=2), tasks)
    for task, episode in zip(tasks, together, strict=True):
        assert (await play(babble, world, ReplaySampler(k=2), [task]))[0] == [episode]
    assert (await play(babble, world, ReplaySampler(k=2), tasks, seed=1))[0] != together


@pytest.mark.parametrize("key", ["k", "continuations"])
def test_settings_out_of_range_are_named(key: str) -> None:
    with pytest.raises(ValueError, match=rf"algorithm\.sampler\.{key} must be at least 1"):
        ReplaySampler(**{key: 0})


def test_a_removal_is_a_text() -> None:
    with pytest.raises(ValueError, match=r"algorithm\.sampler\.removal must be a text or null, got 0"):
        ReplaySampler(removal=0)  # type: ignore[arg-type]


def test_the_rule_and_the_sampler_belong_together() -> None:
    C3().check(4, ReplaySampler.topology)
    with pytest.raises(ValueError, match="C3 judges episodes of a replay sampler"):
        C3().check(4, "tree")
