"""Adapters before they learn: what they are put on, how they start, what is refused."""

from typing import Any

import pytest
import torch

from troupe.models.learning.adapters import attach, parameters, weights
from troupe.models.learning.settings import AdapterError, LoraSettings

from ..conftest import Tiny

LORA = {
    "tool": LoraSettings(r=4, alpha=8, targets=["q_proj", "v_proj"]),
    "plan": LoraSettings(r=2, alpha=3, targets="all-linear"),
}
SEEDS = {"tool": 11, "plan": 12}


def test_an_adapter_starts_alike_whoever_else_is_there(tiny: Tiny) -> None:
    both = attach(tiny(), "nowhere", LORA, SEEDS)
    one = attach(tiny(), "nowhere", {"plan": LORA["plan"]}, SEEDS)
    mine, its = weights(both, "plan"), weights(one, "plan")
    assert mine.keys() == its.keys() and all(torch.equal(mine[name], its[name]) for name in mine)
    assert all((value == 0).all() == ("lora_B" in name) for name, value in mine.items())


@pytest.mark.parametrize("name", ["a", "model", "layers", "q_proj", "weight", "default", "0"])
def test_any_name_is_a_name(tiny: Tiny, name: str) -> None:
    # peft asks for names that are no part of a parameter's path.
    lora = {name: LORA["plan"], f"{name}x": LORA["tool"]}
    whole = attach(tiny(), "nowhere", lora, dict.fromkeys(lora, 1))
    for policy, settings in lora.items():
        found = weights(whole, policy)
        assert sum(value.numel() for value in found.values()) == settings.parameters(tiny())
        assert all(key.endswith((".lora_A.weight", ".lora_B.weight")) for key in found)


def test_an_unknown_target_is_named_with_the_known_ones(tiny: Tiny) -> None:
    settings = {"tool": LORA["tool"], "plan": LoraSettings(r=2, alpha=2, targets=["q_proj", "query"])}
    message = (
        r"policies\.plan\.lora\.targets: Qwen3ForCausalLM has no linear layer 'query'\. Known: q_proj, k_proj, v_proj, "
        "o_proj, gate_proj, up_proj, down_proj, all-linear$"
    )
    with pytest.raises(AdapterError, match=message):
        attach(tiny(), "nowhere", settings, SEEDS)
    with pytest.raises(AdapterError, match="'lm_head'"):  # tied to the embeddings, and of all adapters' size
        LoraSettings(r=2, alpha=2, targets=["lm_head"]).layers(tiny())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"r": 0}, "r must be"),
        ({"alpha": 0}, "alpha must be"),
        ({"targets": "all"}, "targets"),
        ({"targets": []}, "targets"),
    ],
)
def test_settings_out_of_range_are_named(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(AdapterError, match=message):
        LoraSettings(**({"r": 4, "alpha": 8} | wrong))


def test_parameters_are_counted_before_there_is_an_adapter(tiny: Tiny) -> None:
    whole = attach(tiny(), "nowhere", LORA, SEEDS)
    for name, settings in LORA.items():
        assert settings.parameters(tiny()) == sum(p.numel() for p in parameters(whole, name))
