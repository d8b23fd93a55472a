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
import json
import sys
from collections.abc import Sequence

from ..errors import visible
from ..evaluation.records import EvaluationError, EvaluationRecord, locate
from ..runs.bounded import parse_yaml
from ..runs.files import CONFIG, RunDirectoryError
from ..runs.fingerprint import flat
from ..runs.run import RunReader
from .main import loading

MOST = 8
"""Differences that are named."""


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
        (first, *_), (second, *_) = ([locate(place)[0] for place in places] for places in (ones, others))
        with loading():
            from rich.console import Console

            from ..evaluation.comparison import comparisons  # scipy, which takes a second
            from ..evaluation.tables import comparison_table, show
        table = comparison_table(comparisons(ones, others))
    except EvaluationError as error:
        sys.exit(f"error: {visible(error)}")
    console = Console(highlight=False, soft_wrap=True)
    console.print(visible(f"A: {options.a}\nB: {options.b}"), markup=False)
    if changed := changes(first, second):
        more = [f"and {len(changed) - MOST} more"] if len(changed) > MOST else []
        console.print(visible(f"B differs from A: {'; '.join([*changed[:MOST], *more])}"), markup=False)
    show(console, table)


def changes(a: EvaluationRecord, b: EvaluationRecord) -> list[str]:
    """What was asked otherwise, then what their runs have otherwise, as ``key=B (A: ...)``."""
    from ..reports.grouping import Setting, config_differences

    stored = [parse_yaml((each.path / CONFIG).read_text()) or {} for each in (a, b)]
    requests = [dict(flat(each.get("request", {}))) for each in stored]
    keys = dict.fromkeys([*requests[0], *requests[1]])
    rows = [(key, [json.dumps(each.get(key)) for each in requests]) for key in keys]
    try:
        runs = [RunReader(each.path.parents[1]) for each in (a, b)]
        rows += config_differences([Setting("", (run,)) for run in runs])
    except RunDirectoryError:  # an evaluation without a run, or apart from it
        pass
    return [f"{key}={other} (A: {one})" for key, (one, other) in rows if one != other]
