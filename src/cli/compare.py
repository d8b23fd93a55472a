"""Compare two evaluations task by task.

A and B are folders of evaluations, or run directories that hold a single evaluation.  Without CONDITION, the conditions
of the same name are compared; where each evaluation has a single condition, these two.  The difference is B's success
less A's on the same task, averaged over tasks, with its 95 % bootstrap interval over tasks; with one sample per task
also McNemar's exact test.

A,A,... B,B,... compares two settings with one evaluation per seed each, paired by their order: the mean over seeds,
with a 95 % interval by a hierarchical bootstrap over seeds and tasks.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from ..errors import visible
from ..evaluation.records import EvaluationError, locate
from .main import loading


def main(arguments: Sequence[str]) -> None:
    """``troupe compare A[@CONDITION] B[@CONDITION]``."""
    parser = argparse.ArgumentParser(
        "troupe compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("a", metavar="A[@CONDITION][,A...]")
    parser.add_argument("b", metavar="B[@CONDITION][,B...]")
    options = parser.parse_args(arguments)
    try:
        ones, others = options.a.split(","), options.b.split(",")
        for place in (*ones, *others):
            locate(place)
        with loading():
            from rich.console import Console

            from ..evaluation.comparison import comparisons  # scipy, which takes a second
            from ..evaluation.tables import comparison_table, show
        table = comparison_table(comparisons(ones, others))
    except EvaluationError as error:
        sys.exit(f"error: {visible(error)}")
    console = Console(highlight=False, soft_wrap=True)
    console.print(visible(f"A: {options.a}\nB: {options.b}"), markup=False)
    show(console, table)
