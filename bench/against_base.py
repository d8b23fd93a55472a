"""A trained team beside many attempts of its base.  `python bench/against_base.py BASE TRAINED [...]`

BASE and TRAINED are folders of evaluations of the same tasks at temperature 1 (FOLDER[@CONDITION]), the base with many
samples per task.  Other tasks and another condition are refused; that horizon and token limits are the same is for you
to see:

    make eval run=DIR checkpoint=base samples=256 temperature=1
    make eval run=DIR samples=16 temperature=1

pass@k is the probability that at least one of k samples solves a task (docs/evaluation.md).  Training that makes likely
what the base could already do raises pass@1 towards the base's pass@k and no further: it sharpens.  The trained
pass@1 is above the base's pass@n, n all of its samples, where the paired interval over tasks lies above zero.  A larger
n may say otherwise (`python bench/base_attempts.py` plays on).  Two columns count tasks that the base solved in none of
its samples.
"""

from __future__ import annotations

import argparse

from troupe.evaluation.against_base import Curve, Successes, against_base
from troupe.evaluation.records import EvaluationError, locate

DIFFERENCE = "trained pass@1 - base pass@n (95 %)"


def played(place: str) -> tuple[str, Successes]:
    """The only condition, or the one that is named, and what was solved in it.  Raises :class:`EvaluationError`."""
    record, condition = locate(place)
    condition = record.condition(condition)
    return condition, record.successes(condition)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("base")
    parser.add_argument("trained", nargs="+")
    options = parser.parse_args()
    condition, base = played(options.base)
    columns = ("team", "tasks", "pass@1", "pass@n", DIFFERENCE, "unsolved by the base", "of them gained")
    columns += ("verdict",)
    print(f"| {' | '.join(columns)} |")
    print("|---" * len(columns) + "|")
    for place in options.trained:
        own, wins = played(place)
        if own != condition:
            raise EvaluationError(f"{place} was played with {own}, the base with {condition}")
        found = against_base(base, wins)
        if place == options.trained[0]:
            print(row("base", len(base), found.base))
        low, high = found.interval
        print(
            f"{row(place, len(base), found.trained)} {found.difference:+.3f} ({low:+.3f} to {high:+.3f}) "
            f"| {found.unsolved} | {found.gained} ({found.gained_share:.3f} of samples) | {found.verdict} |"
        )


def row(name: str, tasks: int, points: Curve) -> str:
    """The first cells of a line, up to pass@n; the whole line of the base, which ends there."""
    cells = [f"{value:.3f} ({low:.3f}-{high:.3f})" for value, (low, high) in (points[1], points[max(points)])]
    return f"| {name} | {tasks} | {cells[0]} | @{max(points)}: {cells[1]} |"


if __name__ == "__main__":
    main()
