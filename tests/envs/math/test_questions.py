"""Published questions: prompts, messages, rewards; with the real sandbox."""

import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from omegaconf import OmegaConf

from troupe.envs.base import TeamEnv
from troupe.envs.math.ensemble import Ensemble
from troupe.envs.math.questions import AGAIN, MathQuestions
from troupe.envs.math.sources import Aime24, Polaris
from troupe.envs.testing import check_world
from troupe.experience import Task
from troupe.sandbox import Limits, LocalSandbox
from troupe.setup.instantiation import build_world

QUESTION = "What is $\\frac{1}{3} + \\frac{1}{6}$?"
TASK = Task("by-hand", "test", {"question": QUESTION, "answer": "\\frac{1}{2}", "several": False})
SECONDS = Limits(cpu_s=1.0, idle_s=1.0, memory_mib=256)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Small files of the sets' schemas."""
    folder, paths = tmp_path_factory.mktemp("sets"), {}
    for name, numbers in {"train": range(200), "test": range(200, 206)}.items():
        rows = [{"problem": f"What is {n} times 37?", "answer": str(n * 37), "difficulty": "0/8"} for n in numbers]
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        paths[name] = str(path)
    return paths


@pytest.fixture
def begin(reading: LocalSandbox, files: dict[str, str]) -> Callable[..., MathQuestions]:
    """``begin(**settings)``: an episode of TASK."""

    def begin_episode(**settings: Any) -> MathQuestions:
        sources = {"train": [Polaris(files["train"])], "test": [Aime24(files["test"])], "validation_share": 0.2}
        world = MathQuestions(**{"sandbox": reading, "limits": SECONDS, **sources, **settings})
        world.reset(TASK)
        return world

    return begin_episode


def program(source: str) -> str:
    return f"Let me compute.\n```python\n{source}\n```\nDone."


TOOL_REWARDS = [
    # the tool agent's program, team reward, local reward, the report in the reasoner's prompt
    ("from fractions import Fraction as F\nprint(F(1, 3) + F(1, 6))", 1.0, 1.0, "1/2"),
    ("print('thinking'); print(0.5)", 1.0, 1.0, "thinking\n0.5"),
    ("from sympy import *\nprint(latex(Rational(1, 2)))", 1.0, 1.0, "\\frac{1}{2}"),
    ("print(0.5000001)", 0.0, 0.2, "0.5000001"),
    ("print('1/2 or 1/3')", 0.0, 0.2, "1/2 or 1/3"),
    ("print(1/2)\nprint(1/3)", 0.0, 0.2, "0.5\n0.3333333333333333"),  # the last line is the answer
    ("from sympy import *\nprint(sqrt(Rational(1, 4)))", 1.0, 1.0, "1/2"),
    ("print([0.5])", 1.0, 1.0, "[0.5]"),
    ("x = 1/2", 0.0, 0.1, "It printed nothing."),
    ("print(1/2)\nraise ValueError('no')", 0.0, 0.1, "It failed (crash): ValueError: no"),
    ("print(1/", 0.0, 0.1, "It failed (crash): SyntaxError: '(' was never closed"),
    ("while True: pass", 0.0, 0.1, "It failed (timeout)"),
    ("import subprocess; subprocess.run(['id'])", 0.0, 0.1, "It failed"),
    ("", 0.0, 0.0, "There is no program."),
]


async def test_a_thought_is_no_program(begin: Callable[..., MathQuestions]) -> None:
    """A fence in a thought is not run, and one that is left open there swallows nothing."""
    world = begin()
    text = f"<think>First\n```python\nprint(1)\n</think>{program('print(0.5)')}"
    assert (await world.step({"tool": text})).team == 1
    assert "print(1)" not in str(world.observe("reasoner"))
    assert (await begin().step({"tool": f"<think>{program('print(0.5)')}</think>"})).info["malformed"] == 1


async def test_a_printed_list_is_a_list(begin: Callable[..., MathQuestions]) -> None:
    for gold, team in (("1, 2", 1), ("\\{1, 2\\}", 1), ("[1, 2]", 1), ("(1, 2)", 0), ("1, 3", 0)):
        world = begin()
        world.reset(Task("list", "test", {"question": "?", "answer": gold, "several": False}))
        assert (await world.step({"tool": program("print([1, 2])")})).team == team, gold


