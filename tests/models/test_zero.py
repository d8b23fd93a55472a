"""Two processes that train with DeepSpeed's ZeRO learn, save and continue what one process does."""

from pathlib import Path

import pytest

from troupe.models.loading import checkpoint_weights

from .conftest import equal
from .test_sharding import POLICIES, apart, played

CASES = {"zero2": ["full32", "unclipped32", "kl32", "lora32"], "zero3": ["full32", "unclipped32", "kl32"]}
"""By strategy; with DeepSpeed's default, gradients of ``unclipped32`` would be clipped at 1."""


@pytest.mark.deepspeed
@pytest.mark.parametrize("strategy", CASES)
def test_two_processes_of_deepspeed_do_what_one_does(strategy: str, tmp_path: Path) -> None:
    found = played(tmp_path, CASES[strategy], strategy)
    (alone,), both = found["single_device"], found[strategy]
    for case in CASES[strategy]:
        one, rows = alone[f"{case}-gathered"], [each[f"{case}-sharded"] for each in both]
        for row in rows:
            for name in POLICIES[case]:
                assert apart(row["learnt"][name], one["learnt"][name]) < 1e-6, (case, name)
                assert apart(row["undisturbed"][name]["model"], row["learnt"][name]) > 1e-4, (case, name)
                norms = [[metrics[name]["grad_norm"] for metrics in each["metrics"]] for each in (row, one)]
                assert norms[0] == pytest.approx(norms[1], rel=1e-4), (case, name)
                assert min(norms[1]) > (1.0 if case == "unclipped32" else 0.05)  # clipped in all the others
            assert equal(row["resumed"], row["undisturbed"]), case
        whole, parts = one["bytes"], [row["bytes"] for row in rows]
        for what in ("gradients", "optimizer"):  # halves, up to the padding of a flat tensor
            assert all(part[what] == pytest.approx(whole[what] / 2, rel=0.01) for part in parts), (case, what)
        sharded = all(part["weights"] < 0.7 * whole["weights"] for part in parts)  # the embedding stays whole
        assert sharded == (strategy == "zero3")
        saved = tmp_path / f"{strategy}-{case}-sharded" / POLICIES[case][0]
        assert apart(checkpoint_weights(saved), rows[0]["learnt"][POLICIES[case][0]]) == 0
        assert sorted(path.name for path in saved.glob("training*")) == ["training_00000.pt", "training_00001.pt"]
