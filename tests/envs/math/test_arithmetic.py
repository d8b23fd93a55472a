"""Arithmetic: messages, prompts, rewards, demonstrators; with the real sandbox."""

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any, get_args

import pytest

from troupe.algorithms.credit.at_grpo import AtGrpo
from troupe.envs.base import Skill, WorldFailure
from troupe.envs.math.arithmetic import Arithmetic, Fact, Story, words
from troupe.experience import Episode, Sampling, Task
from troupe.models.bases.tiny import build_model, build_tokenizer
from troupe.rollout.engines.torch.engine import TorchEngine
from troupe.rollout.policy_client import PolicyClient
from troupe.rollout.samplers.tree import TreeSampler
from troupe.sandbox import Job, Limits, LocalSandbox, Result, Verdict

STORY = Story((Fact("cid", 3, "times", "bob"), Fact("bob", 17, "plus", "ann"), Fact("ann", 34)), "cid")
TASK = Task("by-hand", "test", {"question": STORY.text, "answer": "153"})
RIGHT = "( cid:= 3 * ( bob:= 17 + ( ann:= 34 ) ) )"


def begin(sandbox: Any, **settings: Any) -> Arithmetic:
    world = Arithmetic(sandbox=sandbox, **settings)
    world.reset(TASK)
    return world


def prompt_of(world: Arithmetic, agent: str) -> str:
    return world.observe(agent)[1]["content"]


@pytest.mark.parametrize("wrong", [{"links": 0}, {"links": 5, "spare": 3}, {"max_words": 0}, {"horizon": 0}])
@pytest.mark.parametrize("more", [{"stop": "never"}, {"team": "crowd"}, {"local_share": 2.0}])
def test_settings_are_checked(programs: LocalSandbox, wrong: dict, more: dict) -> None:
    for settings in (wrong, more):
        with pytest.raises(ValueError, match=r"env\.(links|max_words|horizon|stop|team|local_share)"):
            Arithmetic(sandbox=programs, **settings)


# ---- rewards --------------------------------------------------------------------------------------------------------

TOOL_REWARDS = [
    # the tool agent's message, team reward, local reward, the report in the reasoner's prompt
    (RIGHT, 1.0, 1.0, "1 5 3"),
    ("3 * ( 17 + 3 4 )", 1.0, 1.0, "1 5 3"),
    ("1 5 3", 1.0, 1.0, "1 5 3"),  # done in the head: it is right
    ("3 * 17 + 34", 0.0, 0.2, "8 5"),
    ("- 1 5 3", 0.0, 0.2, "- 1 5 3"),
    ("3 * ( 17 + ann )", 0.0, 0.1, "error"),  # no such name
    ("3 * ( 17", 0.0, 0.1, "error"),
    ("0 1 5 3", 0.0, 0.1, "error"),  # Python knows no leading zeros
    ("9 * * 9 * * 9", 0.0, 0.1, "error"),  # time is up
    ("9 * * 9", 0.0, 0.1, "error"),  # 387420489 is longer than the notation allows
    ("ann:= 1 5 3", 0.0, 0.1, "error"),  # not an expression
    ("say 1 5 3", 0.0, 0.0, "none"),
    ("153", 0.0, 0.0, "none"),  # a word that is no digit
    ("", 0.0, 0.0, "none"),
    (" ".join(["1", "+"] * 12 + ["1"]), 0.0, 0.0, "none"),  # 25 words
]


@pytest.mark.parametrize(("text", "team", "local", "report"), TOOL_REWARDS, ids=range(len(TOOL_REWARDS)))
async def test_rewards_of_programs(programs: LocalSandbox, text: str, team: float, local: float, report: str) -> None:
    world = begin(programs, local_share=1.0)
    result = await world.step({"tool": text})
    assert (result.team, result.local["tool"]) == (team, pytest.approx(local))
    assert (result.done, result.success, world.next_agents()) == (False, False, ("reasoner",))
    assert prompt_of(world, "reasoner") == f"{STORY.text} result {report}"


REASONER_REWARDS = [
    # the reasoner's message, team reward, local reward, whether the episode ends
    ("say 1 5 3", 1.0, 1.0, True),
    ("say 1 5 4", 0.0, 0.2, True),
    ("say - 1 5 3", 0.0, 0.2, True),
    ("say 0 1 5 3", 1.0, 1.0, True),
    ("again", 0.0, 0.2, False),
    ("say 153", 0.0, 0.0, False),
    ("1 5 3", 0.0, 0.0, False),
    ("say", 0.0, 0.0, False),
    ("", 0.0, 0.0, False),
    ("say " + "1 " * 9, 0.0, 0.0, False),
]


@pytest.mark.parametrize(("text", "team", "local", "ends"), REASONER_REWARDS, ids=range(len(REASONER_REWARDS)))
async def test_rewards_of_answers(programs: LocalSandbox, text: str, team: float, local: float, ends: bool) -> None:
    """Whatever the tool agent did: here, nothing."""
    world = begin(programs, local_share=1.0)
    await world.step({"tool": ""})
    result = await world.step({"reasoner": text})
    assert (result.team, result.local["reasoner"]) == (team, pytest.approx(local))
    assert (result.done, result.success) == (ends, ends and team == 1)


async def test_the_share_of_local_rewards(programs: LocalSandbox) -> None:
    for share in (0.0, 0.1):
        assert (await begin(programs, local_share=share).step({"tool": RIGHT})).local["tool"] == pytest.approx(share)


async def test_another_turn(programs: LocalSandbox) -> None:
    world = begin(programs)
    await world.step({"tool": "3 * ( 17"})
    await world.step({"reasoner": "again"})
    assert prompt_of(world, "tool") == f"{STORY.text} result error"
    await world.step({"tool": RIGHT})
    assert prompt_of(world, "reasoner") == f"{STORY.text} result error result 1 5 3"
    result = await world.step({"reasoner": "say 1 5 3"})
    assert (result.team, result.done, result.success, world.turn) == (1.0, True, True, 2)


