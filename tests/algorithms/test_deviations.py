"""Every algorithm says in its yaml what it does otherwise than its publication."""

import re
from pathlib import Path

import pytest

FILES = sorted((Path(__file__).parents[2] / "configs" / "algorithm").glob("*.yaml"))

FLOOR, RATIO, CLIP, LOCAL, NO_KL, PAID = "std_floor", "importance ratio", "clip_norm", "local", "no KL", "reward.team"
BIAS = "weight=message and the mean over a message's tokens"
CRITIC = ["generalised advantage", "learns the returns", "loss is not clipped"]
DEVIATIONS = {
    "at_grpo": [FLOOR, PAID, RATIO],
    "at_grpo_agent_only": [FLOOR, PAID, RATIO],
    "at_grpo_flat": [FLOOR, PAID, RATIO],
    "at_grpo_shuffled": ["those of at_grpo"],
    "at_grpo_turn_only": [FLOOR, PAID, RATIO],
    "c3": ["plain replay", LOCAL, BIAS],
    "chain_groups": [FLOOR, RATIO],
    "cispo": ["clipped to [0, 5]", "sampling", FLOOR, "several messages"],
    "counterfactual": ["one message is removed", "is the advantage", "Shapley", LOCAL, BIAS],
    "dapo": ["3 rounds", LOCAL, FLOOR],
    "dr_grpo": [LOCAL],
    "dr_mas": [FLOOR],
    "forest_groups": [FLOOR, RATIO],
    "gdpo": ["one prompt", "iteration's mean", "each policy", FLOOR],
    "gigpo": ["anchor", NO_KL, LOCAL, FLOOR],
    "grpo": [FLOOR, NO_KL, "several messages", LOCAL],
    "grpo_ma": ["thought", "success", NO_KL, FLOOR],
    "gspo": [FLOOR, "several messages and local"],
    "iac": [*CRITIC, "share have one critic", CLIP],
    "maac": [*CRITIC, "last prompts", CLIP],
    "magrpo": [CLIP, "stop_above"],
    "magrpo_shuffled": ["those of magrpo"],
    "mareinforce": [CLIP, "ends early"],
    "maremax": [CLIP, "ends early"],
    "marloo": [CLIP, "ends early"],
    "mas_grpo": [FLOOR, RATIO, "last turn"],
    "reinforce": [CLIP],
    "reinforce_pp": ["kl is 0", "each policy", LOCAL],
    "reinforce_pp_baseline": ["kl is 0", "iteration's mean", "each policy"],
    "rloo": [NO_KL, CLIP, LOCAL],
    "role_baselines": ["several agents", "once per iteration", CLIP, "mini_batches"],
    "tree_grpo": ["one round", "from the horizon", "one sample", "success", NO_KL, FLOOR],
}
"""By algorithm, words of each deviation, in the order of its yaml."""


def test_every_algorithm_is_here() -> None:
    assert [file.stem for file in FILES] == list(DEVIATIONS)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.stem))
def test_the_comment_at_the_top_has_the_deviations(file: Path) -> None:
    comment, _, _ = file.read_text(encoding="utf-8").partition("\ndefaults:")
    lines = comment.splitlines()
    assert all(line.startswith("# ") for line in lines)
    _, mark, text = " ".join(line.removeprefix("# ") for line in lines).partition("Deviations: ")
    assert mark
    stated = re.split(r";(?![^(]*\))", text)  # a semicolon in brackets separates nothing
    expected = DEVIATIONS[file.stem]
    assert len(stated) == len(expected), stated
    assert [words for words, one in zip(expected, stated, strict=True) if words not in one] == []
