"""Two processes that train with DeepSpeed's ZeRO learn, save and continue what one process does."""

from pathlib import Path

import pytest

from troupe.models.bases.loading import checkpoint_weights

from ..conftest import equal
from .test_sharding import POLICIES, apart, played

FULL = ["full32", "unclipped32", "kl32"]
CASES = {"zero2": [*FULL, "lora32"], "zero3": FULL}
"""By strategy; with DeepSpeed's default, gradients of ``unclipped32`` would be clipped at 1."""


@pytest.mark.deepspeed
def test_two_processes_of_deepspeed_do_what_one_does(tmp_path: Path) -> None:
    """All cases in one test, since starting processes takes longer than the cases."""
    found = played(tmp_path, {"single_device": CASES["zero2"], **CASES})
    for strategy, case in ((strategy, case) for strategy, cases in CASES.items() for case in cases):
        one, rows = found["single_device"][0][f"{case}-gathered"], [each[f"{case}-sharded"] for each in found[strategy]]
        for row in rows:
            for name in POLICIES[case]:
                assert apart(row["learnt"][name], one["learnt"][name]) < 1e-6, (strategy, case)
                assert apart(row["undisturbed"][name]["model"], row["learnt"][name]) > 1e-4, (strategy, case)
                norms = [[metrics[name]["grad_norm"] for metrics in each["metrics"]] for each in (row, one)]
                assert norms[0] == pytest.approx(norms[1], rel=1e-4), (strategy, case)
                assert min(norms[1]) > (1.0 if case == "unclipped32" else 0.05)  # clipped in all the others
            assert equal(row["resumed"], row["undisturbed"]), (strategy, case)
        whole, parts = one["bytes"], [row["bytes"] for row in rows]
        for what in ("gradients", "optimizer"):  # halves, up to the padding of a flat tensor
            assert all(part[what] == pytest.approx(whole[what] / 2, rel=0.01) for part in parts), (strategy, case, what)
        sharded = all(part["weights"] < 0.7 * whole["weights"] for part in parts)  # the embedding stays whole
        assert sharded == (strategy == "zero3")
        saved = tmp_path / f"{strategy}-{case}-sharded" / POLICIES[case][0]
        assert apart(checkpoint_weights(saved), rows[0]["learnt"][POLICIES[case][0]]) == 0
        assert sorted(path.name for path in saved.glob("training*")) == ["training_00000.pt", "training_00001.pt"]
