"""Code collaboration on problems: turns, prompts, one agent alone, feedback, the expert, data sets, refusals."""

import asyncio
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

import pytest

from troupe.envs.code import ProblemSet, ProblemSource
from troupe.envs.code.sources import SCHEMAS
from troupe.envs.code_collab import CodeCollab, Expert
from troupe.envs.code_collab.expert import ExpertFailure, read_edits
from troupe.envs.code_collab.feedback import Feedback
from troupe.envs.datasets import CellError, UnusableRow
from troupe.envs.testing import check_world
from troupe.errors import AbsentError
from troupe.experience import Split
from troupe.sandbox import LocalSandbox

Begin = Callable[..., CodeCollab]

AUX = "def aux(x):\n    return x * x"
MAIN = "def total(xs):\n    squares = [aux(x) for x in xs]\n    return sum(squares)"
GOOD = {"aux": AUX, "main": MAIN}
WEAK = {"aux": AUX, "main": "def total(xs):\n    y = aux(3)\n    return y"}
BROKEN = {"aux": "no idea", "main": "def total(xs):\n    return sum(xs"}


def user(world: CodeCollab, agent: str) -> str:
    return world.observe(agent)[-1]["content"]


# ---- turns and prompts ----------------------------------------------------------------------------------------------


async def test_both_write_at_once_and_all_points_are_a_success(collab: Begin) -> None:
    world = collab()
    assert world.next_agents() == ("aux", "main") and world.stages == (("aux", "main"),)
    assert "must be called `aux`, not `total`" in user(world, "aux")
    assert "Write the function `total`" in user(world, "main") and "def aux" not in user(world, "main")
    assert all([message["role"] for message in world.observe(agent)] == ["user"] for agent in world.agents)
    assert all("The sum of the squares" in user(world, agent) for agent in world.agents)
    result = await world.step(GOOD)
    assert (result.team, result.local, result.done, result.success) == (4, {"aux": 0, "main": 0}, True, True)
    assert {name for name, number in result.info.items() if number == 1} >= {"coordinator", "complete", "calls_aux"}
    assert result.info["fallback"] == result.info["judge_errors"] == result.info["empty_or_malformed"] == 0


async def test_a_turn_that_solves_the_problem_is_a_success_where_a_sampler_ends_there(collab: Begin) -> None:
    world = collab(horizon=2, turn_reward="points")
    assert [(r.done, r.success) for r in [await world.step(WEAK), await world.step(GOOD)]] == [
        (False, False),
        (True, True),
    ]
    world = collab(horizon=2, turn_reward="points")
    first = await world.step(GOOD)  # algorithm.sampler.stop_above ends the episode here
    assert (first.team, first.done, first.success) == (4, False, True)


async def test_passing_some_tests_is_no_success(collab: Begin) -> None:
    result = await collab().step(WEAK)
    assert not result.success and result.done and not result.info["complete"]


async def test_one_agent_alone_writes_both_functions(collab: Begin) -> None:
    world = collab(team="solo")
    assert world.next_agents() == ("solo",)
    assert "a helper function `aux`" in user(world, "solo") and "`total`, which calls it" in user(world, "solo")
    assert (await world.step({"solo": f"```python\n{AUX}\n\n{MAIN}\n```"})).team == 4
    world = collab(team="solo", horizon=2)
    await world.step({"solo": f"{MAIN}\n\n{AUX}"})
    assert f"{AUX}\n\n{MAIN}" in user(world, "solo")