@pytest.mark.parametrize("order", ["sequential", "simultaneous"])
async def test_the_result_of_a_call_is_the_report_of_its_program(
    begin: Callable[..., MathQuestions], order: str
) -> None:
    world = begin(tools="hermes", order=order, horizon=2)
    call = {"name": "python", "arguments": {"code": "print(0.25 + 0.25)"}}
    texts = {"tool": f"<tool_call>\n{json.dumps(call)}\n</tool_call>", "reasoner": AGAIN}
    result = await world.step({agent: texts[agent] for agent in world.next_agents()})
    assert result.info["malformed_calls"] == 0 and world.tool_result("tool") == "0.5"


def test_an_ensemble_calls_the_functions_of_its_pair(begin: Callable[..., MathQuestions]) -> None:
    with pytest.raises(ValueError, match=r"env\.pair\.tools"):
        Ensemble(pair=begin(horizon=1, stop="answer", tools="hermes"))


@pytest.mark.parametrize(("source", "team", "local", "report"), TOOL_REWARDS, ids=range(len(TOOL_REWARDS)))
async def test_rewards_of_programs(
    begin: Callable[..., MathQuestions], source: str, team: float, local: float, report: str
) -> None:
    world = begin()
    result = await world.step({"tool": program(source)})
    assert (result.team, result.local["tool"]) == (team, pytest.approx(local))
    assert f"The program's output:\n{report}" in world.observe("reasoner")[1]["content"]


REASONER_REWARDS = [
    # the reasoner's message, team reward, local reward, whether the episode ends
    ("So \\boxed{\\frac{1}{2}}.", 1.0, 1.0, True),
    ("First \\boxed{0.5}, again \\boxed{ 0.5 }", 1.0, 1.0, True),
    ("\\boxed{50\\%}", 1.0, 1.0, True),
    ("\\boxed{\\frac{1}{3}}", 0.0, 0.2, True),
    ("\\boxed{\\frac13+\\frac16}", 0.0, 0.2, True),  # not worked out
    ("\\boxed{0.5 \\text{ or } 0.4}", 0.0, 0.2, True),
    ("\\boxed{0.5} or \\boxed{0.4}", 0.0, 0.0, False),
    ("The answer is 1/2.", 0.0, 0.0, False),
    ("\\boxed{0.5", 0.0, 0.0, False),
    ("\\boxed{}", 0.0, 0.0, False),
    ("I should put it in \\boxed{}. So \\boxed{0.5}", 1.0, 1.0, True),
    ("I should put it in \\boxed{}.</think>\\boxed{0.5}", 1.0, 1.0, True),
    ("<think>It is \\boxed{0.4}.</think>\\boxed {0.5}", 1.0, 1.0, True),
    ("<think>It is \\boxed{0.5}.</think>\\boxed{0.4}", 0.0, 0.2, True),
    ("\\boxed{0.5}</think>", 0.0, 0.0, False),
    ("<think>It is \\boxed{0.5}", 0.0, 0.0, False),
    ("\\boxed{0.50} = \\boxed{0.5}", 1.0, 1.0, True),
    ("\\boxed{0.5} = \\boxed{\\frac{1}{2}}", 1.0, 1.0, True),
    ("\\boxed{0.5} = \\boxed{\\frac{1}{3}}", 0.0, 0.0, False),
    ("".join(f"\\boxed{{0.5{'0' * zeros}}}" for zeros in range(9)), 0.0, 0.0, False),
    (f"The program crashed. {AGAIN}", 0.0, 0.2, False),
    ("", 0.0, 0.0, False),
]


@pytest.mark.parametrize(("text", "team", "local", "ends"), REASONER_REWARDS, ids=range(len(REASONER_REWARDS)))
async def test_rewards_of_answers(
    begin: Callable[..., MathQuestions], text: str, team: float, local: float, ends: bool
) -> None:
    world = begin()
    await world.step({"tool": ""})
    result = await world.step({"reasoner": text})
    assert (result.team, result.local["reasoner"]) == (team, pytest.approx(local))
    assert (result.done, result.success) == (ends, ends and team == 1)


