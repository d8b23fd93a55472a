"""Published test sets as worlds of an evaluation: every file of the group, on small tables of the same columns."""

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from troupe.errors import ConfigError
from troupe.evaluation.conditions import Condition
from troupe.evaluation.request import EvalRequest
from troupe.evaluation.tables import benchmark_table
from troupe.setup.command_line import with_open_keys
from troupe.setup.composition import configurations
from troupe.setup.evaluation import benchmarks, build_conditions, published_sets, read_request, read_team

from ..worlds import slow_but

HUMAN_EVAL = {
    "entry_point": "first",
    "canonical_solution": "    return 1\n",
    "test": "def check(candidate):\n    assert candidate() == 1\n",
}
CASES = json.dumps([{"input": "2\n", "output": "3\n", "testtype": "stdin"}])
NO_CASES: dict[str, list[str]] = {"input": [], "output": []}
ROWS: dict[str, list[dict[str, Any]]] = {
    "aime24": [{"id": i, "problem": f"What is {i} + 1?", "answer": str(i + 1), "year": "2024"} for i in range(3)],
    "aime25": [{"id": str(i), "problem": f"What is {i} + 1?", "answer": str(i + 1)} for i in range(2)],
    "olympiadbench": [
        {"id": 7, "question": "What is 1 + 1?", "final_answer": ["$2$"], "is_multiple_answer": False, "unit": None}
    ],
    "gsm8k": [
        {"question": f"Ann has {i} apples and one more. How many?", "answer": f"so\n#### {i + 1}"} for i in range(4)
    ],
    # Two problems that differ in punctuation alone are two problems.
    "humaneval": [
        {"task_id": f"HumanEval/{i}", "prompt": f'def first():\n    """One. {sign}"""\n', **HUMAN_EVAL}
        for i, sign in enumerate("<(")
    ],
    "mbpp": [
        {
            "source_file": "Benchmark Questions Verification V2.ipynb",
            "task_id": 2,
            "prompt": "Write a function to add one to a number.",
            "code": "def add_one(x):\n  return x + 1",
            "test_imports": [],
            "test_list": ["assert add_one(1) == 2", "assert add_one(-1) == 0", "assert add_one(9) == 10"],
        }
    ],
    "livecodebench": [
        {
            "question_title": "Next",
            "question_content": "Print the next number.",
            "question_id": "abc_1",
            "starter_code": "",
            "public_test_cases": CASES,
            "private_test_cases": CASES.replace("2", "7").replace("3", "8"),
            "metadata": "{}",
        }
    ],
    "apps": [
        {
            "problem_id": 1,
            "question": "Print the next number.",
            "solutions": json.dumps(["print(int(input()) + 1)"]),
            "input_output": json.dumps({"inputs": ["2\n", "7\n"], "outputs": ["3\n", "8\n"]}),
            "difficulty": "introductory",
            "starter_code": "",
        }
    ],
    "codecontests": [
        {
            "name": "1_A. Next",
            "description": "Print the next number.",
            "public_tests": {"input": ["2\n"], "output": ["3\n"]},
            "private_tests": {"input": ["7\n"], "output": ["8\n"]},
            "generated_tests": NO_CASES,
            "solutions": {"language": [3], "solution": ["print(int(input()) + 1)"]},
        }
    ],
}
NEXT = "```python\nprint(int(input()) + 1)\n```"
SOLVED = dict.fromkeys(["aime24", "aime25", "gsm8k"], "So it is \\boxed{1}.") | {
    "olympiadbench": "So it is \\boxed{2}.",
    "humaneval": "```python\ndef first():\n    return 1\n```",
    "mbpp": "```python\ndef add_one(x):\n    return 1 + x\n```",
    **dict.fromkeys(["livecodebench", "apps", "codecontests"], NEXT),
}
"""A message that solves a task of each set, that with a 0 where there are several."""


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    for name, rows in ROWS.items():
        with gzip.open(tmp_path / f"{name}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return {name: f"data.{name}={tmp_path / name}.jsonl.gz" for name in ROWS}


@pytest.fixture
def conditions() -> Iterator[Callable[..., list[Condition]]]:
    def built(*words: str) -> list[Condition]:
        keys: Any = OmegaConf.to_container(compose("eval", overrides=with_open_keys(words)), resolve=True)
        team = read_team(keys)
        return build_conditions(read_request(keys, team), team)

    with initialize_config_module("troupe.configs", version_base="1.3"):
        yield built


def test_every_benchmark_composes(conditions: Any) -> None:
    request = EvalRequest("base", "test", None, 1, ("own",), 0, benchmark=tuple(published_sets()))
    found = {each.name: each for each in benchmarks(request, {"env": {"_target_": "mine"}, "team": {"solo": "p"}})}
    assert set(found) == set(ROWS) == set(SOLVED)
    assert all(each.world["team"] == "solo" for each in found.values())
    # Published figures are those of the main table, row by row: no row takes the better of two.
    rows = {
        "MAS": "team, untrained",
        "AT-GRPO w/ shared policy": "team, shared weights, AT-GRPO",
        "AT-GRPO w/ per-role policies": "team, own weights, AT-GRPO",
    }
    cells = {
        "aime24": ("mathematics", "AIME24, "),
        "aime25": ("mathematics", "AIME25, "),
        "olympiadbench": ("mathematics", "OlympiadBench, "),
        "livecodebench": ("live_code_bench", ""),
        "apps": ("code", "APPS, "),
        "codecontests": ("code_contests", ""),
    }
    table: Any = OmegaConf.load(Path(__file__).parents[2] / "configs/reproduce/main.yaml")
    for set_name, (part, prefix) in cells.items():
        assert found.pop(set_name).published == {
            f"{name}, Qwen3-{size}": table.rows[row].paper[part][f"{prefix}{size}"]
            for size in ("1.7B", "8B")
            for name, row in rows.items()
        }, set_name
    assert not any(each.published for each in found.values())


@pytest.mark.slow
def test_all_tasks_of_each_in_a_row_of_its_own(conditions: Any, files: dict[str, str]) -> None:
    words = ["benchmark=aime24,gsm8k", files["aime24"], files["gsm8k"], "temperature=own"]
    first, second = conditions("exp=math_specialized", *words)
    assert (first.name, len(first.tasks), second.name, len(second.tasks)) == ("aime24,sampled", 3, "gsm8k,sampled", 4)
    assert set(first.world.agents) == {"tool", "reasoner"}
    [solo] = conditions("exp=math_single", "benchmark=aime24", files["aime24"], "temperature=own", "tasks=2")
    assert (solo.world.agents, len(solo.tasks)) == (("solo",), 2)
    [code] = conditions("exp=code_specialized", "benchmark=humaneval", files["humaneval"], "temperature=own")
    assert len(code.tasks) == 2


@pytest.mark.parametrize("name", slow_but(("aime24", "mbpp"), ROWS))
async def test_each_is_read_and_judged(conditions: Any, files: dict[str, str], name: str) -> None:
    code = name in ("humaneval", "mbpp", "livecodebench", "apps", "codecontests")
    team = f"exp={'code' if code else 'math'}_single"
    words = [f"benchmark={name}", files[name], "temperature=own"]
    [condition] = conditions(team, *words)
    assert len(condition.tasks) == len(ROWS[name])
    zero = next((task for task in condition.tasks if " 0 " in str(task.data)), condition.tasks[0])
    world = condition.world
    await world.open()
    try:
        for message, solves in ((SOLVED[name], True), ("I do not know.", False)):
            world.reset(zero)
            while world.next_agents():
                result = await world.step({"solo": message})
            assert result.success is solves, result
    finally:
        await world.close()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("world: {}\npublished: {}\n", "benchmarks/mine.yaml must have the key sets"),
        ("sets: {gsm8k: {}}\n", "benchmarks/mine.yaml: the set gsm8k stands in another file of benchmarks"),
    ],
)
def test_a_file_of_sets_that_is_wrong_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "mine.yaml").write_text(f"# @package _global_\n{text}")
    with configurations(str(tmp_path)), pytest.raises(ConfigError, match=message):
        published_sets()


