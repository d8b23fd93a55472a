"""Verdicts that a change of the judge changes: `python bench/answer_verdicts.py COMMIT FILE.jsonl [FILE.jsonl ...]`.

Each expected answer of MATH-500, GSM8K, AIME or OlympiadBench is judged as given, in other LaTeX, with its digits in
groups, as sympy prints it, as near misses of all these, and against expected answers of other questions; by the judge
of COMMIT, by today's, and, where these two differ, by math-verify.  Texts are read in this process: for trusted answers
only.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import sympy
from answers import by_math_verify

from troupe.envs.math import Aime24, Gsm8k, Math500, OlympiadBench
from troupe.envs.math.sources import Question, QuestionSource
from troupe.envs.math.values import Tree

MODULES = ("printed_answers", "answer_parser", "equality", "expressions", "values", "trees")
SOURCES: dict[str, type[QuestionSource]] = {"final_answer": OlympiadBench, "subject": Math500, "problem": Aime24}
OTHERS = 25
"""Expected answers of other questions that each one meets."""

Reader = Callable[[str, bool], Tree | None]
Judge = Callable[[str, str, bool, bool], bool]
"""(answer, expected answer, several, printed) -> whether it is right."""


def judge_of(commit: str | None) -> tuple[Reader, Judge]:
    """The reader and the judge of a commit, or of the working tree."""
    root = Path(__file__).parents[1] / "src" / "envs" / "math"
    folder = Path(tempfile.mkdtemp(prefix="judge"))
    package = folder / f"judge_{commit or 'now'}"
    package.mkdir()
    for name in MODULES:
        source = f"{commit}:./{name}.py"
        if commit is None and not (root / f"{name}.py").exists():
            continue  # a module of an earlier day
        if commit is None:
            text = (root / f"{name}.py").read_text()
        elif subprocess.run(["git", "cat-file", "-e", source], cwd=root, capture_output=True, check=False).returncode:
            continue  # a module of a later day
        else:
            text = subprocess.check_output(["git", "show", source], cwd=root, text=True)
        (package / f"{name}.py").write_text(text)
    sys.path.insert(0, str(folder))
    parse = importlib.import_module(f"{package.name}.answer_parser").parse
    equal = importlib.import_module(f"{package.name}.equality").equal
    trees = "trees" if (package / "trees.py").exists() else "values"
    check_tree = importlib.import_module(f"{package.name}.{trees}").check_tree

    @cache
    def read(text: str, several: bool) -> Tree | None:
        tree: Tree | None = check_tree(parse([text], several)[0])
        return tree

    def judge(answer: str, expected: str, several: bool, printed: bool) -> bool:
        if answer.split() == expected.split():
            return True
        gold = read(expected, several)
        if gold is None:
            return "".join(answer.split()) == "".join(expected.split())
        tree = read(answer, several)
        if tree is None:
            return False
        readings = [tree]
        if commit is None:
            readings = importlib.import_module("troupe.envs.math.answers")._readings(
                tree, several=several, printed=printed
            )
        return any(equal(reading, gold) for reading in readings)

    return read, judge


def as_sympy(tree: Tree) -> Any:
    """A tree as an object of sympy, which prints it; raises for what sympy has no object for."""
    kind, *rest = tree
    if kind in ("int", "rat"):
        return sympy.Rational(*rest)
    if kind == "sym":
        return sympy.Symbol(rest[0])
    if kind == "const":
        return {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "inf": sympy.oo}[rest[0]]
    if kind == "rel":
        left, right = map(as_sympy, rest[1:])
        return sympy.Rel(left, right, {"=": "=="}.get(rest[0][0], rest[0][0]), evaluate=False)
    if kind == "interval":
        return sympy.Interval(as_sympy(rest[0]), as_sympy(rest[1]), not rest[2], not rest[3])
    if kind == "fn":
        name = {"abs": "Abs", "min": "Min", "max": "Max"}.get(rest[0], rest[0])
        return getattr(sympy, name)(*map(as_sympy, rest[1:]))
    if kind == "apply":
        return sympy.Function(rest[0])(*map(as_sympy, rest[1:]))
    parts = [as_sympy(part) for part in rest]
    if kind == "matrix":
        return sympy.Matrix([list(row) for row in parts])
    if kind == "list":
        return parts
    known = {"add": sympy.Add, "mul": sympy.Mul, "pow": sympy.Pow, "tuple": sympy.Tuple, "set": sympy.FiniteSet}
    return {**known, "union": sympy.Union}[kind](*parts)


def printed(tree: Tree | None) -> list[str]:
    """A tree as sympy prints it, and its value in figures, rounded; [] where it has no such form."""
    try:
        value = as_sympy(tree or [])
        texts = [str(value)]
        if isinstance(value, sympy.Expr) and value.is_number and not value.is_Integer:
            texts.append(str(sympy.N(value, 6)))
    except (KeyError, ValueError, TypeError, AttributeError):
        return []
    return [text for text in texts if "\\" not in text]


def layouts(text: str) -> Iterator[str]:
    """Other LaTeX of an answer."""
    bare = re.sub(r"(?<!\\)\$", "", text).strip()
    sized = bare.replace("\\left", "").replace("\\right", "").replace("(", "\\left(").replace(")", "\\right)")
    yield from (bare.replace("\\frac", "\\dfrac"), sized, f"\\boxed{{{bare}}}", f"\\displaystyle{{{bare}}}")
    yield from (f"\\mathbf{{{bare}}}", f"$ {bare} $")


def groups(text: str) -> Iterator[str]:
    """An answer with its digits in groups."""
    marks = r"(?<=\d),\\!\s*" if "(" in text else r"(?<=\d)(?:,\\!\s*|,(?=\d{3}(?!\d)))"
    whole = re.sub(marks, "", text)
    for mark in ("\\,", "{,}", ",\\!", "\\!", "\u2009", "\u202f", "\u00a0"):
        yield re.sub(r"(?<![\d.])\d{4,}", lambda match, mark=mark: f"{int(match[0]):,}".replace(",", mark), whole)


def near_misses(text: str) -> Iterator[str]:
    """What is close to an answer, and another."""
    for number in re.finditer(r"\d+", text):
        before, digits, after = text[: number.start()], number[0], text[number.end() :]
        yield f"{before}{int(digits) + 1}{after}"
        yield f"{before}{digits}7{after}"
        if len(digits) > 1:
            yield f"{before}{digits[1:]}{after}"
            yield f"{before}{digits[:-1]}{after}"
            yield f"{before}{digits[0]}, {digits[1:]}{after}"
    for sign in re.finditer(r"[-+]", text):
        yield text[: sign.start()] + ("+" if sign[0] == "-" else "-") + text[sign.end() :]
    if not text.startswith("-"):
        yield f"-{text}"
    if (inner := re.fullmatch(r"(.*?\()([^()]*)(\).*)", text)) and len(parts := inner[2].split(",")) > 1:
        yield inner[1] + ",".join([*parts[1:], parts[0]]) + inner[3]


def cases(question: Question, read: Reader, others: list[str]) -> Iterator[tuple[str, str]]:
    """(class, answer)."""
    gold = question.answer
    exact, *rounded = printed(read(gold, question.several)) or [gold]
    right = {"as given": [gold], "other LaTeX": layouts(gold), "groups of digits": groups(gold), "sympy": [exact]}
    for name, texts in right.items():
        yield from ((name, text) for text in dict.fromkeys(texts) if text != gold or name == "as given")
    misses = [miss for text in (gold, exact, next(groups(gold))) for miss in near_misses(text)]
    yield from (("near misses", text) for text in dict.fromkeys(misses))
    yield from (("rounded", text) for text in rounded)
    yield from (("of other questions", text) for text in others)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    _, before = judge_of(options.commit)
    read, now = judge_of(None)
    for file in options.files:
        with file.open() as lines:
            columns = json.loads(next(lines)).keys()
        source = next((SOURCES[key] for key in SOURCES if key in columns), Gsm8k)
        questions = list({(q.answer, q.several): q for q in source(str(file)).items(Counter())}.values())
        rng, counts = Random(options.seed), defaultdict[str, Counter[str]](Counter)
        for question in questions:
            others = [rng.choice(questions).answer for _ in range(OTHERS)]
            for name, text in cases(question, read, [other for other in others if other != question.answer]):
                by_program = name in ("sympy", "near misses", "rounded")
                old, new = (judge(text, question.answer, question.several, by_program) for judge in (before, now))
                counts[name].update(pairs=1, before=old, now=new, gained=new > old, lost=old > new)
                expected_right = name in ("as given", "other LaTeX", "groups of digits", "sympy")
                if old != new or new != expected_right:
                    library = by_math_verify(question, [text])[0]
                    counts[name].update(library=library)
                    print(f"{name}\t{question.answer}\t{text}\t{old:d}->{new:d}\tmath-verify {library:d}")
        print(f"\n{file.parent.name}: {len(questions)} different answers; right by class")
        for name, row in counts.items():
            print(f"  {name}: {dict(row)}")


if __name__ == "__main__":
    main()
