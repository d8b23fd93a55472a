"""Small files of the data sets' schemas, written here, and problems by hand."""

import asyncio
import base64
import json
import pickle
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from troupe.envs.code import Code, ProblemSet, ProblemSource
from troupe.envs.code.problem import Check, Problem
from troupe.envs.datasets import Table
from troupe.experience import Task
from troupe.sandbox import LocalSandbox

Rows = Sequence[Mapping[str, Any]]


def apps_row(number: int, question: str = "Double the number of line one.", **cells: Any) -> dict[str, Any]:
    return {
        "problem_id": number,
        "question": f"{question} Version {number}.",
        "solutions": json.dumps(["print(int(input()) * 2)", "print(2 * int(input()))"]),
        "input_output": json.dumps({"inputs": ["1\n", "4\n"], "outputs": ["2\n", "8\n"]}),
        "difficulty": "introductory",
        "url": "",
        "starter_code": "",
    } | cells


def contest_row(name: str, **cells: Any) -> dict[str, Any]:
    return {
        "name": name,
        "description": f"Double the number. Problem {name}.",
        "public_tests": {"input": ["1\n"], "output": ["2\n"]},
        "private_tests": {"input": ["5\n"], "output": ["10\n"]},
        "generated_tests": {"input": ["7\n", "5\n"], "output": ["14\n", "10\n"]},
        "source": 2,
        "solutions": {"language": [2, 3], "solution": ["int main() {}", "print(int(input()) * 2)"]},
        "incorrect_solutions": {"language": [3], "solution": ["print(2)"]},
    } | cells


def live_row(name: str, packed: bool = False, **cells: Any) -> dict[str, Any]:
    private = json.dumps([{"input": "[1, 2]\n3", "output": "6", "testtype": "functional"}])
    if packed:
        private = base64.b64encode(zlib.compress(pickle.dumps(private))).decode()
    return {
        "question_title": name,
        "question_content": f"Sum a list and a number. {name}",
        "question_id": name,
        "starter_code": "class Solution:\n    def total(self, xs: List[int], y: int) -> int:\n        ",
        "public_test_cases": json.dumps([{"input": "[1]\n1", "output": "2", "testtype": "functional"}]),
        "private_test_cases": private,
        "metadata": json.dumps({"func_name": "total"}),
    } | cells


def eval_row(name: str, **cells: Any) -> dict[str, Any]:
    prompt = (
        'from typing import List\n\ndef one() -> int:\n    return 1\n\ndef more(x: int) -> int:\n    """ One more """\n'
    )
    return {
        "task_id": name,
        "prompt": prompt,
        "canonical_solution": "    return x + one()\n",
        "test": "def check(candidate):\n    assert candidate(1) == 2\n    assert candidate(4) == 2 + 3\n",
        "entry_point": "more",
    } | cells


@pytest.fixture(scope="session")
def sandbox() -> Iterator[LocalSandbox]:
    """One worker for all of these tests, which never close it."""
    shared = LocalSandbox(workers=1)
    yield shared
    asyncio.run(shared.close())


@pytest.fixture
def write_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Rows], Table]:
    """``write_table(rows)``: a file of them, read with a cache of its own."""
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")

    def write_rows(rows: Rows, name: str = "rows.jsonl") -> Table:
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return Table(str(path))

    return write_rows


DOUBLE = Problem(
    "double",
    "Double it.",
    hidden=tuple(Check(f"{n}\n", f"{2 * n}\n") for n in (1, 2, 3, 10)),
    reference="print(int(input()) * 2)",
)
TOTAL = Problem(
    "total",
    "Sum it.",
    hidden=(Check("[[1, 2]]", "3"), Check("[[]]", "0"), Check("[[5]]", "5"), Check("[[1.5]]", "1.5")),
    examples=(Check("[[1]]", "1"),),
    function="total",
    reference="def total(xs):\n    return sum(xs)",
)


@pytest.fixture
def code_world(sandbox: LocalSandbox) -> Callable[..., Code]:
    """``code_world(problem, **settings)``: an episode of it."""

    def begin(problem: Problem, **settings: Any) -> Code:
        data = ProblemSet(ProblemSource("apps", "nowhere.jsonl"))
        world = Code(sandbox, data, **{"max_tests": 2, "cpu_s": 1.0, **settings})
        world.reset(Task("by-hand", "test", {"problem": problem}))
        return world

    return begin


def program(text: str) -> str:
    return f"Here it is:\n```python\n{text}\n```\nIt doubles."


def message(*pairs: tuple[str, str]) -> str:
    return "\n".join(f"**Test Input:**\n```\n{i}\n```\n**Test Output:**\n```\n{o}\n```" for i, o in pairs)
