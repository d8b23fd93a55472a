"""Mismatch statistics against sums written plainly, and worked out by hand."""

import math
from random import Random

import pytest
import torch

from troupe.algorithms.objectives import ClippedObjective
from troupe.models.learning.update_stats import MismatchStats

CPU = torch.device("cpu")


def metrics(drifts: list[list[float]], places: list[tuple[str, int]], **objective: object) -> dict[str, float]:
    """Of completions with these drifts, one micro-batch."""
    longest = max(map(len, drifts))
    drift = torch.tensor([row + [0.0] * (longest - len(row)) for row in drifts])
    mask = torch.tensor([[i < len(row) for i in range(longest)] for row in drifts])
    found = MismatchStats([*places, ("silent", 0)], CPU)
    found.add(places, drift, mask, *ClippedObjective(**objective).importance(drift))
    return found.metrics()


def test_by_hand() -> None:
    # Ratios 4, 1/2 and 1; the cap of 2 truncates the first.
    found = metrics([[math.log(4), math.log(0.5)], [0.0]], [("plan", 3), ("plan", 3)], importance_cap=2.0)
    names = "mean_abs_nats max_abs_nats k1_nats k3_nats ess_ratio corrected_share samples".split()
    said = {name: found.pop(f"mismatch/plan/turn3/{name}") for name in names}
    assert found == {f"mismatch/plan/{name}": value for name, value in said.items()}, "the agent has one turn"
    assert said["mean_abs_nats"] == pytest.approx((math.log(4) + math.log(2)) / 3)
    assert said["max_abs_nats"] == pytest.approx(math.log(4))
    assert said["k1_nats"] == pytest.approx(-math.log(2) / 3)
    assert said["k3_nats"] == pytest.approx((4 - 1 - math.log(4) + 0.5 - 1 + math.log(2)) / 3)
    assert said["ess_ratio"] == pytest.approx(5.5**2 / (16 + 0.25 + 1) / 3)
    assert said["corrected_share"] == pytest.approx(1 / 3)
    assert said["samples"] == 2


def test_what_stands_for_several_counts_for_them() -> None:
    """One of three completions was drawn, and stands for all: as if each had been seen."""
    drift, mask = torch.tensor([[math.log(4), 0.0], [0.2, -0.3]]), torch.ones(2, 2, dtype=torch.bool)
    places = [("plan", 0), ("plan", 0)]
    once, thrice = MismatchStats(places, CPU), MismatchStats(places, CPU)
    ratio = ClippedObjective(importance_cap=2.0).importance
    once.add(places, drift, mask, *ratio(drift), torch.tensor([1.0, 3.0]))
    for rows in ([0, 1], [1], [1]):
        thrice.add(places[: len(rows)], drift[rows], mask[rows], *ratio(drift[rows]))
    counts = {"mismatch/plan/samples": 2, "mismatch/plan/turn0/samples": 2}
    assert once.metrics() == pytest.approx(thrice.metrics() | counts)


def test_a_sequences_ratio_is_one_weight() -> None:
    given = [[math.log(4), math.log(0.25)], [math.log(3)]], [("plan", 0)] * 2
    found = metrics(*given, importance_cap=2.0, importance_level="sequence")
    assert found["mismatch/plan/turn0/ess_ratio"] == pytest.approx((1 + 3) ** 2 / (1 + 9) / 2)
    assert found["mismatch/plan/turn0/corrected_share"] == pytest.approx(1 / 2)


def test_masked_below_the_floor_and_uncorrected_without_a_cap() -> None:
    given = [[math.log(0.1), 0.0]], [("plan", 0)]
    masked = metrics(*given, importance_cap=2.0, importance_floor=0.5, importance_mode="mask")
    assert masked["mismatch/plan/turn0/corrected_share"] == pytest.approx(1 / 2)
    assert metrics(*given)["mismatch/plan/turn0/corrected_share"] == 0


def test_micro_batches_and_processes_add_up_to_one_metrics() -> None:
    rng = Random(0)
    places = [(rng.choice(["tool", "plan"]), rng.randrange(2)) for _ in range(20)]
    drifts = [[rng.gauss(0, 0.3) for _ in range(4)] for _ in places]
    whole = metrics(drifts, places)
    parts = [MismatchStats(places, CPU), MismatchStats(places, CPU)]
    for index in range(0, 20, 5):
        drift = torch.tensor(drifts[index : index + 5])
        ratio = ClippedObjective().importance(drift)
        parts[index % 2].add(places[index : index + 5], drift, torch.ones_like(drift).bool(), *ratio)
    other = parts[1]
    others = iter((other._sums,))
    parts[0].reduce(lambda sums: sums.add_(next(others)), lambda most: torch.maximum(most, other._largest, out=most))
    assert parts[0].metrics() == pytest.approx(whole)
