"""Metrics of older runs under the keys of today."""

from troupe.runs.older import RENAMED, current_key, with_current_keys


def test_renamed_keys_keep_the_agent() -> None:
    row = {"iteration": 1, "rollout/cut_off": 0.5, "rollout/tool/tokens_a_message": 4.0, "rollout/turns": 2.0}
    row |= {"mismatch/tool/turn2/effective_share": 0.9}
    assert with_current_keys(row) == {
        "iteration": 1,
        "rollout/truncated_ratio": 0.5,
        "rollout/tool/tokens_per_message": 4.0,
        "rollout/turns": 2.0,
        "mismatch/tool/turn2/ess_ratio": 0.9,
    }


def test_keys_of_today_are_not_renamed() -> None:
    for new in RENAMED.values():
        key = new.replace(r"\1", "tool")
        assert current_key(key) == key