@pytest.mark.parametrize(
    ("mode", "actions", "aux", "main"),
    [
        ("plain", WEAK, [], []),
        ("passed", WEAK, ["Signal: not all levels passed"], ["Signal: not all levels passed"]),
        ("passed", GOOD, ["Signal: all levels passed"], ["Signal: all levels passed"]),
        (
            "level_passed",
            WEAK,
            ["Signals:", "- Function aux: found", "- Syntax: correct", "- Tests: 1 of 4 passed"],
            [
                *("Signals:", "- Function main: found", "- Syntax: correct", "- Tests: 1 of 4 passed"),
                "- Use of aux: called and used",
            ],
        ),
        (
            "level_feedback",
            WEAK,
            [
                *("Signals:", "- Function aux: found", "- Function main: found", "- Syntax: correct"),
                "- Tests: 1 of 4 passed",
                "  Failed: total([1, 2]) is 5, but it gave 9",
                "  Failed: total([]) is 0, but it gave 9",
                "  Failed: total([2, 2]) is 8, but it gave 9",
            ],
            [
                *("Signals:", "- Function aux: found", "- Function main: found", "- Syntax: correct"),
                "- Tests: 1 of 4 passed",
                "  Failed: total([1, 2]) is 5, but it gave 9",
                "  Failed: total([]) is 0, but it gave 9",
                "  Failed: total([2, 2]) is 8, but it gave 9",
                "- Use of aux: called and used",
                "- Main is hardly more than a call of aux",
            ],
        ),
        (
            "level_feedback",
            BROKEN,
            [
                *("Signals:", "- Function aux: missing", "- Function main: found"),
                "- Syntax: not correct, line 2, column 15: '(' was never closed",
                "- Tests: not run",
            ],
            [
                *("Signals:", "- Function aux: missing", "- Function main: found"),
                "- Syntax: not correct, line 2, column 15: '(' was never closed",
                *("- Tests: not run", "- Use of aux: unknown, the program is no Python"),
            ],
        ),
    ],
)
async def test_feedback(
    collab: Begin, mode: Feedback, actions: Mapping[str, str], aux: list[str], main: list[str]
) -> None:
    world = collab(horizon=2, feedback=mode, feedback_tests=0)
    await world.step(actions)
    for agent, lines in (("aux", aux), ("main", main)):
        parts = user(world, agent).split("\n\n")
        assert ("\n".join(lines) in parts) == bool(lines) and ("Signal" in user(world, agent)) == bool(lines)
        partner = {"aux": "main", "main": "aux"}[agent]
        assert actions[partner] not in user(world, agent)
    assert ("(none could be read)" in user(world, "aux")) == (actions is BROKEN)
    assert "def total(xs):\n    " in user(world, "main").split("Your code of the turn before")[1]


@pytest.mark.parametrize(
    ("count", "shown"), [(1, "0 of 1"), (2, "1 of 2"), (0, "1 of 4"), (-1, "0 of 1"), (9, "1 of 4")]
)
async def test_the_tests_of_the_feedback(collab: Begin, count: int, shown: str) -> None:
    world = collab(horizon=2, feedback="level_passed", feedback_tests=count)
    await world.step(WEAK)
    assert f"- Tests: {shown} passed" in user(world, "main")


@pytest.mark.parametrize(
    ("main", "use"),
    [
        ("def total(xs):\n    return 5", "main does not call it"),
        ("def total(xs):\n    aux(1)\n    return 5", "called, but its value is not used"),
        ("", "unknown, main is missing"),
    ],
)
async def test_the_use_of_aux_in_the_feedback(collab: Begin, main: str, use: str) -> None:
    world = collab(horizon=2, feedback="level_passed")
    await world.step({"aux": AUX, "main": main})
    assert f"- Use of aux: {use}" in user(world, "main") and "Use of aux" not in user(world, "aux")


@pytest.mark.parametrize("settings", [{}, {"team": "solo"}, {"horizon": 2, "turn_reward": "gain", "useful_aux": True}])
async def test_the_contract(collab: Begin, sandbox: LocalSandbox, tmp_path: Path, settings: dict[str, Any]) -> None:
    write(tmp_path / "rows.jsonl", [row("human_eval", n) for n in range(90)])
    data = ProblemSet(ProblemSource("human_eval", str(tmp_path / "rows.jsonl")))
    world = CodeCollab(sandbox, data, cpu_s=0.2, feedback="level_feedback", **settings)
    await check_world(world, tasks=2, team=(0, 4), local=(0, 0))


# ---- the expert -----------------------------------------------------------------------------------------------------


async def test_the_expert_proposes_edits(collab: Begin, chat_server: Any) -> None:
    edits = {"aux": "Square x.", "main": "Sum the values of aux."}
    chat_server.script = lambda messages, seed: f"Here you are: {{}} {json.dumps(edits)} Good luck {{"
    expert = Expert(chat_server.url, "coder", retries=1)
    world = collab(horizon=3, feedback="expert", expert=expert)
    fork = world.fork()
    await asyncio.gather(world.step(WEAK), fork.step(WEAK))
    assert "An expert's advice on aux:\nSquare x." in user(world, "aux")
    assert "An expert's advice on total:\nSum the values of aux." in user(world, "main")
    assert "Sum the values" not in user(world, "aux") and user(world, "main") == user(fork, "main")
    (request,) = chat_server.seen  # equal questions are asked once
    asked = request["messages"][0]["content"]
    assert request["model"] == "coder" and AUX in asked and WEAK["main"] in asked and "sum of the squares" in asked
    await fork.step({"aux": AUX, "main": ""})
    await fork.step(GOOD)  # the last turn: nothing is asked
    assert len(chat_server.seen) == 2
    await world.expert.close()