def test_a_world_of_the_same_class_keeps_its_settings(conditions: Any, files: dict[str, str]) -> None:
    words = ['overrides=["env=code_problems","env.horizon=2"]', "benchmark=humaneval", files["humaneval"]]
    [sampled, greedy] = conditions("exp=code_specialized", *words)
    assert sampled.world_config["horizon"] == 2 and len(greedy.tasks) == 2


@pytest.mark.parametrize(
    ("benchmark", "change", "message"),
    [
        ("apps", {"input_output": ""}, r"no row is a task: rows left out: no hidden tests \(1\)"),
        (
            "humaneval",
            {"test": ""},
            r"no row is a task: rows left out: no test that is .* \(2\)",
        ),
        ("mbpp", {"test_list": []}, r"no row is a task: rows left out: tests of no function of the solution \(1\)"),
    ],
)
def test_a_set_without_a_usable_row_is_refused(
    conditions: Any, tmp_path: Path, benchmark: str, change: dict[str, Any], message: str
) -> None:
    file = tmp_path / "changed.jsonl"
    file.write_text("".join(json.dumps(row | change) + "\n" for row in ROWS[benchmark]))
    with pytest.raises(ConfigError, match=f"env.data.test: {message}"):
        conditions("exp=code_specialized", f"benchmark={benchmark}", f"data.{benchmark}={file}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["benchmark=aime2"], "benchmark=aime2 is unknown.*aime24"),
        (["benchmark=aime24", "data.gsm8k=x"], "data.gsm8k: benchmark has no gsm8k"),
        (["benchmark=aime24", "split=train"], "benchmark=aime24 has a test split only, not split=train"),
        (["benchmark=aime24", "data.aime24=/no/such.jsonl"], "/no/such.jsonl: no such file"),
        (["benchmark=humaneval"], "agents"),
    ],
)
def test_what_cannot_be_is_refused(conditions: Any, files: dict[str, str], words: list[str], message: str) -> None:
    if words == ["benchmark=humaneval"]:  # another team's
        words = [*words, files["humaneval"]]
        message = "coder|tester"
    with pytest.raises(ConfigError, match=message):
        conditions("exp=math_specialized", *words)


def test_a_row_for_each_benchmark() -> None:
    row = {
        "tasks": 3,
        "samples": 2,
        "episodes": 6,
        "tokens": 60,
        "success": 0.5,
        "avg@2": 0.25,
        "avg@2_ci95": [0.0, 0.5],
    }
    table = benchmark_table({"aime24,sampled": row}, {"aime24,sampled": 12.0})
    cells = {str(column.header): str(next(iter(column.cells))) for column in table.columns}
    assert (cells["avg@2"], cells["success, first sample"]) == ("0.250 (0.000-0.500)", "0.500")
    assert (cells["tokens per episode"], cells["s per episode"]) == ("10.000", "2.000")
