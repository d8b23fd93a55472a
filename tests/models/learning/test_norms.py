"""Norms in float64: as precise as their input, through copies; in other precisions transformers' own."""

import copy

import torch

from troupe.models.learning.policy import keep_float64

from ..conftest import Tiny


def test_float64_is_kept_and_other_precisions_are_as_before(tiny: Tiny) -> None:
    model = tiny().double()
    norm = model.model.norm
    for module in model.modules():
        vars(module).pop("forward", None)  # the fixture's
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2)
    x = torch.randn(3, norm.weight.numel(), dtype=torch.float64)
    exact = norm.weight * x / (x.square().mean(-1, keepdim=True) + norm.variance_epsilon).sqrt()
    assert (norm(x) - exact).abs().max() > 1e-9  # what transformers does
    keep_float64(model)
    for each in (norm, copy.deepcopy(model).model.norm):
        assert (each(x) - exact).abs().max() < 1e-14
    other = copy.deepcopy(model).float()
    with torch.no_grad():
        other.model.norm.weight.zero_()
    assert not other.model.norm(x.float()).any() and norm(x).any()  # a copy reads its own weight
    assert torch.equal(norm(x.float()), type(norm).forward(norm, x.float()))