async def test_an_expert_without_an_answer_that_can_be_read_says_nothing(collab: Begin, chat_server: Any) -> None:
    chat_server.script = lambda messages, seed: '{"aux": 3, "main": null}'
    expert = Expert(chat_server.url, "coder", retries=2)
    world = collab(horizon=2, feedback="expert", expert=expert)
    await world.step(WEAK)
    assert "advice" not in user(world, "main") and expert.unreadable == 1 and len(chat_server.seen) == 3
    await world.expert.close()


async def test_a_server_that_refuses_costs_the_episode(collab: Begin, chat_server: Any, fault: Any) -> None:
    chat_server.faults.append(fault(400, "no such model"))
    world = collab(horizon=2, feedback="expert", expert=Expert(chat_server.url, "coder"))
    with pytest.raises(ExpertFailure, match=r"env\.expert at http://127.*no such model"):
        await world.step(WEAK)
    await world.expert.close()


async def test_an_answer_that_is_no_chat_completion_is_asked_for_again(
    collab: Begin, chat_server: Any, fault: Any
) -> None:
    chat_server.script = lambda messages, seed: '{"aux": "a", "main": "b"}'
    chat_server.faults.extend([fault(200, "<html>"), fault(200, '{"choices": []}')])
    world = collab(horizon=2, feedback="expert", expert=Expert(chat_server.url, "coder"))
    await world.step(WEAK)
    assert "An expert's advice on aux:\na" in user(world, "aux")
    await world.expert.close()


@pytest.mark.parametrize(
    ("text", "edits"),
    [
        ("", None),
        ("{" * 5000, None),
        ('{"aux": "a"}', None),
        ('[{"aux": "a", "main": "b"}]', ("a", "b")),
        ('{"aux": "a", "main": "b"} {"aux": "c", "main": "d"} {}', ("c", "d")),
        ('{"aux": "\\ud800", "main": ""}', ("?", "")),
    ],
)
def test_edits_are_read_from_the_last_object(text: str, edits: tuple[str, str] | None) -> None:
    assert read_edits(text) == edits


async def test_the_experts_key_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch, chat_server: Any) -> None:
    chat_server.key, chat_server.script = "abc", lambda messages, seed: '{"aux": "a", "main": "b"}'
    expert = Expert(chat_server.url, "coder", key_env="AN_EXPERTS_KEY")
    with pytest.raises(AbsentError, match=r"env\.expert\.key_env=AN_EXPERTS_KEY"):
        await expert.edits("?")
    monkeypatch.setenv("AN_EXPERTS_KEY", "abc")
    assert await expert.edits("?") == ("a", "b")
    await expert.close()


# ---- data sets ------------------------------------------------------------------------------------------------------


def row(kind: str, number: int, **cells: Any) -> dict[str, Any]:
    """Rows of the data sets' schemas; equal numbers are the same problem in human_eval and coop_human_eval."""
    if kind == "mbpp":
        return {
            "source_file": "Benchmark.ipynb",
            "task_id": number,
            "prompt": f"Write a function to add {number} to x.",
            "code": f"import math\ndef helper(x):\n  return x\n\ndef add_it(x, y=0):\n  return helper(x) + {number}",
            "test_imports": [],
            "test_list": [f"assert add_it(1) == {number + 1}", f"assert add_it(2) == {number + 2}"],
        } | cells
    test = f"def check(candidate):\n    assert candidate(1) == {number + 1}\n    assert candidate(5) == {number + 5}\n"
    shared = {
        "task_id": f"T/{number}",
        "prompt": f'import math\n\ndef f{number}(x: int) -> int:\n    """ Add {number} to x. """\n',
        "test": test,
        "entry_point": f"f{number}",
    }
    solution = {"canonical_solution": f"    return x + {number}\n"} if kind == "human_eval" else {}
    return shared | solution | cells


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(each) + "\n" for each in rows))
    return str(path)


