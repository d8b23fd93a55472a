"""How answers are judged: `python bench/answers.py FILE.jsonl [FILE.jsonl ...]`.

Each expected answer of AIME (rows with `problem`) or OlympiadBench (rows with `final_answer`) is written in at least
three other notations, which must be accepted, and in some that come near, which must be refused.  What is judged
wrongly is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

from troupe.envs.execution import Execution
from troupe.envs.math import Aime24, OlympiadBench
from troupe.envs.math.answers import IMPORTS, Answers
from troupe.envs.math.numbers import Tree
from troupe.envs.math.sources import Question
from troupe.envs.math.trees import equal, is_numeral
from troupe.sandbox import Limits, LocalSandbox

PARTS = {"list", "set", "union"}
A_RUN = 10
"""Answers whose notations one run reads."""


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
    elif kind in PARTS:
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
    """What comes near an answer, and is another."""
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
    elif kind in PARTS:
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
    found, depth = [""], 0
    for sign in text:
        depth += (sign in "([{") - (sign in ")]}")
        if sign in ",;" and depth == 0:
            found.append("")
        else:
            found[-1] += sign
    return [piece.strip() for piece in found]


async def judge(questions: list[Question], workers: int) -> None:
    async with LocalSandbox(workers, imports=IMPORTS) as sandbox:
        answers = Answers(Execution(sandbox, Limits(cpu_s=120, idle_s=60, memory_mib=1024)))
        different = list({(q.answer, q.several): q for q in questions}.values())
        accepted = refused = unread = 0
        wrong: list[str] = []
        fewest = 99
        for start in range(0, len(different), A_RUN):
            some = different[start : start + A_RUN]
            for several in (False, True):
                part = [q for q in some if q.several == several]
                golds = dict(zip(part, await answers.read_all([q.answer for q in part], several=several), strict=True))
                unread += sum(tree is None for tree in golds.values())
                cases = {
                    q: (list(notations(q.answer, tree)), list(near_misses(q.answer, tree)))
                    for q, tree in golds.items()
                    if tree is not None
                }
                texts = list(dict.fromkeys(text for same, other in cases.values() for text in (*same, *other)))
                trees = dict(zip(texts, await answers.read_all(texts, several=several), strict=True)) if texts else {}
                for q, (same, other) in cases.items():
                    gold = golds[q]
                    assert gold is not None
                    good = [t for t in same if (found := trees[t]) is not None and equal(found, gold)]
                    bad = [t for t in other if (found := trees[t]) is not None and equal(found, gold)]
                    wrong += [f"refused   {q.answer}   as   {t}   {trees[t]}" for t in same if t not in good]
                    wrong += [f"accepted   {q.answer}   as   {t}   {trees[t]}" for t in bad]
                    accepted, refused = accepted + len(good), refused + len(other) - len(bad)
                    fewest = min(fewest, len(good))
    print("\n".join(wrong))
    print(
        f"{len(questions)} questions, {len(different)} different answers, {unread} that cannot be read; "
        f"{accepted} notations accepted (at least {fewest} an answer), {refused} near misses refused, "
        f"{len(wrong)} judged wrongly"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    for file in options.files:
        with file.open() as lines:
            columns = json.loads(next(lines)).keys()
        source = OlympiadBench if "final_answer" in columns else Aime24
        print(f"\n{file.name}, as {source.__name__}")
        asyncio.run(judge(source(str(file)).load(), options.workers))


if __name__ == "__main__":
    main()
