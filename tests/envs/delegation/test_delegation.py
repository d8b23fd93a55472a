"""Delegation: tasks, prompts, rewards by hand, who acts, ways to earn reward without an answer, every sampler."""

from random import Random
from typing import Any
from xml.etree import ElementTree

import pytest

from troupe.envs.delegation import Delegation
from troupe.envs.delegation.world import NAMES, WORKERS, Directory, read_calls, read_numbers, words
from troupe.envs.drawing import SVG, check_svg
from troupe.experience import Episode, Sampling
from troupe.models.bases.tiny import build_tokenizer
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.samplers.chain import ChainSampler
from troupe.rollout.samplers.forest import ForestSampler
from troupe.rollout.samplers.joint import JointSampler
from troupe.rollout.samplers.tree import TreeSampler
from troupe.rollout.scripted import ScriptedEngine

from .conftest import EXPERT, RIGHT, TASK, begin, prompt, say


@pytest.mark.parametrize(
    ("key", "value"), [("asked", 0), ("asked", 9), ("order", "chaos"), ("call_cost", 2), ("horizon", 0)]
)
def test_settings_are_checked(key: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"env.{key}"):
        Delegation(**{key: value})


def test_the_same_question_is_in_one_split() -> None:
    """Whatever the other names' numbers."""
    world, split_of = Delegation(asked=1), {}
    for split, count in (("train", 300), ("validation", 50), ("test", 50)):
        for task in world.tasks(split, count, 0):
            (name,) = task.data["asked"]
            question = (name, Directory(tuple(task.data["numbers"]), ()).number(name))
            assert split_of.setdefault(question, split) == split


# ---- who acts, and what it sees -------------------------------------------------------------------------------------


async def test_the_orchestrator_decides_who_acts() -> None:
    world = begin()
    assert world.next_agents() == ("orchestrator",)
    assert prompt(world, "orchestrator") == "ask bob ann"
    for text, acting in (
        (EXPERT, ("blue", "red")),
        ("call ann red", ("red",)),
        ("call ann red cid red", ("red",)),
        ("call ann red bob blue cid green dan grey", ("red", "blue", "green", "grey")),
        ("nobody", ("orchestrator",)),
    ):
        fork = world.fork()
        await say(fork, orchestrator=text)
        assert fork.next_agents() == acting


async def test_workers_see_their_notes_and_their_calls_alone() -> None:
    world = begin()
    await say(world, orchestrator="call ann red bob blue cid red ann green")
    assert prompt(world, "red") == "ann 4 cid 2 ask ann cid"
    assert prompt(world, "blue") == "bob 7 eva 0 ask bob"
    assert prompt(world, "green") == "fay 1 gus 3 ask ann"
    await say(world, red="say ann 4 cid 2", blue="seven", green="say ann none")
    assert prompt(world, "orchestrator") == "ask bob ann reply ann 4 bob none cid 2 ann none"


async def test_one_worker_after_the_other() -> None:
    world = begin(order="sequential")
    await say(world, orchestrator=EXPERT)
    assert world.next_agents() == ("blue",)
    await say(world, blue="say bob 7")
    assert world.next_agents() == ("red",)
    await say(world, red="say ann 4")
    assert (world.next_agents(), world.turn) == (("orchestrator",), 1)
    assert world.stages == (*((worker,) for worker in WORKERS), ("orchestrator",))


async def test_episodes_have_many_shapes() -> None:
    """An answer after one round or two, with one worker or several; malformed messages use up the turns."""
    shapes = set()
    for seed in range(40):
        world, rng, shape = begin(), Random(seed), []
        while acting := world.next_agents():
            shape.append(acting)
            await world.step({a: world.demonstration(a, rng, skill=rng.choice(["expert", "flawed"])) for a in acting})
        shapes.add(tuple(shape))
    assert len(shapes) >= 4 and {len(shape) for shape in shapes} >= {1, 3}


# ---- rewards --------------------------------------------------------------------------------------------------------


async def test_an_expert_team_earns_one() -> None:
    world = begin()
    call = await say(world, orchestrator=EXPERT)
    assert (call.team, call.local["orchestrator"], call.info["useless"]) == (0.5, pytest.approx(0.2), 0)
    reply = await say(world, blue="say bob 7", red="say ann 4")
    assert (reply.team, reply.local) == (1.0, {"blue": pytest.approx(0.2), "red": pytest.approx(0.2)})
    answer = await say(world, orchestrator=RIGHT)
    assert (answer.team, answer.done, answer.success) == (0.5, True, True)


CALLS = [
    # calls, team reward, useless calls
    ("call bob blue", 0.25, 0),
    ("call bob blue bob blue", 0.25, 0),  # said twice in one message: once
    ("call bob blue ann blue", 0.25 * 0.8, 1),  # blue does not have ann
    ("call bob blue ann red cid red dan grey", 0.5 * 0.6, 2),  # nobody asks for cid and dan
    ("call cid red", 0.0, 1),
    ("call", 0.0, 0),
    ("call bob", 0.0, 0),
    ("call bob pink", 0.0, 0),
    ("call eve red", 0.0, 0),
    ("", 0.0, 0),
]


@pytest.mark.parametrize(("text", "team", "useless"), CALLS)
async def test_rewards_of_calls(text: str, team: float, useless: int) -> None:
    result = await say(begin(), orchestrator=text)
    assert (result.team, result.info["useless"], result.done) == (pytest.approx(team), useless, False)


