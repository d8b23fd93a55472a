"""Below which agreement of their verifier with the truth own outcomes teach a team less than something else does.

`python bench/verifier_threshold.py`: from the summary of the sweep `verifier`, where success after training with own
outcomes, linear between the agreements tried, meets that of whole episodes, and that of the team's reward.  95 %
intervals: 10,000 resamples of the seeds of every setting.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

SUMMARY = Path(__file__).parents[1] / "docs/results/summaries/verifier_plan_path_short.jsonl"
AGREEMENTS = (0.5, 0.6, 0.75, 0.9, 1.0)
RESAMPLES = 10_000


def threshold(own: Sequence[float], other: float) -> float:
    """The largest agreement at which ``own`` is not above ``other``; below 0.5 it is 0.5, above 1 it is 1."""
    for place in range(len(AGREEMENTS) - 1, -1, -1):
        if own[place] <= other:
            if place == len(AGREEMENTS) - 1:
                return 1.0
            share = (other - own[place]) / (own[place + 1] - own[place])
            return AGREEMENTS[place] + share * (AGREEMENTS[place + 1] - AGREEMENTS[place])
    return AGREEMENTS[0]


def described(success: Mapping[str, np.ndarray], kind: str, other: str) -> str:
    rng = np.random.default_rng(0)

    def drawn(setting: str) -> np.ndarray:
        values = success[setting]
        picked: np.ndarray = values[rng.integers(len(values), size=(RESAMPLES, len(values)))].mean(axis=1)
        return picked

    settings = [f"{kind}, {agreement:g}" for agreement in AGREEMENTS]
    point = threshold([float(success[setting].mean()) for setting in settings], float(success[other].mean()))
    own, others = np.stack([drawn(setting) for setting in settings], axis=1), drawn(other)
    found = [threshold(row, value) for row, value in zip(own.tolist(), others.tolist(), strict=True)]
    low, high = np.quantile(found, [0.025, 0.975])
    return f"{kind} meets {other} at an agreement of {point:.2f} ({low:.2f} to {high:.2f})"


def main() -> None:
    success: dict[str, list[float]] = defaultdict(list)
    for row in map(json.loads, SUMMARY.read_text().splitlines()[1:]):
        success[row["setting"]].append(row["after"])
    arrays = {setting: np.array(values) for setting, values in success.items()}
    for kind in ("own", "both"):
        for other in ("episode", "global"):
            print(described(arrays, kind, other))


if __name__ == "__main__":
    main()
