"""An outline has the layers of transformers' model, whatever engine asks."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from troupe.models.bases.known import PUBLISHED, shipped_shape
from troupe.models.learning.settings import LoraSettings
from troupe.rollout.engines.outline import KINDS, Shape
from troupe.rollout.engines.torch.support import check_architecture

LAPTOP = shipped_shape("laptop")
assert LAPTOP is not None
SHAPES = {"laptop": LAPTOP, "untied": replace(LAPTOP, tie_word_embeddings=False), **PUBLISHED}


@pytest.mark.parametrize("shape", [replace(shape, num_hidden_layers=2) for shape in SHAPES.values()], ids=SHAPES)
def test_an_outline_has_the_parameters_and_targets_of_the_model(shape: Shape) -> None:
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**shape.known))
    outline = KINDS[shape.model_type](shape)
    sizes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    assert {name: tuple(p.shape) for name, p in outline.named_parameters()} == sizes
    assert {p.device.type for p in outline.parameters()} == {"meta"}
    own, whole = ([tuple(p.shape) for p in each.base_model.parameters()] for each in (outline, model))
    assert own == whole
    lora = LoraSettings(r=4, alpha=8)
    assert sorted(lora.layers(outline)) == sorted(lora.layers(model))
    assert lora.parameters(outline) == lora.parameters(model)
    assert type(outline).__name__ == type(model).__name__
    check_architecture("p", model, None)  # which the torch engine does not ask of an outline
    layers, real = (
        [part for part in each.modules() if type(part).__name__ in each._no_split_modules] for each in (outline, model)
    )
    assert len(layers) == len(real) == 2
