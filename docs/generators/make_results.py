"""Write the pages of `docs/results/` whose sweeps have a committed summary: `docs/results/summaries/NAME.jsonl`.

A sweep leaves its `summary.jsonl` in `runs/sweeps/NAME/EXPERIMENT`; a copy of it below `summaries/` is enough to make
its page again, without the runs.  ``make results`` writes the pages; ``tests/sweep/test_summary.py`` checks that they
were written.
"""

from __future__ import annotations

from pathlib import Path

from troupe.sweep.summary import SweepSummary
from troupe.sweep.tables import page_of

RESULTS = Path(__file__).parent.parent / "results"


def pages(results: Path = RESULTS) -> dict[Path, str]:
    """The pages of the summaries in ``results``, by file."""
    summaries = sorted((results / "summaries").glob("*.jsonl"))
    return {results / f"{file.stem}.md": page_of(SweepSummary.read(file)) for file in summaries}


if __name__ == "__main__":
    for file, text in pages().items():
        file.write_text(text, encoding="utf-8")