async def test_the_turns_run_out(programs: LocalSandbox) -> None:
    world = begin(programs, horizon=1)
    await world.step({"tool": RIGHT})
    result = await world.step({"reasoner": "again"})
    assert (result.done, result.success, result.team) == (True, False, 0.0)


async def test_consensus(programs: LocalSandbox) -> None:
    """The paper's rule: an answer settles the matter once the program printed it; an unsettled one is paid in part."""
    world = begin(programs, stop="consensus")
    await world.step({"tool": "1 5 4"})
    unsettled = await world.fork().step({"reasoner": "say 1 5 3"})
    assert (unsettled.team, unsettled.done, unsettled.success) == (0.5, False, False)
    settled = await world.step({"reasoner": "say 1 5 4"})
    assert (settled.team, settled.done, settled.success) == (0.0, True, False)
    alone = begin(programs, stop="consensus", horizon=1)
    await alone.step({"tool": ""})
    assert (await alone.step({"reasoner": "say 1 5 3"})).success


async def test_one_agent_alone(programs: LocalSandbox) -> None:
    world = begin(programs, team="solo")
    first = await world.step({"solo": RIGHT})
    assert (first.team, first.done, first.local["solo"]) == (0.5, False, pytest.approx(0.1))
    assert prompt_of(world, "solo") == f"{STORY.text} result 1 5 3"
    assert [(r.team, r.success) for r in [await world.step({"solo": "say 1 5 3"})]] == [(0.5, True)]
    at_once = await begin(programs, team="solo").step({"solo": "say 1 5 3"})
    assert (at_once.team, at_once.success, at_once.done) == (1.0, True, True)


# ---- the sandbox ----------------------------------------------------------------------------------------------------


class Broken:
    """A sandbox that fails."""

    async def run(self, job: Job, limits: Limits | None = None) -> Result:
        return Result(Verdict.INFRA, detail="no worker lives")

    def describe(self) -> Mapping[str, object]:
        return {"isolation": "none", "unsafe": False}

    async def close(self) -> None:
        pass


async def test_a_failed_sandbox_is_no_reward() -> None:
    world = begin(Broken())
    with pytest.raises(WorldFailure, match="the sandbox failed: no worker lives"):
        await world.step({"tool": RIGHT})
    assert world.next_agents() == ("tool",) and world.execution.runs == 1
    with pytest.raises(WorldFailure):
        await world.open()


async def test_a_run_says_what_protects_it(programs: LocalSandbox) -> None:
    described = await Arithmetic(sandbox=programs).open()
    assert described["unsafe"] is False and described["workers"] == 2


async def test_a_program_runs_once(programs: LocalSandbox) -> None:
    world = begin(programs)
    for fork in [world.fork() for _ in range(5)]:
        await fork.step({"tool": RIGHT})
    assert world.execution.runs == 1


def play(sandbox: LocalSandbox) -> list[Episode]:
    """Episodes of a small untrained model, in lockstep, with programs in the real sandbox."""
    tokenizer = build_tokenizer(words())
    model = build_model(tokenizer, hidden=16, layers=1, heads=2, seed=0).eval()
    world = Arithmetic(sandbox=sandbox)

    async def collect() -> list[Episode]:
        engine = TorchEngine({"p": model}, tokenizer, max_batch_rows=64, lockstep=True)
        client = PolicyClient("p", engine, tokenizer, 512, Sampling(max_tokens=6))
        clients = dict.fromkeys(world.agents, client)
        results = await TreeSampler(k=3).collect(world, world.tasks("train", 8, 0), clients, 0)
        await engine.close()
        return [episode for (episode,) in results]

    episodes = asyncio.run(collect())
    AtGrpo(baseline="mean", normalise=True, std_floor=0.2)(episodes)
    return episodes


def test_a_seed_fixes_episodes_to_the_bit(programs: LocalSandbox) -> None:
    first, second = play(programs), play(programs)
    assert [episode.nodes for episode in first] == [episode.nodes for episode in second]
    assert [episode.edges for episode in first] == [episode.edges for episode in second]
    nodes = [node for episode in first for node in episode.nodes]
    kinds = {candidate.info["malformed"] for node in nodes for candidate in node.candidates}
    assert kinds == {0.0, 1.0}  # some programs really ran


# ---- demonstrations -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("team", ["pair", "solo"])
async def test_demonstrators(programs: LocalSandbox, team: Any) -> None:
    """Experts solve everything; flawed demonstrators almost nothing, but their messages can be read."""
    world, rng = Arithmetic(sandbox=programs, team=team), Random(0)
    solved = {"expert": 0, "novice": 0, "flawed": 0}
    for skill in solved:
        for one in world.tasks("validation", 15, 0):
            env = world.fork()
            env.reset(one)
            while acting := env.next_agents():
                result = await env.step({a: env.demonstration(a, rng, skill=skill) for a in acting})  # type: ignore[arg-type]
                assert not result.info["malformed"]
            solved[skill] += result.success
    assert solved["expert"] == 15 and solved["flawed"] <= 1 and solved["novice"] < 15


def test_every_word_is_in_the_vocabulary(programs: LocalSandbox) -> None:
    vocabulary = set(words())
    world = Arithmetic(sandbox=programs)
    for one in world.tasks("train", 30, 1):
        env = world.fork()
        env.reset(one)
        messages = [env.demonstration("tool", Random(i), skill=skill) for i in range(9) for skill in get_args(Skill)]
        assert set(" ".join([one.data["question"], *messages]).split()) <= vocabulary
