"""Settings out of range are refused with their key."""

import pytest
import torch
from transformers.optimization import get_cosine_with_min_lr_schedule_with_warmup_lr_rate

from troupe.models.learning.train_config import WarmupCosine

from ..conftest import train_config


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("mini_batches", 0), ("epochs", 0), ("max_tokens", 0), ("clip_norm", 0.0)),
        *(("mismatch_share", -0.1), ("mismatch_share", 1.5)),
    ],
)
def test_settings_out_of_range_are_named(setting: str, value: float) -> None:
    with pytest.raises(ValueError, match=rf"algorithm\.update\.{setting}"):
        train_config(**{setting: value})


def test_greedy_training_is_refused() -> None:
    with pytest.raises(ValueError, match="temperature"):
        train_config(temperature=0.0)


def test_warmup_and_cosine_are_those_of_transformers() -> None:
    rates = []
    for schedule in (WarmupCosine, get_cosine_with_min_lr_schedule_with_warmup_lr_rate):
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.5)
        steps = schedule(optimizer, num_warmup_steps=10, num_training_steps=50, min_lr_rate=0.3, warmup_lr_rate=0.1)
        rates.append([])
        for _ in range(50):
            rates[-1].append(steps.get_last_lr()[0])
            optimizer.step()
            steps.step()
    assert rates[0] == pytest.approx(rates[1], rel=1e-12)
    assert (rates[0][0], max(rates[0]), rates[0][-1]) == pytest.approx((0.05, 0.5, 0.15))
