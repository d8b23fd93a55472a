"""How answers are judged, by Troupe and by math-verify alone: `python bench/answers.py FILE.jsonl [FILE.jsonl ...]`.

Each expected answer of AIME (rows with `problem`) or OlympiadBench (rows with `final_answer`) is written in other
notations, which must be accepted, and as near misses, which must be refused.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import math_verify

from troupe.envs.execution import Executor
from troupe.envs.math import Aime24, OlympiadBench
from troupe.envs.math.answers import IMPORTS, Answers
from troupe.envs.math.equality import equal, is_numeral
from troupe.envs.math.sources import Question
from troupe.envs.math.values import Tree
from troupe.sandbox import Limits, LocalSandbox

SEVERAL = {"list", "set", "union"}


def notations(text: str, tree: Tree) -> Iterator[str]:
    """Other ways to write an answer."""
    bare = text.strip().rstrip(".").replace("$", "")
    yield f" ${bare}$ "
    sized = bare.replace("\\left", "").replace("\\right", "").replace("(", "\\left(").replace(")", "\\right)")
    yield sized.replace("\\frac", "\\dfrac")
    kind = tree[0]
    left, _, right = bare.rpartition("=")
    if kind == "pow" and is_numeral(tree):
        yield from (f"x = {bare}", f"{bare} \\text{{ units}}")
    elif kind == "rel" and tree[1] == ["="] and is_numeral(tree[-1]):
        yield from (right, f"{left} = {right}.0", f"{right} \\text{{ units}}")
    elif kind == "int":
        yield from (f"{bare}.0", f"\\frac{{{2 * tree[1]}}}{{2}}", f"x = {bare}", f"{bare} \\text{{ units}}")
    elif kind == "rat":
        yield from (f"\\frac{{{3 * tree[1]}}}{{{3 * tree[2]}}}", f"{tree[1]}/{tree[2]}", f"x = {bare}")
    elif kind in ("add", "mul", "pow", "fn"):
        yield from (f"\\frac{{2({bare})}}{{2}}", f"({bare}) + 0", f"y = {bare}", f"0 + ({bare}) \\cdot 1")
    elif kind == "percent":
        yield from (bare.replace("%", " \\%").replace("\\ \\", "\\"), bare.replace("\\%", "").replace("%", ""))
        yield f"x = {bare}"
    elif kind in SEVERAL:
        members = pieces(bare)
        yield from (", ".join(reversed(members)), " ; ".join(members), f"\\{{{', '.join(members)}\\}}")
    elif kind == "tuple":
        yield from (bare.replace(",", " , "), f"({bare})", f"\\bigl{bare[:-1]}\\bigr)")
    elif kind == "interval":
        yield from (f"x \\in {bare}", bare.replace(",", " , "))
    elif kind == "rel" and tree[1] == ["="]:
        yield from (right, f"{bare} + 0", f"{left} = \\frac{{2({right})}}{{2}}")
    elif kind == "rel":
        yield from (bare.replace("\\geqslant", sign) for sign in ("\\ge", "≥", "\\geq"))


def near_misses(text: str, tree: Tree) -> Iterator[str]:
    """Answers that are close to an answer, and wrong."""
    bare = text.strip().rstrip(".").replace("$", "")
    kind = tree[0]
    if kind in ("int", "rat"):
        yield from (
            f"{bare}1",
            f"{bare}.5" if kind == "int" else f"{bare} + 1",
            f"{bare}, 7",
            f"{bare} \\text{{ or }} -3",
        )
        if tree[1]:
            yield f"-({bare})"
        yield f"{bare} + 1 - 1"  # a sum is left to the reader
    elif kind in ("add", "mul", "pow", "fn"):
        yield from (f"({bare}) + 1", f"2({bare})", f"-({bare})", f"({bare}) + 10^{{-9}}")
    elif kind == "percent":
        yield from (f"1{bare}", f"-{bare}")
    elif kind in SEVERAL:
        members = pieces(bare)
        yield from (", ".join(members[1:]), ", ".join([*members, "12345"]), ", ".join([*members[:-1], "12345"]))
    elif kind == "tuple":
        inner = pieces(bare[1:-1])
        yield from (f"({', '.join([*inner, '0'])})", f"({', '.join([*inner[:-1], '12345'])})", inner[0])
    elif kind == "interval":
        yield bare.replace("[", "(").replace("]", ")") if "[" in bare or "]" in bare else f"[{bare[1:]}"
    elif kind == "rel" and tree[1] == ["="]:
        yield from (f"{bare} + 1", f"{bare.split('=')[0]} = 12345")


def pieces(text: str) -> list[str]:
    """``text`` at the commas outside of brackets."""
    tree, depth = [""], 0
    for sign in text:
        depth += (sign in "([{") - (sign in ")]}")
        if sign in ",;" and depth == 0:
            tree.append("")
        else:
            tree[-1] += sign
    return [piece.strip() for piece in tree]


@dataclass(frozen=True)
class Case:
    """An expected answer, other notations of it, and near misses."""

    question: Question
    notations: list[str]
    near_misses: list[str]


Judge = Callable[[Question, list[str]], list[bool]]
"""(Question, answers) -> whether each is right."""


async def cases_of(questions: list[Question], answers: Answers) -> list[Case]:
    """One case for each different answer that can be read; prints the others."""
    cases = []
    for question in {(q.answer, q.several): q for q in questions}.values():
        tree = await answers.read(question.answer, several=question.several)
        expected = question.answer
        if tree is None:
            print(f"cannot be read: {expected}")
        else:
            cases.append(Case(question, list(notations(expected, tree)), list(near_misses(expected, tree))))
    return cases


async def by_troupe(cases: list[Case], answers: Answers) -> Judge:
    """Troupe's judgement; one run of the sandbox reads all answers of a case."""
    trees: dict[tuple[str, bool], Tree | None] = {}
    for case in cases:
        several = case.question.several
        texts = [case.question.answer, *case.notations, *case.near_misses]
        trees |= {
            (text, several): tree
            for text, tree in zip(texts, await answers.read_all(texts, several=several), strict=True)
        }

    def right(question: Question, texts: list[str]) -> list[bool]:
        expected = trees[question.answer, question.several]
        answers = [trees[text, question.several] for text in texts]
        return [tree is not None and expected is not None and equal(tree, expected) for tree in answers]

    return right


