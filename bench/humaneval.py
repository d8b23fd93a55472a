"""How programs are judged, on HumanEval: python bench/humaneval.py HumanEval.jsonl.gz [--programs 1000]

Every canonical solution must be judged right, and of every problem a broken one wrong.  Broken solutions are mutants of
the canonical ones (another operator, comparison or constant, a result left out) that the data set's own test, run with
them in one program, finds wrong; so the two ways of judging are compared.  Then so many mutants are run twice: what the
sandbox says of a program must not differ.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import copy
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from troupe.envs.code.problem import Problem
from troupe.envs.code.running import Runner
from troupe.envs.code.sources import SCHEMAS
from troupe.envs.datasets import Table
from troupe.envs.execution import Executor
from troupe.sandbox import Job, Limits, LocalSandbox, Result, Verdict, run_all

LIMITS = Limits(cpu_s=5.0)
SHORT = Limits(cpu_s=0.5, idle_s=0.5)
OTHER: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


@dataclass(frozen=True)
class Item:
    """A problem, and the data set's own test of it."""

    problem: Problem
    test: str

    def whole(self, program: str) -> str:
        """``program`` and its test in one, as the data set means it; for programs that are trusted."""
        return f"{self.problem.setup}\n{program}\n{self.test}\ncheck({self.problem.function})\n"

    def mutants(self) -> Iterator[str]:
        """Of the canonical solution."""
        return mutants(self.problem.reference or "", self.problem.function or "")


def items(path: Path) -> list[Item]:
    """All of the file.  Raises ``troupe.envs.datasets.DataError``."""
    schema = SCHEMAS["human_eval"]
    return [Item(schema.problem(row["task_id"], row), row["test"]) for row in Table(str(path)).rows(schema.columns)]


def mutants(program: str, function: str) -> Iterator[str]:
    """``program`` with one place of ``function`` changed, place by place."""
    tree = ast.parse(program)
    for index in range(sum(1 for _ in ast.walk(_function(tree, function)))):
        mutant = copy.deepcopy(tree)
        if _change(next(islice(ast.walk(_function(mutant, function)), index, None))):
            yield ast.unparse(ast.fix_missing_locations(mutant))


def _function(tree: ast.Module, name: str) -> ast.AST:
    return next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name)


def _change(place: ast.AST) -> bool:
    """Change ``place``; False where there is nothing to change."""
    if isinstance(place, ast.BinOp | ast.BoolOp) and type(place.op) in OTHER:
        place.op = OTHER[type(place.op)]()  # type: ignore[assignment]
    elif isinstance(place, ast.Compare) and type(place.ops[0]) in OTHER:
        place.ops[0] = OTHER[type(place.ops[0])]()  # type: ignore[call-overload]
    elif isinstance(place, ast.Constant) and type(place.value) is int:
        place.value += 1
    elif isinstance(place, ast.Return) and place.value is not None:
        place.value = ast.Constant(None)
    else:
        return False
    return True


async def broken(item: Item, sandbox: LocalSandbox) -> str:
    """The first mutant that the data set's own test finds wrong."""
    for mutant in item.mutants():
        if (await sandbox.run(Job(item.whole(mutant)), LIMITS)).verdict is not Verdict.OK:
            return mutant
    raise ValueError(f"{item.problem.name}: no mutant is wrong")


async def judge(problems: list[Item], sandbox: LocalSandbox) -> dict[str, list[str]]:
    """The problems whose canonical solution was judged wrong, and those whose broken one was judged right."""
    runner = Runner(Executor(sandbox, LIMITS))
    wrong: dict[str, list[str]] = {"canonical solutions judged wrong": [], "broken solutions judged right": []}
    for item in problems:
        canonical = await runner.run_hidden(item.problem, item.problem.reference or "")
        if not all(result.passed for result in canonical):
            wrong["canonical solutions judged wrong"].append(item.problem.name)
        if all(result.passed for result in await runner.run_hidden(item.problem, await broken(item, sandbox))):
            wrong["broken solutions judged right"].append(item.problem.name)
    return wrong


async def rerun(problems: list[Item], count: int, sandbox: LocalSandbox) -> tuple[Counter[str], int]:
    """The verdicts on ``count`` different programs, and how many differ when they are run again."""
    texts = dict.fromkeys(item.whole(mutant) for item in problems for mutant in item.mutants())
    programs = [Job(text) for text in [*texts][:: max(1, len(texts) // count)][:count]]
    first, second = [await run_all(sandbox, programs, SHORT) for _ in range(2)]
    differ = sum(_outcome(one) != _outcome(other) for one, other in zip(first, second, strict=True))
    return Counter(str(result.verdict) for result in first), differ


def _outcome(result: Result) -> tuple[object, ...]:
    return result.verdict, result.exit_code, result.signal, result.stdout, result.stderr


async def measure(path: Path, programs: int, workers: int) -> None:
    problems = items(path)
    async with LocalSandbox(workers) as sandbox:
        start = time.perf_counter()
        wrong = await judge(problems, sandbox)
        print(f"{len(problems)} problems, {time.perf_counter() - start:.0f} s")
        for kind, names in wrong.items():
            print(f"{kind}: {len(names)} {' '.join(names)}")
        print(f"assertions that are not supported: {sum(item.problem.unusable_tests for item in problems)}")
        print(f"problems with a test script: {sum(item.problem.script is not None for item in problems)}")
        verdicts, differ = await rerun(problems, programs, sandbox)
        print(f"{verdicts.total()} programs twice: {differ} differ; {dict(verdicts)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    asyncio.run(measure(options.file, options.programs, options.workers))


if __name__ == "__main__":
    main()
