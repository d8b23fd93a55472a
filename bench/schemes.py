"""The schemes of cooperation in main functions over training, from the metrics of runs of code collaboration.

python bench/schemes.py runs/code_collab_specialized/*    # a table: means over runs, in brackets the least and the most
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

from troupe.runs.run import RunReader

SCHEMES = ("decorator", "coordinator", "fallback", "strategy_filter")
COLUMNS = (*SCHEMES, "calls_aux", "all_tests_passed")
PERIODS = ((1, 1), (2, 5), (6, 10), (11, 20), (21, 40), (41, 60))
"""First and last iteration of a line of the table."""

Rows = Sequence[Mapping[str, float]]


def table(runs: Sequence[Rows]) -> str:
    """One line per period that all runs have reached; an iteration's figure is a mean over its messages."""
    last = min(len(rows) for rows in runs)
    lines = [f"| iterations | {' | '.join(COLUMNS)} |", f"| {' | '.join(['---'] * (len(COLUMNS) + 1))} |"]
    for first, end in ((first, min(end, last)) for first, end in PERIODS if first <= last):
        cells = [
            _cell([fmean(row[f"rollout/main/{name}"] for row in rows[first - 1 : end]) for rows in runs])
            for name in COLUMNS
        ]
        lines.append(f"| {f'{first} to {end}' if end > first else first} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(values: Sequence[float]) -> str:
    mean = f"{fmean(values):.3f}"
    return mean if max(values) - min(values) < 0.0005 else f"{mean} ({min(values):.3f} to {max(values):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run's folder")
    print(table([RunReader(path).rows for path in parser.parse_args().runs]))


if __name__ == "__main__":
    main()
