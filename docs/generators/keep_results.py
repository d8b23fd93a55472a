"""Keep results for the documentation: `python docs/generators/keep_results.py runs/reproduce/turns/laptop ...`.

Copies the `summary.jsonl` of a reproduced table to `docs/results/reproduction/TABLE_SCALE.jsonl`, that of a table which
is not among Troupe's to `docs/results/tables/`, that of a sweep to `docs/results/summaries/SWEEP_EXPERIMENT.jsonl`;
then ``make results`` writes the pages.  In a copy the folder of the runs is called `runs`.  Where all runs of a part
were trained by the same code, of known commits, or at one commit, they are not marked as stale for it: that the code
has changed since is to be expected of committed results, whose page names the commits, and runs of different parts are
not compared.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from troupe.sweep.publication_file import table_names

RESULTS = Path(__file__).parent.parent / "results"


def kept(lines: list[dict[str, Any]], runs: str) -> list[dict[str, Any]]:
    """The lines of a summary as they are committed; ``runs`` is the folder of the runs."""
    rows = [line.get("run", line) if isinstance(line.get("run", ""), dict) else line for line in lines[1:]]
    rows = [row for row in rows if "code" in row]
    parts: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        row["run"] = row["run"] and row["run"].replace(runs, "runs", 1)
        parts.setdefault(row.get("part", ""), []).append(row)
    for own in parts.values():
        same = _is_one_code([row for row in own if row["code"]])
        for row in own:
            if same and row["stale"] == "code":
                row["stale"] = ""
    return lines


def _is_one_code(trained: list[dict[str, Any]]) -> bool:
    """Settings import different modules, so that at one commit their hashes differ, too."""
    commits = {row.get("commit") or "" for row in trained}
    if "" in commits or any(commit.endswith("-dirty") for commit in commits):
        return False
    return len(commits) == 1 or len({row["code"] for row in trained}) == 1


def keep(folder: Path, results: Path = RESULTS) -> Path:
    """The copy of the summary of ``folder``, a table or a sweep in a folder of runs."""
    lines = [json.loads(line) for line in (folder / "summary.jsonl").read_text(encoding="utf-8").splitlines()]
    kind = "reproduce" if "table" in lines[0] else "sweeps"
    runs = next(parent.parent for parent in folder.parents if parent.name == kind)
    name = "_".join(part.removesuffix("_specialized") for part in folder.relative_to(runs / kind).parts)
    tables = "reproduction" if lines[0].get("table") in table_names() else "tables"
    file = results / (tables if kind == "reproduce" else "summaries") / f"{name}.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in kept(lines, str(runs))), encoding="utf-8")
    return file


if __name__ == "__main__":
    for word in sys.argv[1:]:
        print(keep(Path(word)))
