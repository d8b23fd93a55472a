"""Settings out of range are refused with their key."""

import pytest

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
