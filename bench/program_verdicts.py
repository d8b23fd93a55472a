"""How programs are judged, against the data sets' own assertions: python bench/program_verdicts.py mbpp sanitized.jsonl

Every reference solution, and wrappers of it that change its value or its arguments, are judged twice: by Troupe, which
compares values outside of the program, and by the assertions, run with the program in one process, as the data set
means them.  Wrappers are harmless, so that here the assertions are the truth.  It prints for each wrapper how many
programs both accept and refuse, and which only one accepts.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

from troupe.envs.code.problem import Problem
from troupe.envs.code.running import Runner
from troupe.envs.code.sources import SCHEMAS
from troupe.envs.datasets import Table, UnusableRow
from troupe.envs.execution import Executor
from troupe.sandbox import Job, Limits, LocalSandbox, Verdict

VALUES = {
    "reference": "value",
    "off by one": "value + type(value)(1) if isinstance(value, (int, float, complex)) else value + value[:1]",
    "list and tuple": "{list: tuple, tuple: list}[type(value)](value)",
    "items that are tuples": "type(value)(tuple(each) if isinstance(each, list) else list(each) for each in value)",
    "True": "True",
    "truth": "bool(value)",
    "list of one": "[value]",
    "None": "None",
    "float": "float(value)",
    "integer": "int(value)",
    "text": "str(value)",
    "iterator": "iter(value)",
    "set": "set(value)",
    "fraction": "__import__('fractions').Fraction(value)",
    "decimal": "__import__('decimal').Decimal(value)",
    "object": "object()",
    "nearly": "value * (1 + 1e-7)",
}
ARGUMENTS = {
    "swapped arguments": "args[::-1]",
    "lists for tuples": "[[*x] if isinstance(x, tuple) else x for x in args]",
}


def programs(problem: Problem) -> Iterator[tuple[str, str]]:
    """(Wrapper, program)."""
    for name, value in VALUES.items():
        yield name, _wrapped(problem, "args", value)
    for name, arguments in ARGUMENTS.items():
        yield name, _wrapped(problem, arguments, "value")


def _wrapped(problem: Problem, arguments: str, value: str) -> str:
    return (
        f"{problem.reference}\n\ndef _wrapped(function):\n    def wrapper(*args, **kwargs):\n"
        f"        value = function(*{arguments}, **kwargs)\n        return {value}\n    return wrapper\n"
        f"{problem.function} = _wrapped({problem.function})\n"
    )


def whole(problem: Problem, row: Mapping[str, Any], program: str) -> str:
    """``program`` with the data set's assertions."""
    if "test_list" in row:
        return "\n".join(["import math", program, *row["test_list"]])
    return f"{problem.setup}\n{program}\n{row['test']}\ncheck({problem.function})\n"


async def measure(kind: str, path: str, every: int, only: str, workers: int) -> None:
    schema = SCHEMAS[kind]
    rows = [*Table(path).rows(schema.columns)]
    problems: list[tuple[Problem, Mapping[str, Any]]] = []
    for row in rows:
        try:
            problems.append((schema.problem(str(row["task_id"]), row), row))
        except UnusableRow as error:
            print(f"row {row['task_id']} cannot be used: {error}")
    whole_rows = sum(not problem.unusable_tests for problem, _ in problems)
    print(f"{len(rows)} rows, {len(problems)} usable, {whole_rows} with all of their assertions")
    counts: dict[str, list[int]] = {}
    async with LocalSandbox(workers) as sandbox:
        runner = Runner(Executor(sandbox, Limits(cpu_s=3.0)))

        async def judge(problem: Problem, row: Mapping[str, Any], name: str, program: str) -> None:
            right = (await sandbox.run(Job(whole(problem, row, program)), Limits(cpu_s=5.0))).verdict is Verdict.OK
            passed = all(result.passed for result in await runner.run_hidden(problem, program))
            counts.setdefault(name, [0, 0, 0, 0])[2 * right + passed] += 1
            if right != passed:
                print(f"{problem.name}, {name}: {'refused' if right else 'accepted'} against its assertions")

        for problem, row in problems[::every]:
            await asyncio.gather(*(judge(problem, row, *each) for each in programs(problem) if only in each[0]))
    print(f"{'':24}both refuse   only judge   only assertions   both accept")
    for name, (neither, judge_only, truth_only, both) in counts.items():
        print(f"{name:24}{neither:11} {judge_only:12} {truth_only:17} {both:13}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("human_eval", "mbpp"))
    parser.add_argument("path")
    parser.add_argument("--every", type=int, default=1, help="of the problems, take each n-th")
    parser.add_argument("--only", default="", help="wrappers with this in their names")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    asyncio.run(measure(args.kind, args.path, args.every, args.only, args.workers))


if __name__ == "__main__":
    main()