async def test_prompts(begin: Callable[..., MathQuestions]) -> None:
    world = begin(horizon=2, shown_chars=40)
    system, user = world.observe("tool")
    assert "```python" in system["content"] and user["content"] == f"Problem:\n{QUESTION}"
    await world.step({"tool": program("print('a' * 100)")})
    system, user = world.observe("reasoner")
    assert "\\boxed" in system["content"] and AGAIN in system["content"]
    assert user["content"].endswith("The program's output:\n" + "a" * 20 + "\n[...]\n" + "a" * 20)
    await world.step({"reasoner": AGAIN})
    prompt = world.observe("tool")[1]["content"]
    assert (
        "Turn 1, program:" in prompt and "Turn 1, output:\naaaa" in prompt and f"Turn 1, reasoner:\n{AGAIN}" in prompt
    )
    await world.step({"tool": ""})
    assert AGAIN not in world.observe("reasoner")[0]["content"]  # the last turn


async def test_consensus_and_one_agent(begin: Callable[..., MathQuestions]) -> None:
    world = begin(stop="consensus")
    await world.step({"tool": program("print(1/2)")})
    assert AGAIN not in world.observe("reasoner")[0]["content"]
    assert (await world.step({"reasoner": "\\boxed{1/2}"})).success
    alone = begin(team="solo", horizon=2)
    assert not (await alone.step({"solo": program("print(1/2)")})).done
    assert "Turn 1, output:\n0.5" in (prompt := alone.observe("solo")[1]["content"]) and "last message" in prompt
    assert (await alone.step({"solo": "\\boxed{0.5}"})).success


async def test_several_answers_are_asked_for(begin: Callable[..., MathQuestions]) -> None:
    world = begin(horizon=1)
    world.reset(Task("several", "test", {"question": "?", "answer": "$69$,$100$", "several": True}))
    await world.step({"tool": ""})
    for answer, right in {"100, 69": True, "69": False, "69,101": False}.items():
        assert (await world.fork().step({"reasoner": f"\\boxed{{{answer}}}"})).success == right


async def test_opening_counts_the_questions(begin: Callable[..., MathQuestions], files: dict[str, str]) -> None:
    facts = await begin().open()
    assert facts["questions/test"] == 6 and facts["unsafe"] is False
    bare = LocalSandbox(workers=1)
    world = begin(sandbox=bare)
    with pytest.raises(ValueError, match=r"env\.sandbox cannot read answers"):
        await world.open()
    await bare.close()


def right_message(world: TeamEnv, agent: str, rng: Random) -> str:
    """A right message."""
    assert isinstance(world, MathQuestions)
    answer = world._gold
    return program(f"print({answer})") if agent == "tool" else f"\\boxed{{{answer}}}"


@pytest.mark.parametrize("team", ["pair", "solo"])
async def test_the_world_keeps_the_contract(begin: Callable[..., MathQuestions], team: str) -> None:
    world = begin(horizon=2, team=team)
    await check_world(world, tasks=1, oracle=right_message)


@pytest.mark.parametrize("key", ["stop", "team", "shown_chars", "horizon"])
def test_settings_are_checked(begin: Callable[..., MathQuestions], key: str) -> None:
    with pytest.raises(ValueError, match=rf"env\.{key}"):
        begin(**{key: 0})


def test_the_papers_scale_composes(composed: Callable[..., Any], files: dict[str, str], tmp_path: Path) -> None:
    """The yaml of the papers' scale makes this world; here with small files in the sets' place."""
    sets = {"train": ("Polaris", "train"), "test": ("Aime24", "test")}
    words = [
        f"env.{split}=[{{_target_: troupe.envs.math.{name}, path: {files[file]}}}]"
        for split, (name, file) in sets.items()
    ]
    config = composed("env=math", "env/parts/math@env=paper", *words)
    world = build_world("env", OmegaConf.to_container(config.env, resolve=True))
    assert isinstance(world, MathQuestions) and world.horizon == 4 and world.local_share == 1.0
    assert world.splits.counts["test"] == 6
