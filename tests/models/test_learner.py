"""What a learner refuses, and what it warns of."""

import math
from dataclasses import replace

import pytest

from troupe.experience import Sample

from .conftest import TEMPERATURE, Plain, Tiny, pool


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("mini_batches", 0), ("epochs", 0), ("max_tokens", 0), ("clip_norm", 0.0)),
        *(("alarm_kl_nats", -0.1), ("alarm_effective_share", 1.1)),
        *(("mismatch_share", -0.1), ("mismatch_share", 1.5)),
    ],
)
def test_settings_out_of_range_are_named(tiny: Tiny, setting: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"algorithm\.update\.{setting}"):
        pool(tiny(), **{setting: value})


async def test_an_engine_that_is_too_far_apart_is_warned_of(
    tiny: Tiny, plain_logprobs: Plain, caplog: pytest.LogCaptureFixture
) -> None:
    model = tiny()
    said = [Sample("p", (5, 6), (7, 1), (0.0, 0.0), 1.0, 0.5), Sample("p", (9,), (4,), (0.0,), -1.0, 0.5)]
    near = [replace(s, behaviour_logprobs=tuple(plain_logprobs(model, s, TEMPERATURE).tolist())) for s in said]
    far = replace(near[1], behaviour_logprobs=(near[1].behaviour_logprobs[0] - 0.5,), agent="plan", turn=3)
    ours = pool(model, epochs=2)
    stats = await ours.update([[near[0], far]])
    drift = {name: stats[f"mismatch/plan/turn3/{name}"] for name in ("max_abs_nats", "k1_nats", "k3_nats")}
    # The later epoch's learner has moved; the ledger is of the update's start.
    assert drift == pytest.approx({"max_abs_nats": 0.5, "k1_nats": -0.5, "k3_nats": math.exp(0.5) - 1.5}, abs=1e-5)
    assert stats["mismatch//turn0/max_abs_nats"] < 1e-5
    assert caplog.messages == [
        "policy 'p', version 0: mismatch/plan/turn3/k3_nats=0.149 is more than algorithm.update.alarm_kl_nats=0.01"
    ]
    caplog.clear()
    quiet = pool(tiny(), alarm_kl_nats=0.2)
    await quiet.update([[near[0], far]])
    assert not caplog.messages
