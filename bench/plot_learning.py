"""The picture of learning: `python bench/plot_learning.py OUT.png NAME=RUN_DIR,RUN_DIR ...` (needs `.[bench]`).

One panel a name; a line a run (sampled success on validation tasks over iterations), dots for the test success before
and after with 95 % intervals.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib.pyplot as plt

COLOURS = plt.get_cmap("tab10").colors  # type: ignore[attr-defined]


def curve(run: Path) -> tuple[list[int], list[float]]:
    """Iterations and success: on test tasks at 0, on validation tasks later."""
    xs, ys = [0], [json.loads((run / "summary.json").read_text())["eval_before/success"]]
    for line in (run / "metrics.jsonl").read_text().splitlines():
        row = json.loads(line)
        if "eval/success" in row:
            xs.append(row["iteration"])
            ys.append(row["eval/success"])
    return xs, ys


def main() -> None:
    out, *named = sys.argv[1:]
    figure, axes = plt.subplots(1, len(named), figsize=(4.6 * len(named), 3.2), sharey=True, squeeze=False)
    for axis, argument in zip(axes[0], named, strict=True):
        name, _, runs = argument.partition("=")
        for index, run in enumerate(map(Path, runs.split(","))):
            xs, ys = curve(run)
            axis.plot(xs, ys, color=COLOURS[index], alpha=0.8, label=f"seed {index}")
            summary = json.loads((run / "summary.json").read_text())
            for x, key in ((0, "eval_before"), (xs[-1], "eval")):
                y, (low, high) = summary[f"{key}/success"], summary[f"{key}/success_ci95"]
                axis.errorbar(x, y, [[y - low], [high - y]], fmt="o", color=COLOURS[index], ms=4, capsize=2)
        axis.set(title=name, xlabel="iterations", ylim=(0, 1))
        axis.grid(alpha=0.3)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0][0].set_ylabel("success, held-out boards, sampled")
    axes[0][0].legend(frameon=False, loc="lower right")
    figure.tight_layout()
    figure.savefig(out, dpi=130)


if __name__ == "__main__":
    main()
