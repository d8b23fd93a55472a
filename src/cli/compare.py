"""Two evaluations, task by task: ``python -m troupe.cli.compare A[@CONDITION] B[@CONDITION]``.

A and B are folders of evaluations, or run directories that hold a single evaluation.  Without CONDITION, the conditions
of the same name are compared; where each evaluation has a single condition, these two.  The difference is B's success
less A's on the same task, averaged over tasks, with its 95 % bootstrap interval over tasks; with one sample per task
also McNemar's exact test.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.table import Table

from ..evaluation.records import EvaluationError, EvaluationRecord
from ..evaluation.statistics import bootstrap_interval, mcnemar
from ..reports.tables import show
from ..runs.files import EVALUATIONS, SUMMARY, evaluation_folders


@dataclass(frozen=True)
class Comparison:
    """Two conditions on the same tasks.

    ``first`` and ``second`` are mean success; ``difference`` is second less first with ``interval``, its 95 % bootstrap
    interval over tasks.  ``only_first`` and ``only_second`` count tasks that one solved and the other did not, ``p`` is
    McNemar's; all three None where a task has several samples.
    """

    tasks: int
    first: float
    second: float
    difference: float
    interval: tuple[float, float]
    only_first: int | None = None
    only_second: int | None = None
    p: float | None = None


def compare(first: Mapping[str, list[bool]], second: Mapping[str, list[bool]], names: tuple[str, str]) -> Comparison:
    """``first`` and ``second`` map each task to the success of each of its samples.

    Raises :class:`EvaluationError`, naming the first task that differs, where the tasks are not the same.
    """
    check_tasks(list(first), list(second), names)
    pairs = [(fmean(first[task]), fmean(second[task])) for task in first]
    differences = [b - a for a, b in pairs]
    shares = (len(pairs), fmean(a for a, _ in pairs), fmean(b for _, b in pairs), fmean(differences))
    interval = bootstrap_interval(differences)
    if any(len(samples) > 1 for samples in [*first.values(), *second.values()]):
        return Comparison(*shares, interval)
    only_first, only_second = differences.count(-1), differences.count(1)
    return Comparison(*shares, interval, only_first, only_second, mcnemar(only_first, only_second))


def check_tasks(first: list[str], second: list[str], names: tuple[str, str]) -> None:
    """Raises :class:`EvaluationError`, naming the first task that differs."""
    for place, (a, b) in enumerate(zip(first, second, strict=False), 1):
        if a != b:
            raise EvaluationError(f"different tasks: number {place} is {a} in {names[0]}, but {b} in {names[1]}")
    if len(first) != len(second):
        more, fewer = (0, 1) if len(first) > len(second) else (1, 0)
        place, extra = min(len(first), len(second)) + 1, max(first, second, key=len)[min(len(first), len(second))]
        raise EvaluationError(f"different tasks: number {place} is {extra} in {names[more]}, but {names[fewer]} ends")


def locate(place: str) -> tuple[EvaluationRecord, str | None]:
    """The evaluation and the condition that ``FOLDER[@CONDITION]`` names.  Raises :class:`EvaluationError`."""
    folder, _, condition = place.partition("@")
    path = Path(folder)
    if not (path / SUMMARY).is_file() or (path / EVALUATIONS).is_dir():
        folders = evaluation_folders(path)
        if not folders:
            raise EvaluationError(f"{path} holds no evaluation; make one with `make eval run=DIR`")
        if len(folders) > 1:
            raise EvaluationError(f"{path} holds several evaluations; name one of {', '.join(map(str, folders))}")
        path = folders[0]
    evaluation = EvaluationRecord.read(path)
    if condition and condition not in evaluation.conditions:
        raise EvaluationError(f"{path} has no condition '{condition}'; it has {', '.join(evaluation.conditions)}")
    return evaluation, condition or None


def pairs_of(
    one: tuple[EvaluationRecord, str | None], other: tuple[EvaluationRecord, str | None]
) -> list[tuple[str, str]]:
    """The pairs of conditions to compare.  Raises :class:`EvaluationError` where there is none."""
    (first, a), (second, b) = one, other
    firsts, seconds = [a] if a else list(first.conditions), [b] if b else list(second.conditions)
    if len(firsts) == len(seconds) == 1:
        return [(firsts[0], seconds[0])]
    if common := [name for name in firsts if name in seconds]:
        return [(name, name) for name in common]
    raise EvaluationError(
        f"no condition in common: {first.path} has {', '.join(firsts)}, {second.path} has {', '.join(seconds)}; "
        "name one of each: FOLDER@CONDITION"
    )


def comparisons(one: str, other: str) -> list[tuple[str, Comparison]]:
    """(Name, comparison) of each pair of conditions of ``one`` and ``other``, each ``FOLDER[@CONDITION]``.

    Raises :class:`EvaluationError`.
    """
    first, second = locate(one), locate(other)
    results = []
    for a, b in pairs_of(first, second):
        names = (f"{first[0].path}@{a}", f"{second[0].path}@{b}")
        results.append((a if a == b else f"{a} / {b}", compare(first[0].successes(a), second[0].successes(b), names)))
    return results


def table(rows: list[tuple[str, Comparison]]) -> Table:
    """Comparisons as rows."""
    result = Table("condition", "tasks", "A", "B", "B - A (95 %)", "only A", "only B", "McNemar p")
    for name, row in rows:
        low, high = row.interval
        counts = ["several samples", "", ""] if row.p is None else [str(row.only_first), str(row.only_second)]
        cells = [f"{row.first:.3f}", f"{row.second:.3f}", f"{row.difference:+.3f} ({low:+.3f} to {high:+.3f})"]
        result.add_row(name, str(row.tasks), *cells, *counts, *([] if row.p is None else [f"{row.p:.2g}"]))
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a", metavar="A")
    parser.add_argument("b", metavar="B")
    options = parser.parse_args()
    try:
        rows = comparisons(options.a, options.b)
    except EvaluationError as error:
        sys.exit(f"error: {error}")
    console = Console(highlight=False, soft_wrap=True)
    console.print(f"A: {options.a}\nB: {options.b}")
    show(console, table(rows))


if __name__ == "__main__":
    main()