def by_math_verify(question: Question, texts: list[str]) -> list[bool]:
    """The judgement of math-verify alone, in this process: for trusted answers only."""
    expected = math_verify.parse(f"\\boxed{{{question.answer}}}")
    return [bool(math_verify.verify(expected, math_verify.parse(f"\\boxed{{{text}}}"))) for text in texts]


def report(name: str, cases: list[Case], right: Judge, *, show: int) -> None:
    """Count, and print the first ``show`` wrong judgements of each kind."""
    refused: list[tuple[str, str]] = []
    accepted: list[tuple[str, str]] = []
    for case in cases:
        question = case.question
        same = zip(case.notations, right(question, case.notations), strict=True)
        other = zip(case.near_misses, right(question, case.near_misses), strict=True)
        refused += [(question.answer, text) for text, is_right in same if not is_right]
        accepted += [(question.answer, text) for text, is_right in other if is_right]
    total = sum(len(case.notations) for case in cases), sum(len(case.near_misses) for case in cases)
    print(
        f"{name}: {len(cases)} different answers; {len(refused)} of {total[0]} notations refused, "
        f"{len(accepted)} of {total[1]} near misses accepted"
    )
    for kind, pairs in (("refused", refused), ("accepted", accepted)):
        for expected, text in pairs[:show]:
            print(f"  {kind}   {expected}   as   {text}")


async def measure(questions: list[Question], workers: int, show: int) -> None:
    async with LocalSandbox(workers, imports=IMPORTS) as sandbox:
        answers = Answers(Executor(sandbox, Limits(cpu_s=120, idle_s=60, memory_mib=1024)))
        cases = await cases_of(questions, answers)
        troupe = await by_troupe(cases, answers)
    report("troupe", cases, troupe, show=show)
    report("math-verify alone", cases, by_math_verify, show=show)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--show", type=int, default=10, help="wrong judgements of each kind that are printed")
    options = parser.parse_args()
    for file in options.files:
        with file.open() as lines:
            columns = json.loads(next(lines)).keys()
        source = OlympiadBench if "final_answer" in columns else Aime24
        print(f"\n{file.name}, as {source.__name__}")
        asyncio.run(measure(list(source(str(file)).items(Counter())), options.workers, options.show))


if __name__ == "__main__":
    main()
