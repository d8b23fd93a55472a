"""HumanEval, where TROUPE_HUMANEVAL names its file: canonical solutions are right, broken ones wrong."""

import os
import runpy
from pathlib import Path

import pytest

from troupe.sandbox import LocalSandbox

BENCH = Path(__file__).parents[3] / "bench" / "humaneval.py"
FILE = os.environ.get("TROUPE_HUMANEVAL")


@pytest.mark.slow
@pytest.mark.skipif(FILE is None, reason="TROUPE_HUMANEVAL names no HumanEval.jsonl.gz")
async def test_all_solutions_are_judged_as_they_are() -> None:
    bench = runpy.run_path(str(BENCH))
    problems = bench["items"](Path(str(FILE)))
    assert len(problems) == 164
    async with LocalSandbox(workers=2) as sandbox:
        assert not any((await bench["judge"](problems, sandbox)).values())


def test_mutants_differ_in_one_place() -> None:
    mutants = runpy.run_path(str(BENCH))["mutants"]
    source = "def g():\n    return 1\n\ndef f(x):\n    return x + 1 if x < 2 else 0"
    assert [text.splitlines()[-1].strip() for text in mutants(source, "f")] == [
        "return None",
        "return x + 1 if x >= 2 else 0",
        "return x - 1 if x < 2 else 0",
        "return x + 1 if x < 2 else 1",
        "return x + 1 if x < 3 else 0",
        "return x + 2 if x < 2 else 0",
    ]