@pytest.mark.parametrize("kind", ["human_eval", "coop_human_eval", "mbpp"])
async def test_problems_of_tables(sandbox: LocalSandbox, tmp_path: Path, kind: str) -> None:
    train = write(tmp_path / "train.jsonl", [row(kind, n) for n in range(60)])
    test = write(tmp_path / "test.jsonl", [row(kind, n) for n in range(55, 65)])
    world = CodeCollab(sandbox, ProblemSet(ProblemSource(kind, train), ProblemSource(kind, test)))
    keys = {split: set(items) for split, items in world.splits.items.items()}
    assert all(keys.values()) and len(set().union(*keys.values())) == sum(map(len, keys.values())) == 65
    assert len(keys["test"]) == 10
    for split in get_args(Split):
        (task,) = world.tasks(split, 1, 0)
        world.reset(task)
        problem = task.data["problem"]
        number = (
            int(problem.statement.split("to x")[0].split()[-1]) if kind == "mbpp" else int(problem.name.split("/")[-1])
        )
        assert problem.function in user(world, "main") and len(problem.hidden) == 2
        main = f"def {problem.function}(x):\n    y = aux(x)\n    return y + {number} - 1"
        result = await world.step({"aux": "def aux(x):\n    return x + 1", "main": main})
        assert result.success and result.info["tests"] == 1


def test_one_statement_in_two_data_sets_is_in_one_split(sandbox: LocalSandbox, tmp_path: Path) -> None:
    """CoopHumanEval has problems of HumanEval."""
    train = write(tmp_path / "train.jsonl", [row("human_eval", n) for n in range(30)])
    test = write(tmp_path / "test.jsonl", [row("coop_human_eval", n) for n in range(10)])
    data = ProblemSet(ProblemSource("human_eval", train), ProblemSource("coop_human_eval", test))
    splits = data.load("code_collab")
    assert len(splits.items["test"]) == 10
    assert not (splits.items["train"].keys() | splits.items["validation"].keys()) & splits.items["test"].keys()
    assert sum(map(len, splits.items.values())) == 30


def test_mbpp_statements_become_prompts() -> None:
    problem = SCHEMAS["mbpp"].problem("mbpp/3", row("mbpp", 3))
    assert problem.statement == 'def add_it(x, y=0):\n    """Write a function to add 3 to x.\n    """\n'
    assert [(check.input, check.expected) for check in problem.hidden] == [("[1]", "4"), ("[2]", "5")]
    assert problem.reference is not None and "helper" in problem.reference


@pytest.mark.parametrize(
    ("kind", "cells", "error", "words"),
    [
        ("mbpp", {"test_list": ["assert other(1) == 2"]}, UnusableRow, "tests of no function"),
        ("mbpp", {"test_list": ["assert eval(add_it(1)) == 2"]}, UnusableRow, "no test that is a call"),
        ("mbpp", {"code": "def (x"}, CellError, "code or test_list"),
        (
            "coop_human_eval",
            {"test": "def check(candidate):\n    for x in []:\n        assert candidate(x)"},
            UnusableRow,
            "no test",
        ),
        ("coop_human_eval", {"test": "def check(:"}, CellError, "no Python"),
        ("coop_human_eval", {"entry_point": "g"}, CellError, "column prompt: no function g"),
    ],
)
def test_rows_that_cannot_be_used(kind: str, cells: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        SCHEMAS[kind].problem("a row", row(kind, 3, **cells))


# ---- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"horizon": 0}, "env.horizon"),
        ({"team": "trio"}, "env.team=trio is unknown; code_collab knows pair, solo"),
        ({"usage": "guess"}, "env.usage=guess is unknown"),
        ({"turn_reward": "best"}, "env.turn_reward=best"),
        ({"feedback": "shout"}, "env.feedback=shout is unknown; code_collab knows plain, passed"),
        ({"feedback": "expert"}, "env.feedback=expert asks a model: set env.expert"),
        ({"expert": Expert("http://127.0.0.1:9/v1", "m")}, "env.expert is for env.feedback=expert, which is plain"),
    ],
)
def test_bad_settings_are_refused_by_name(collab: Begin, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        collab(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"url": "ftp://x"}, "env.expert.url must be http"),
        ({"url": "http://user:secret@x/v1"}, "without user"),
        ({"retries": -1}, "env.expert.retries"),
        ({"timeout_s": 0}, "env.expert.timeout_s"),
        ({"max_tokens": 0}, "env.expert.max_tokens"),
    ],
)
def test_bad_experts_are_refused_by_name(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        Expert(**{"url": "http://127.0.0.1:9/v1", "model": "m", **settings})