async def test_a_useless_call_costs_and_its_cost_is_bounded() -> None:
    many = " dan red dan blue dan green cid blue cid grey"
    for extra, most in ((" dan grey", 0.8), (" dan grey cid red", 0.6), (many, 0)):
        world = begin()
        total = (await say(world, orchestrator=EXPERT + extra)).team
        await world.step(dict.fromkeys(world.next_agents(), ""))
        answer = await say(world, orchestrator=RIGHT)
        assert answer.success
        assert total + answer.team == pytest.approx(most)


async def test_the_reward_of_workers_is_their_mean() -> None:
    world = begin()
    await say(world, orchestrator=EXPERT)
    result = await say(world, blue="say bob 7", red="say ann 2")
    assert (result.team, result.local["blue"], result.local["red"]) == (0.5, pytest.approx(0.2), pytest.approx(0.04))


MALFORMED = ["call " + "ann red " * 50_000, "say " + "bob 7 " * 50_000, "call ann", "CALL ann red"]


@pytest.mark.parametrize("text", [*MALFORMED, "say ann 4 bob 7", "say bob 77 ann 4"])
def test_what_is_no_call(text: str) -> None:
    assert read_calls(text) is None and read_numbers(text, ("bob", "ann")) is None


# ---- every sampler --------------------------------------------------------------------------------------------------


NUMBERS = dict(zip(NAMES, TASK.data["numbers"], strict=True))
CALL_TEXTS = [EXPERT, "call bob blue", "call ann red bob blue cid red", RIGHT]


def script(prompt: str, row: int, seed: int) -> str:
    """The first row is right.  Others of the orchestrator's first message call fewer or more, or nobody; after replies
    they answer.  Workers' second rows are wrong."""
    agent, _, rest = prompt.split(maxsplit=2)
    if agent != "orchestrator":
        names = rest.rpartition("ask ")[2].split()
        return " ".join(["say", *(f"{name} {NUMBERS[name] if row != 1 else 0}" for name in names)])
    if "reply" not in rest:
        return CALL_TEXTS[(row or seed) % len(CALL_TEXTS)]
    return RIGHT


async def collect(sampler: Any, **settings: Any) -> list[Episode]:
    world, tokenizer = Delegation(**settings), build_tokenizer(words())
    client = PolicyClient("p", ScriptedEngine(script, tokenizer), tokenizer, 512, Sampling(max_tokens=40))
    if hasattr(sampler, "check"):
        sampler.check(world)
    (episodes,) = await sampler.collect(world, [TASK], dict.fromkeys(world.agents, client), 0)
    most = sampler.max_completions(world)
    for episode in episodes:
        assert episode.failure is None
        assert {node.agent for node in episode.nodes} <= set(world.agents)
        for agent in world.agents:
            assert sum(len(n.candidates) for n in episode.nodes if n.agent == agent) <= most[agent]
    return episodes


REFUSED = ("joint", "sequential")
"""See the last test."""
SAMPLERS = {
    "tree": TreeSampler(k=4),
    "tree, global": TreeSampler(k=4, team="global"),
    "tree, sampled": TreeSampler(k=4, selection="sampled"),
    "chain": ChainSampler(k=4),
    "forest": ForestSampler(k=2),
    "joint": JointSampler(k=2),
    "joint, crossed": JointSampler(k=2, pairing="cross", growth="best"),
}


PLAYED = [(name, order) for name in SAMPLERS for order in ("simultaneous", "sequential") if (name, order) != REFUSED]


@pytest.mark.parametrize(("name", "order"), PLAYED)
async def test_every_sampler_plays_it(name: str, order: Any) -> None:
    episodes = await collect(SAMPLERS[name], order=order)
    assert any(node.agent in WORKERS for episode in episodes for node in episode.nodes)


async def test_the_tree_goes_on_from_the_best_calls() -> None:
    """Candidates of one prompt lead to teams of one worker, of two, or of none, and the best of them continues."""
    (episode,) = await collect(TreeSampler(k=4))
    assert [node.agent for node in episode.nodes] == ["orchestrator", "blue", "red", "orchestrator"]
    first = episode.nodes[0]
    rewards = {candidate.completion.text: candidate.team for candidate in first.candidates}
    assert rewards["call bob blue"] == 0.25 and rewards[RIGHT] == 0.0
    assert rewards["call ann red bob blue cid red"] == pytest.approx(0.4)


async def test_chains_of_one_task_have_different_shapes() -> None:
    episodes = await collect(ChainSampler(k=8))
    shapes = {tuple(node.agent for node in episode.nodes) for episode in episodes}
    assert len(shapes) > 1


def test_a_full_joint_tree_of_workers_in_turn_is_refused() -> None:
    """It would branch at every worker's message."""
    with pytest.raises(ValueError, match=r"algorithm\.sampler: a task's tree of 15 steps"):
        JointSampler(k=2).check(Delegation(order="sequential"))


# ---- the drawing ----------------------------------------------------------------------------------------------------


async def test_the_drawing_shows_calls_and_replies() -> None:
    world = begin(order="sequential")
    await say(world, orchestrator="call bob blue ann blue cid red")
    await say(world, blue="say bob 7 ann none")
    drawing = world.draw()
    check_svg(drawing.svg)
    texts = [text.text for text in ElementTree.fromstring(drawing.svg).iter(f"{{{SVG}}}text")]
    assert texts[2:] == ["blue about bob", "7", "blue about ann", "none", "red about cid", "?"]
    assert drawing.text.count("[green]") == 2 and drawing.text.count("[red]") == 4  # two lines of each call
